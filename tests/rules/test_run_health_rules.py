"""RH001 and RH002: planted in the samples of a GPU, and the same samples without the fault."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from traceopt.analyzer.companions.companions import Companions
from traceopt.analyzer.companions.gpu_samples import samples
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.reading.sources import TraceSource
from traceopt.api import analyze
from traceopt.errors import InputError
from traceopt.reports.html.page import render_html
from traceopt.reports.words.companions.lines import companion_lines
from traceopt.rules.catalogue.rh001_capped_clocks import CappedClocks
from traceopt.rules.catalogue.rh002_shared_gpu import SharedGpu
from traceopt.testing import A100, Machine, answer


def source(folder: Path, *lines: str) -> TraceSource:
    file = folder / "host.gpu_samples.jsonl"
    file.write_text("".join(f"{line}\n" for line in lines))
    return TraceSource(str(file), None, file.name)


def facts_with(folder: Path, **gpu: Any) -> Facts:
    """A run of a minute on one GPU."""
    head = {
        "traceopt_gpu_samples": 1,
        "host": "host",
        "gpus": [{"index": 0, "name": "H100", "max_sm_mhz": 2000, "power_limit_w": 700}],
    }
    one = {"index": 0, "sm_mhz": 1900, "reasons": 0, "celsius": 60, "use_percent": 95, "processes": [[7, 1, True]]}
    lines = [json.dumps({"s": second, "gpus": [one | gpu]}) for second in range(60)]
    known = samples.read([source(folder, json.dumps(head), *lines)], [])
    machine = Machine(A100)
    with machine.step():
        machine.launch(100)
        machine.synchronize()
    facts = machine.facts()
    return Facts(facts.trace, companions=replace(Companions(), gpu_samples=known))


def test_lowered_clocks(tmp_path: Path) -> None:
    check, findings = answer(CappedClocks, facts_with(tmp_path, sm_mhz=1000, reasons=0x40))
    assert check.status == "found"
    assert "runs at 50" in findings[0].why
    assert "temperature (hardware)" in findings[0].why


def test_a_low_power_limit_is_evidence(tmp_path: Path) -> None:
    _, (finding,) = answer(CappedClocks, facts_with(tmp_path, sm_mhz=1000, reasons=0x04, power_w=698.0))
    assert "Reason in 100% of the busy samples: power limit." in finding.why
    assert finding.evidence[-1].detail == "698 W, limit 700 W"
    _, (unknown,) = answer(CappedClocks, facts_with(tmp_path, sm_mhz=1000, reasons=0x04))
    assert [row.what for row in unknown.evidence] == ["power limit", "Highest temperature"]


def test_a_gpu_of_amd_gets_the_command_of_amd(tmp_path: Path) -> None:
    facts = facts_with(tmp_path, sm_mhz=1000, reasons=0x04)
    assert "nvidia-smi" in answer(CappedClocks, facts)[1][0].fix.text
    file = tmp_path / "host.gpu_samples.jsonl"
    file.write_text(file.read_text().replace('"host":', '"source": "amdsmi", "host":', 1))
    known = samples.read([TraceSource(str(file), None, file.name)], [])
    amd = Facts(facts.trace, companions=replace(Companions(), gpu_samples=known))
    assert "amd-smi" in answer(CappedClocks, amd)[1][0].fix.text


@pytest.mark.parametrize(
    "healthy",
    [
        {},
        {"sm_mhz": 1800, "reasons": 0x04},  # a full GPU at its power limit
        {"sm_mhz": 300, "reasons": 0x01, "use_percent": 0},  # an idle GPU
        {"sm_mhz": None, "reasons": None},
    ],
)
def test_clocks_that_are_as_they_should_be(tmp_path: Path, healthy: dict[str, Any]) -> None:
    assert answer(CappedClocks, facts_with(tmp_path, **healthy))[0].status == "passed"


def test_samples_alone_are_a_report(tmp_path: Path) -> None:
    facts_with(tmp_path, power_w=612, reasons=0)
    result = analyze(str(tmp_path))
    assert result.gpu_samples is not None
    said = "GPU 0 (H100), busy in 60 of 60 samples: 1,900 of 2,000 MHz, 612 of 700 W, at most 60 °C."
    assert companion_lines(result) == [said]
    assert said in render_html(result)


def test_another_process(tmp_path: Path) -> None:
    check, findings = answer(SharedGpu, facts_with(tmp_path, processes=[[7, 1, True], [99, 2**30, False]]))
    assert check.status == "found"
    assert findings[0].evidence[0].what == "Process 99"


def test_no_other_process(tmp_path: Path) -> None:
    assert answer(SharedGpu, facts_with(tmp_path))[0].status == "passed"


def test_numbers_of_processes_outside_a_container_say_nothing(tmp_path: Path) -> None:
    check, _ = answer(SharedGpu, facts_with(tmp_path, processes=[[70, 1, False], [99, 2**30, False]]))
    assert check.status == "not_applicable"


@pytest.mark.parametrize("first", ['{"traceopt_gpu_samples": 9}', "[", "[" * 9999, ""])
def test_a_damaged_file_is_one_clear_line(tmp_path: Path, first: str) -> None:
    with pytest.raises(InputError, match="can read"):
        samples.read([source(tmp_path, first, "{}")], [])


def test_odd_samples_are_left_out(tmp_path: Path) -> None:
    warnings: list[str] = []
    odd = [
        "{",
        '{"s": NaN}',
        '{"s": 1, "gpus": [3, {"index": -1}, {"index": 0, "processes": [[1], "x"], "sm_mhz": "9"}]}',
    ]
    known = samples.read([source(tmp_path, '{"traceopt_gpu_samples": 1}', *odd)], warnings)
    assert len(known.gpus) == 1
    assert known.gpus[0].samples[0].sm_mhz is None
    assert warnings == ["host.gpu_samples.jsonl: 2 samples cannot be read"]


HOSTILE_SAMPLES: dict[str, list[str]] = {
    "deep": ['{"s": 1, "gpus": ' + "[" * 50_000],
    "huge numbers": ['{"s": 1e400, "gpus": [{"index": 0}]}', '{"s": 1, "gpus": [{"index": 1e30, "sm_mhz": -5}]}'],
    "many gpus": ['{"s": 1, "gpus": [' + ", ".join(f'{{"index": {i}}}' for i in range(5_000)) + "]}"],
    "many processes": ['{"s": 1, "gpus": [{"index": 0, "processes": [' + ", ".join(["[1, 2, false]"] * 5_000) + "]}]}"],
    "wrong types": ['{"s": true, "gpus": {"index": 0}}', '[{"s": 1}]', '"s"', "null", '{"s": "1", "gpus": "x"}'],
    "no text": ["\\u0000", "\x1b[31m<script>"],
    "a long line": ['{"s": 1, "x": "' + "y" * samples.MOST_LINE + '", "gpus": [{"index": 0}]}'],
}


@pytest.mark.parametrize("trick", sorted(HOSTILE_SAMPLES))
def test_hostile_samples_are_left_out(trick: str, tmp_path: Path) -> None:
    head = (
        '{"traceopt_gpu_samples": 1, "gpus": [{"index": 0, "name": 3}, [], {"index": 0, "name": "'
        + "n" * 5_000
        + '"}]}'
    )
    known = samples.read([source(tmp_path, head, *HOSTILE_SAMPLES[trick])], [])
    assert len(known.gpus) <= samples.MOST_GPUS
    assert all(len(one.others) <= samples.MOST_GPUS for gpu in known.gpus for one in gpu.samples)
    assert all(len(gpu.name) <= 1_000 for gpu in known.gpus)


def test_samples_with_random_damage_end_in_samples_or_one_line(tmp_path: Path) -> None:
    row = (
        '{"s": 1.5, "gpus": [{"index": 0, "sm_mhz": 1200, "reasons": 4, "power_w": 7e2, "processes": [[7, 8, true]]}]}'
    )
    text = "\n".join(
        ['{"traceopt_gpu_samples": 1, "host": "h", "gpus": [{"index": 0, "name": "x"}]}', *[row] * 20]
    ).encode()
    random = np.random.default_rng(17)
    path = tmp_path / "host.gpu_samples.jsonl"
    for _ in range(300):
        damaged = bytearray(text)
        for at in random.integers(0, len(text), 5).tolist():
            damaged[at] = int(random.integers(256))
        path.write_bytes(damaged)
        with suppress(InputError):
            samples.read([TraceSource(str(path), None, path.name)], [])


def test_a_file_of_samples_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "MOST_BYTES", 100)
    with pytest.raises(InputError, match="too large for samples of a GPU"):
        samples.read([source(tmp_path, '{"traceopt_gpu_samples": 1}', *['{"s": 1}'] * 50)], [])
