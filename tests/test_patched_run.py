"""From a run to a patch of its script: `traceopt run` makes one, git applies it, and the patched script runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from traceopt.run_script import source_folders

WORKLOADS = Path(__file__).resolve().parents[1] / "fixtures" / "workloads"
SCRIPT = "train/slow_loader.py"


@dataclass(frozen=True)
class Recorded:
    """A folder in which a script was recorded, and what traceopt printed."""

    folder: Path
    output: str


def execute(*words: str, folder: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TRACEOPT")} | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def traceopt(*arguments: str, folder: Path) -> str:
    return execute(sys.executable, "-m", "traceopt", *arguments, folder=folder)


of_two_cores = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="on one core workers do not help, so there is no patch"
)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The script lies below the current folder, as in a repository."""
    folder = tmp_path_factory.mktemp("repository")
    shutil.copytree(WORKLOADS, folder / "train", ignore=shutil.ignore_patterns("__pycache__"))
    options = ("--preset", "quick", "--stop-after", "--logdir", "logs", "--patch", "all.patch")
    return Recorded(folder, traceopt("run", *options, SCRIPT, "--device", "cpu", folder=folder))


@of_two_cores
def test_the_patch_applies_and_the_script_still_runs(recorded: Recorded, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    shutil.copytree(recorded.folder, repository)
    before = (repository / SCRIPT).read_text()
    execute("git", "apply", "--check", "all.patch", folder=repository)
    execute("git", "apply", "all.patch", folder=repository)
    after = (repository / SCRIPT).read_text()
    [loader] = [line for line in set(before.splitlines()) - set(after.splitlines()) if "num_workers=0" in line]
    changed = loader.strip().replace("num_workers=0)", "num_workers=")
    assert [
        line for line in after.splitlines() if line.strip().startswith(changed) and "persistent_workers=True" in line
    ]
    assert "step" in execute(sys.executable, SCRIPT, "--device", "cpu", "--steps", "3", folder=repository)


@of_two_cores
def test_the_reports_have_it(recorded: Recorded) -> None:
    assert "With a patch: 1" in recorded.output
    assert "Copy patch" in (recorded.folder / "traceopt-report.html").read_text()


@of_two_cores
def test_later_from_the_traces(recorded: Recorded) -> None:
    """As another machine would, with the script's folder at hand; paths then count from there."""
    options = ("--no-html", "--json", "-", "--source", "train")
    found = json.loads(traceopt("analyze", "logs", *options, folder=recorded.folder))["findings"]
    [patch] = [one["fix"]["patch"] for one in found if one["code"] == "DL001"]
    assert patch.startswith("--- a/slow_loader.py\n")
    everywhere = [
        one["fix"]["patch"]
        for one in json.loads(
            traceopt("analyze", "logs", "--no-html", "--json", "-", "--source", "logs", folder=recorded.folder)
        )["findings"]
    ]
    assert everywhere == [None] * len(everywhere)


@pytest.mark.parametrize(
    ("command", "folders"),
    [
        (("train.py", "--data", "x.py"), [Path(), Path()]),
        (("torchrun", "--nproc-per-node", "8", "../job/train.py"), [Path("../job"), Path()]),
        (("package.train",), [Path()]),
    ],
)
def test_where_the_source_of_a_run_is(command: tuple[str, ...], folders: list[Path]) -> None:
    assert source_folders(command) == folders
