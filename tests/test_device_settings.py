"""Peak rates from the settings: read from both files, refused with one clear line, used and named in every output."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner
from click.testing import Result as Outcome

from fixtures.generate import generate
from traceopt.analyzer.vocabulary.accelerator import FIGURES
from traceopt.api import analyze
from traceopt.cli import cli
from traceopt.config import PeakRates, load_config
from traceopt.errors import ConfigError
from traceopt.result.document import Result
from traceopt.what_if import what_if

TRACE = Path(__file__).resolve().parents[1] / "fixtures" / "traces" / "five_faults.json.gz"
KNOWN, UNKNOWN = "NVIDIA A100-SXM4-40GB", "NVIDIA Prototype 7"
TABLE = '[tool.traceopt.devices."NVIDIA Prototype 7"]\n'
PEAKS = TABLE + "bf16 = 624\nhbm_gb_per_s = 3000\n"
NO_PEAK = (
    "The peak rates of NVIDIA Prototype 7 are not known. Set them in pyproject.toml under "
    '[tool.traceopt.devices."NVIDIA Prototype 7"], for example bf16 = 312 and hbm_gb_per_s = 2039.'
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the trace of a device that the peak table does not have."""
    monkeypatch.chdir(tmp_path)
    text = gzip.decompress(TRACE.read_bytes()).decode()
    assert text.count(KNOWN) == 1
    Path("trace.json").write_text(text.replace(KNOWN, UNKNOWN), encoding="utf-8")
    return tmp_path


def settings(text: str, name: str = "pyproject.toml") -> Path:
    Path(name).write_text(text, encoding="utf-8")
    return Path(name)


def run(*arguments: str) -> Outcome:
    outcome = CliRunner().invoke(cli, arguments, prog_name="traceopt")
    assert outcome.exit_code == 0, outcome.output
    return outcome


def plain(text: str) -> str:
    """Words of a report, however its lines are broken."""
    return " ".join(text.split())


def analyzed(trace: str = "trace.json", *options: str) -> Result:
    return Result.from_json(run("analyze", trace, "--no-html", "--json", "-", *options).stdout_bytes)


def test_every_figure_of_the_table_can_be_set() -> None:
    assert tuple(PeakRates.__annotations__) == FIGURES


@pytest.mark.parametrize(
    ("name", "text"), [("pyproject.toml", PEAKS), ("traceopt.toml", PEAKS.replace("tool.traceopt.", ""))]
)
def test_an_unknown_device_gets_its_peaks(name: str, text: str) -> None:
    before = analyzed().efficiency
    assert (before.mfu, before.peak_tflops, before.peak_source, before.peak_verified) == (None, None, None, None)
    settings(text, name)
    result = analyzed()
    known = analyze(str(TRACE))
    assert result.efficiency.mfu == pytest.approx((known.efficiency.mfu or 0) / 2, abs=1e-6)
    found = result.efficiency
    assert (found.peak_tflops, found.peak_source, found.peak_verified) == (624, "your settings", None)
    assert result.run.device is not None
    assert [(peak.figure, peak.rate, peak.unit, peak.source) for peak in result.run.device.peaks] == [
        ("bf16", 624, "TFLOP/s", "your settings"),
        ("memory", 3000, "GB/s", "your settings"),
    ]


def test_the_message_of_an_unknown_device_can_be_followed() -> None:
    """The table and the example that it names are valid settings, and make the message go away."""
    [check] = [check for check in analyzed().checks if check.code == "GM005"]
    assert NO_PEAK in (check.reason or "")
    table, example = NO_PEAK.split(" under ")[1].split(", for example ")
    settings(f"{table}\n" + "\n".join(example.removesuffix(".").split(" and ")))
    assert load_config().devices == {UNKNOWN: {"bf16": 312.0, "hbm_gb_per_s": 2039.0}}
    assert NO_PEAK not in [check.reason for check in analyzed().checks]


def test_a_figure_of_the_table_is_corrected() -> None:
    settings('[tool.traceopt.devices."A100-SXM4"]\nbf16 = 250\n')
    found = analyzed(str(TRACE))
    assert (found.efficiency.peak_tflops, found.efficiency.peak_source) == (250, "your settings")
    assert found.run.device is not None
    told = {peak.figure: (peak.source == "your settings", peak.verified) for peak in found.run.device.peaks}
    assert told["bf16"] == (True, None)
    assert told["fp16"] == told["memory"] == (False, True)


@pytest.mark.parametrize(
    ("device", "caveat"),
    [(UNKNOWN, "peak from your settings"), ("NVIDIA A800 40GB Active", "peak unverified"), (KNOWN, "")],
)
def test_every_output_says_what_the_peak_rests_on(device: str, caveat: str) -> None:
    """Of a step that mostly computes: there the verdict has the share of the peak."""
    settings(PEAKS)
    text = orjson.dumps(generate("split_projections").document).decode()
    Path("trace.json").write_text(text.replace(KNOWN, device), encoding="utf-8")
    run("analyze", "trace.json", "--html", "report.html", "--static", "--markdown", "report.md")
    outputs = {name: Path(name).read_text(encoding="utf-8") for name in ("report.html", "report.md")}
    for form in ("text", "json"):
        outputs[form] = run("analyze", "trace.json", "--no-html", "--format", form).stdout
    caveats = {"peak unverified", "peak from your settings"}
    for name, output in outputs.items():
        assert {words for words in caveats if words in plain(output)} == ({caveat} if caveat else set()), name


def test_what_if_and_compare_use_the_settings() -> None:
    settings(PEAKS)
    compared = json.loads(run("compare", str(TRACE), "trace.json", "--json", "-").stdout)
    [mfu] = [row for row in compared["metrics"] if row["name"] == "mfu"]
    assert mfu["head"] == pytest.approx(mfu["base"] / 2, abs=1e-6)
    assert mfu["label"].endswith("(peak from your settings, different peaks)")
    document = json.loads(run("whatif", "trace.json", "--fix", "GM001", "--json", "-").stdout)
    assert [fix["code"] for fix in document["fixes"]]
    settings(PEAKS.replace("3000", "30"))  # products that so slow a memory bounds gain nothing
    outcome = CliRunner().invoke(cli, ["whatif", "trace.json", "--fix", "GM001"])
    assert outcome.exit_code == 2
    assert "GM001 finds nothing to fix" in outcome.stderr
    with pytest.raises(ConfigError, match="bf16: expected"):
        what_if("trace.json", ["GM001"], devices={UNKNOWN: {"bf16": "fast"}})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bf61 = 624", "unknown setting 'bf61'; did you mean 'bf16'?"),
        ("sparse = 624", "unknown setting 'sparse'; known: fp64, fp32, tf32, fp16, bf16, fp8, fp4, int8, hbm_gb_per_s"),
        ('bf16 = "fast"', "bf16: expected `float`, got `str`"),
        ("bf16 = true", "bf16: expected `float`, got `bool`"),
        ("bf16 = nan", "bf16: expected a finite number, got nan"),
        ("bf16 = 0", "bf16: expected `float` >= 0.001"),
        ("hbm-gb-per-s = -3", "hbm-gb-per-s: expected `float` >= 0.001"),
    ],
)
@pytest.mark.parametrize("command", [["analyze"], ["compare", "trace.json"], ["whatif", "--fix", "GM001"]])
def test_a_wrong_setting_is_one_line_that_names_file_and_table(text: str, message: str, command: list[str]) -> None:
    path = settings(TABLE + text).resolve()
    outcome = CliRunner().invoke(cli, [*command, "trace.json"], prog_name="traceopt")
    assert (outcome.exit_code, outcome.stdout, outcome.stderr.count("\n")) == (2, "", 1), outcome.output
    assert f'{path}: tool.traceopt.devices."NVIDIA Prototype 7": {message}' in outcome.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("devices = 3", "devices: expected `object`, got `int`"),
        ("[devices]\nA100 = 312", 'devices."A100": expected a table of peak rates such as bf16 = 989, got int'),
        ('[devices." "]\nbf16 = 1', "devices: a device without a name"),
    ],
)
def test_a_device_is_a_table_with_a_name(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(settings(text, "traceopt.toml"))
    assert message in str(caught.value)


def test_python_takes_devices_too() -> None:
    found = analyze("trace.json", devices={UNKNOWN: {"bf16": 624}}).efficiency
    assert (found.peak_tflops, found.peak_source) == (624, "your settings")
    with pytest.raises(ConfigError, match=r"^devices\.\"NVIDIA Prototype 7\": unknown setting 'bf61'"):
        analyze("trace.json", devices={UNKNOWN: {"bf61": 624}})
    with pytest.raises(ConfigError, match="bf16: expected `float`, got `null`"):
        analyze("trace.json", devices={UNKNOWN: {"bf16": None}})


def test_a_cached_answer_has_the_peaks_that_are_set() -> None:
    assert analyzed("trace.json", "--cache", "kept").efficiency.mfu is None
    settings(PEAKS)
    assert analyzed("trace.json", "--cache", "kept").efficiency.peak_tflops == 624
    settings(PEAKS.replace("624", "500"))
    assert analyzed("trace.json", "--cache", "kept").efficiency.peak_tflops == 500
    assert len(list(Path("kept").iterdir())) == 3
