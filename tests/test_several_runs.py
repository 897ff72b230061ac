"""`traceopt analyze` on a folder with traces of several runs: the newest, one by name, or each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from click.testing import Result as Outcome

from fixtures.generate import generate
from traceopt.cli import cli


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for place, (name, scenario) in enumerate((("old run", "healthy"), ("new", "slow_loader"))):
        trace = generate(scenario)
        trace.document["baseTimeNanoseconds"] = (1_770_000_000 + 3_600 * place) * 10**9
        (tmp_path / "logs" / name).mkdir(parents=True)
        trace.write(tmp_path / "logs" / name / "trace.json.gz")
    return tmp_path


def traceopt(*arguments: str) -> Outcome:
    return CliRunner().invoke(cli, arguments)


@pytest.mark.parametrize(("options", "name"), [((), "new"), (("--run", "old run"), "old run")])
def test_one_is_analyzed(options: tuple[str, ...], name: str, folder: Path) -> None:
    done = traceopt("analyze", "logs", "--no-html", "--json", "result.json", *options)
    assert done.exit_code == 0
    assert "2 different runs were found" in " ".join(done.stdout.split())
    (file,) = json.loads((folder / "result.json").read_text())["run"]["files"]
    assert Path(file["path"]).parent.name == name


def test_each_is_analyzed(folder: Path) -> None:
    done = traceopt("analyze", "logs", "--all", "--html", "report.html", "--json", "result.json")
    assert done.exit_code == 0
    assert done.stdout.index("== new\n") < done.stdout.index("== old run\n")
    written = {path.name for path in folder.iterdir() if path.is_file()}
    assert written == {"report-new.html", "report-old_run.html", "result-new.json", "result-old_run.json"}


@pytest.mark.parametrize("options", [("--run", "new"), ("--markdown", "c.md"), ("--fail-on", "high"), ("--json", "-")])
@pytest.mark.usefixtures("folder")
def test_each_goes_with_few_options(options: tuple[str, ...]) -> None:
    done = traceopt("analyze", "logs", "--all", *options)
    assert done.exit_code == 2
    assert "--all goes with" in done.stderr


@pytest.mark.usefixtures("folder")
def test_what_if_takes_the_newest() -> None:
    done = traceopt("whatif", "logs", "--fix", "DL001")
    assert done.exit_code == 0, done.output
    assert "This is the newest of them, new" in done.output
    assert "nothing to fix" in traceopt("whatif", "logs", "--run", "old run", "--fix", "DL001").output
