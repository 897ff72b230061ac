"""The command line: what it prints, what it writes, and how it fails."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from support.command_line import RESULT, one_error, run

from traceopt import __version__
from traceopt.errors import InputError, OutputError
from traceopt.output import StderrProgress, write_atomically
from traceopt.result.document import Result
from traceopt.result.edits import SetArguments
from traceopt.result.finding import Finding, Fix, Location
from traceopt.result.sections.run import TraceFile
from traceopt.result.sections.work_rows import BreakdownPart
from traceopt.result.words.effort_and_risk import Effort, Risk
from traceopt.rules import registry
from traceopt.rules.rule import Rule


class Fakes:
    """Stands in for the analysis and the renderers; remembers what the command line asked of them."""

    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}
        self.result = RESULT
        self.before: Callable[[], None] = lambda: None

    def analyze(self, paths: tuple[str, ...], **options: Any) -> Result:
        self.asked = {"paths": paths, **options}
        options["progress"]("reading")
        self.before()
        return self.result

    def render_terminal(self, result: Result, *, width: int, color: bool, unicode: bool) -> str:
        self.asked |= {"width": width, "color": color, "unicode": unicode}
        return f"{result.verdict} 412 → 214 ms"

    def render_concise(self, result: Result) -> str:
        return f"concise: {result.verdict}"

    def render_html(self, result: Result, *, static: bool) -> str:
        return f"<!doctype html>{result.verdict} static={static}"


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fakes:
    fakes = Fakes()
    for module, names in {
        "traceopt.api": ["analyze"],
        "traceopt.reports.html.page": ["render_html"],
        "traceopt.reports.text.terminal": ["render_terminal", "render_concise"],
    }.items():
        stand_in = types.ModuleType(module)
        for name in names:
            setattr(stand_in, name, getattr(fakes, name))
        monkeypatch.setitem(sys.modules, module, stand_in)
    monkeypatch.chdir(tmp_path)
    return fakes


def test_summary_and_report(fakes: Fakes) -> None:
    outcome = run("analyze", "logs")
    assert outcome.exit_code == 0
    assert outcome.stdout == "The GPU is idle. 412 → 214 ms\nReport: traceopt-report.html\n"
    assert outcome.stderr == ""  # progress only on a terminal
    assert Path("traceopt-report.html").read_text() == "<!doctype html>The GPU is idle. static=False"
    assert fakes.asked["paths"] == ("logs",)
    assert not fakes.asked["debug"]
    assert not fakes.asked["color"]


@pytest.mark.usefixtures("fakes")
def test_no_html() -> None:
    assert run("analyze", "logs", "--no-html").stdout == "The GPU is idle. 412 → 214 ms\n"
    assert not list(Path().iterdir())
    assert "use either --html or --no-html" in one_error(run("analyze", "x", "--no-html", "--html", "y"))


@pytest.mark.usefixtures("fakes")
def test_html_path_and_static() -> None:
    outcome = run("analyze", "logs", "--html", "out.html", "--static")
    assert outcome.stdout.endswith("\nReport: out.html\n")
    assert "static=True" in Path("out.html").read_text()


@pytest.mark.usefixtures("fakes")
def test_formats() -> None:
    concise = run("analyze", "logs", "--format", "concise")
    assert concise.stdout == "concise: The GPU is idle.\n"
    assert concise.stderr == "Report: traceopt-report.html\n"
    for arguments in (["--format", "json"], ["--json", "-"], ["--json", "-", "--format", "text"]):
        outcome = run("analyze", "logs", *arguments)
        assert Result.from_json(outcome.stdout_bytes) == RESULT
    assert run("analyze", "logs", "--format", "json", "--quiet").stderr == ""
    assert run("analyze", "logs", "--json", "r.json", "--no-html").exit_code == 0
    assert Result.from_json(Path("r.json").read_bytes()) == RESULT


def test_tables_are_written_as_csv(fakes: Fakes) -> None:
    part = BreakdownPart("compute", "=cmd()", True, 1_000.5, 0.25, None)
    fakes.result = replace(RESULT, breakdown=[part])
    assert run("analyze", "logs", "--no-html", "--csv", "tables").exit_code == 0
    assert [path.name for path in Path("tables").iterdir()] == ["breakdown.csv"]  # no other table has rows
    assert Path("tables/breakdown.csv").read_text().splitlines() == [
        "name,label,busy,us_per_step,share,raw_us_per_step",
        "compute,'=cmd(),True,1000.5,0.25,",
    ]


def test_options_reach_the_analysis_and_win_over_the_settings(fakes: Fakes) -> None:
    Path("traceopt.toml").write_text(
        'select = ["HS"]\nignore = ["HS001"]\nrules-dir = "mine"\nhtml = false\nrules.DL001.min_share = 0.1\n'
    )
    run("analyze", "a", "b")
    assert fakes.asked["select"] == ("HS",)
    assert fakes.asked["ignore"] == ("HS001",)
    assert fakes.asked["rules_dir"] == str(Path("mine").absolute())
    assert fakes.asked["thresholds"] == {"DL001": {"min_share": 0.1}}
    assert not Path("traceopt-report.html").exists()
    run("analyze", "a", "--select", "DL,TC001", "--select", "MM", "--ignore", " DL002 ,", "--rules-dir", "r", "--debug")
    assert fakes.asked["select"] == ("DL", "TC001", "MM")
    assert fakes.asked["ignore"] == ("DL002",)
    assert fakes.asked["rules_dir"] == "r"
    assert fakes.asked["debug"]
    Path("other.toml").write_text('select = ["LB"]\nhtml = "x.html"\n')
    assert run("analyze", "a", "--config", "other.toml").stdout.endswith("x.html\n")
    assert fakes.asked["select"] == ("LB",)


def test_a_patch_of_all_fixes(fakes: Fakes) -> None:
    Path("src").mkdir()
    Path("src/train.py").write_text("optimizer.zero_grad(set_to_none=False)\n")
    analyze = ("analyze", "logs", "--no-html", "--source", "src", "--patch", "all.patch")
    outcome = run(*analyze)
    assert outcome.exit_code == 0
    assert fakes.asked["source"] == (Path("src"),)
    assert outcome.stderr == "traceopt: no fix has a patch, so all.patch was not written\n"
    assert not Path("all.patch").exists()
    places = [Location("train.py", 1)]
    fix = Fix("Drop the gradients.", edits=[SetArguments("optimizer.zero_grad", {"set_to_none": "True"})])
    found = Finding("OP003", "", "", "low", "high", Effort.ONE_LINE, Risk.NONE, None, "", [], places, fix)
    fakes.result = replace(RESULT, findings=[found])
    assert run(*analyze).stderr == "traceopt: all.patch changes OP003\n"
    assert Path("all.patch").read_text().endswith("+optimizer.zero_grad(set_to_none=True)\n")
    assert run(*analyze, "--quiet").stderr == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--patch", "all.patch"], "--patch needs the source: add --source DIR"),
        (["--source", ".", "--patch", "train.py"], "train.py is a Python file; give the name of a patch file"),
        (["--source", ".", "--patch", "gone/all.patch"], "the folder gone does not exist"),
    ],
)
@pytest.mark.usefixtures("fakes")
def test_mistakes_with_patches_are_one_line(options: list[str], message: str) -> None:
    assert message in one_error(run("analyze", "logs", *options))


@pytest.mark.usefixtures("fakes")
def test_mistakes_in_settings_are_one_line() -> None:
    Path("pyproject.toml").write_text("[tool.traceopt]\nselct = []\n")
    assert one_error(run("analyze", "a")).endswith("unknown setting 'selct'; did you mean 'select'?")
    assert "cannot read the settings file gone.toml" in one_error(run("analyze", "a", "--config", "gone.toml"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["analyze"], "traceopt: error: Missing argument 'PATH...'; see 'traceopt analyze --help'"),
        (["analyze", "--format", "xml", "x"], "traceopt: error: Invalid value for '--format'"),
        (["analyse"], "traceopt: error: No such command 'analyse'"),
        (["--nope"], "traceopt: error: No such option"),
        (["rule", "ZZ999"], "traceopt: error: no rule 'ZZ999' ('traceopt rules' lists all)"),
    ],
)
def test_bad_usage_is_one_line(arguments: list[str], message: str) -> None:
    assert one_error(run(*arguments)).startswith(message)


def raiser(error: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def test_errors_of_the_user_are_one_line_without_control_characters(fakes: Fakes) -> None:
    fakes.before = raiser(InputError("cannot read \x1b[31mred\nline \udcff.json"))
    assert one_error(run("analyze", "x")) == r"traceopt: error: cannot read \x1b[31mred\nline \udcff.json"


def test_an_unexpected_exception_is_one_line_and_a_traceback_only_with_debug(fakes: Fakes) -> None:
    fakes.before = raiser(ZeroDivisionError("of \x1b\nsteps"))
    assert one_error(run("analyze", "x")) == (
        r"traceopt: internal error: ZeroDivisionError: of \x1b steps (run with --debug for the traceback)"
    )
    outcome = run("analyze", "x", "--debug")
    assert outcome.exit_code == 2
    assert "Traceback (most recent call last)" in outcome.stderr
    assert outcome.stderr.endswith("traceopt: internal error: ZeroDivisionError: of \\x1b steps\n")


def test_where_ranks_are_read(fakes: Fakes) -> None:
    """The command line wins over the settings; without either the program chooses."""
    run("analyze", "x")
    assert [fakes.asked[name] for name in ("jobs", "scheduler", "cache")] == [None, None, None]
    Path("traceopt.toml").write_text('jobs = 3\ncache = "kept"\nscheduler = "tcp://a:1"\n')
    run("analyze", "x")
    assert fakes.asked["jobs"] == 3
    assert fakes.asked["scheduler"] == "tcp://a:1"
    assert Path(fakes.asked["cache"]).absolute() == Path("kept").absolute()
    run("analyze", "x", "--jobs", "8", "--scheduler", "tcp://b:2", "--cache", "other")
    assert [fakes.asked[name] for name in ("jobs", "scheduler", "cache")] == [8, "tcp://b:2", "other"]
    assert "0 is not in the range" in one_error(run("analyze", "x", "--jobs", "0"))
    Path("traceopt.toml").write_text("jobs = 0\n")
    assert "jobs: expected `int` >= 1" in one_error(run("analyze", "x"))


def test_ctrl_c(fakes: Fakes) -> None:
    fakes.before = raiser(KeyboardInterrupt())
    outcome = run("analyze", "x")
    assert outcome.exit_code == 130
    assert outcome.stderr.strip() == "traceopt: interrupted"


def test_a_path_that_cannot_be_written_is_told_before_the_analysis(fakes: Fakes) -> None:
    Path("folder").mkdir()
    assert "the folder gone does not exist" in one_error(run("analyze", "x", "--html", "gone/r.html"))
    assert "folder: it is a folder" in one_error(run("analyze", "x", "--json", "folder"))
    assert fakes.asked == {}


def test_a_trace_is_never_overwritten(fakes: Fakes) -> None:
    Path("logs").mkdir()
    trace = Path("logs/rank0.json")
    trace.write_text("{}")
    fakes.result = replace(RESULT, run=replace(RESULT.run, files=[TraceFile("logs/rank0.json", 0, 2, 0, 0, 0)]))
    assert "it would overwrite an input" in one_error(run("analyze", "logs", "--html", "logs/rank0.json"))
    assert "it would overwrite an input" in one_error(run("analyze", str(trace), "--no-html", "--json", str(trace)))
    assert trace.read_text() == "{}"


def test_writing_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    path.chmod(0o640)
    (tmp_path / "link.html").symlink_to(path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        with pytest.raises(OutputError, match=r"cannot write .*report\.html: No space left on device"):
            write_atomically(path, b"new")
    assert path.read_text() == "old"
    write_atomically(tmp_path / "link.html", b"new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o640
    assert {entry.name for entry in tmp_path.iterdir()} == {"report.html", "link.html"}
    assert (tmp_path / "link.html").is_symlink()


def test_devices_are_written_to_and_not_replaced() -> None:
    write_atomically(Path("/dev/null"), b"x")
    assert Path("/dev/null").is_char_device()


def test_progress_is_one_line_that_goes_away(capsys: pytest.CaptureFixture[str]) -> None:
    with StderrProgress(enabled=True) as progress:
        progress("reading rank0\n.json")
        progress("x" * 200)
    written = capsys.readouterr().err
    assert "\n" not in written
    assert written.endswith("\r\x1b[2K")
    assert all(len(line) < 90 for line in written.split("\r"))
    with StderrProgress(enabled=False) as progress:
        progress("reading")
    assert capsys.readouterr().err == ""


def test_color(fakes: Fakes, monkeypatch: pytest.MonkeyPatch) -> None:
    run("analyze", "x", "--color")
    assert fakes.asked["color"]
    monkeypatch.setenv("NO_COLOR", "1")
    run("analyze", "x", "--color")
    assert fakes.asked["color"]


PROGRAM = """
import sys, types
from traceopt.cli import main
api = types.ModuleType("traceopt.api")
api.analyze = lambda *a, **k: types.SimpleNamespace(
    run=types.SimpleNamespace(files=[]), to_json=lambda: b"x" * 10_000_000)
terminal = types.ModuleType("traceopt.reports.text.terminal")
terminal.render_terminal = lambda result, width, color, unicode: f"{unicode} \\u2192 \\udcff"
terminal.render_concise = None
sys.modules |= {"traceopt.api": api, "traceopt.reports.text.terminal": terminal}
sys.argv = ["traceopt", "analyze", "--no-html", "x", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_long_result_arrives_whole(unbuffered: str) -> None:
    command = [sys.executable, "-c", PROGRAM, "--format", "json"]
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    assert len(subprocess.run(command, env=environment, capture_output=True, check=True).stdout) == 10_000_000


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_goes_away_ends_it_in_silence(unbuffered: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "--format", "json"],
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    assert process.wait() == 141
    assert process.stderr.read() == b""
    process.stderr.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_behind_stdout_is_one_line() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([sys.executable, "-c", PROGRAM], stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 2
    assert done.stderr == b"traceopt: error: cannot write to standard output: No space left on device\n"


@pytest.mark.parametrize(
    ("encoding", "expected"), [("ascii", rb"False \u2192 \udcff"), ("utf-8", "True → ".encode() + rb"\udcff")]
)
def test_any_terminal_encoding_will_do(encoding: str, expected: bytes) -> None:
    environment = os.environ | {"PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, check=True)
    assert done.stdout == expected + b"\n"


def sample_rule() -> type[Rule]:
    class Stall(Rule):
        """Measures the wait."""

        code = "DL001"
        name = "dataloader-stall"
        title = "Load data in worker processes"
        family = "input pipeline"

    return Stall


def test_the_catalogue_and_a_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(registry, "builtin_rules", lambda: iter([sample_rule()]))
    (tmp_path / "broken.py").write_text("1/0")
    outcome = run("rules", "--rules-dir", str(tmp_path))
    assert outcome.stdout.splitlines() == ["input pipeline", "  DL001  dataloader-stall  Load data in worker processes"]
    assert re.fullmatch(r"traceopt: warning: rule file .*broken\.py: left out: ZeroDivisionError: .*\n", outcome.stderr)
    (entry,) = json.loads(run("rules", "--format", "json").stdout)
    assert entry["code"] == "DL001"
    assert entry["thresholds"] == []
    for code in ("DL001", "dl001", "dataloader-stall"):
        assert "Measures the wait." in run("rule", code).stdout
    assert "did you mean 'DL001'" in one_error(run("rule", "DL002"))


def test_version() -> None:
    assert run("--version").stdout == f"traceopt {__version__}\n"


@pytest.mark.parametrize("code", ["DL001", "EF018"])
def test_the_page_of_a_rule_is_rendered(code: str) -> None:
    page = run("rule", code).stdout
    text = [line for line in page.splitlines() if not line.startswith("    ")]
    assert max(map(len, text)) <= 80
    assert not re.search(r"[`|]|\*\*|^#", "\n".join(text), re.MULTILINE)
    assert re.search(r"^  min_share +0\.03  smallest", page, re.MULTILINE)


def test_analysis_without_a_report_imports_nothing_heavy(tmp_path: Path) -> None:
    trace = Path(__file__).resolve().parents[1] / "fixtures" / "traces" / "healthy.json.gz"
    command = [sys.executable, "-X", "importtime", "-m", "traceopt", "analyze", str(trace), "--no-html"]
    done = subprocess.run([*command, "--json", tmp_path / "r.json"], capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert {"numpy", "msgspec"} <= imported
    assert not imported & {"pandas", "plotly", "torch", "jinja2"}
