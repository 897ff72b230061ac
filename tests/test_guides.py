"""Every command of the tutorial and of the guides that reads traces runs, in a folder like a user's.

Commands that start a script are only parsed (test_readme.py); the tests of capture and trying run such commands.
"""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.documentation import block_commands

from fixtures.memory_snapshots import training
from traceopt.cli import cli

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "docs" / "tutorial.md", *sorted((ROOT / "docs" / "guides").glob("*.md"))]
RUNS = {  # the folders in `logs` that the pages name, by the trace in them
    "healthy": ("main", "main-1", "main-2", "eager"),
    "five_faults": ("branch", "branch-1", "branch-2", "compiled"),
}


def commands(page: Path) -> list[list[str]]:
    """The arguments of each traceopt command that reads traces, in the order of the page."""
    found = [shlex.split(line, comments=True) for line in block_commands(page)]
    return [words[1:] for words in found if words[0] == "traceopt" and words[1] not in {"run", "try"}]


@pytest.fixture
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for trace, names in RUNS.items():
        for name in names:
            (tmp_path / "logs" / name).mkdir(parents=True)
            shutil.copy(ROOT / "fixtures" / "traces" / f"{trace}.json.gz", tmp_path / "logs" / name)
    training().write(tmp_path / "snapshot.pickle")
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("_folder")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_run(page: Path) -> None:
    found = commands(page)
    assert found
    for arguments in found:
        outcome = CliRunner().invoke(cli, arguments)
        codes = {0, 1} if "--fail-on" in arguments else {0}  # a gate may fail: that is what it is for
        assert outcome.exit_code in codes, f"{shlex.join(arguments)}\n{outcome.output}"
        assert outcome.output
