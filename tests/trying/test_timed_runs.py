"""Timed runs of a real script: steps, losses, seeds, switches, and modules that come from the copy."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from projects import Project

from traceopt.rules.fixes.patches.unified import unified_diff
from traceopt.trying.changes import Change
from traceopt.trying.losses import compare_losses
from traceopt.trying.measured_run import MeasuredRun
from traceopt.trying.running.interruption import Interruption
from traceopt.trying.timed_runs import Limits, TimedRuns
from traceopt.trying.workspace import Command, Workspace

pytestmark = pytest.mark.torch

STEPS, SETTLE = 20, 5
WIDTH = "WIDTH = 8\n"
SWITCHED = Change(
    "switches",
    "fix",
    "Change settings",
    "runtime",
    switches={
        "loader_workers": 1,
        "persistent_workers": True,
        "fused_optimizer": True,
        "flush_denormal": True,
        "gc_freeze": True,
        "rare_saves": True,
        "reduce_once": True,
    },
)
WIDER = Change("wider", "patch", "wider", "patch", diff=unified_diff("lib/library.py", WIDTH, "WIDTH = 9\n"))


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    folder = tmp_path_factory.mktemp("torch") / "project"
    (folder / "lib").mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("torch_script.py"), folder / "train.py")
    (folder / "lib" / "library.py").write_text(WIDTH)
    (folder / "old.json").write_text("{}")
    Project(folder).git("init", "--quiet")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", str(folder / "lib"), prepend=os.pathsep)
        with Workspace(Command(("train.py",), False, folder), folder / "traceopt-logs", Interruption()) as opened:
            yield opened


def measured(workspace: Workspace, *changes: Change) -> MeasuredRun:
    [run] = TimedRuns(workspace, Limits(SETTLE + STEPS, SETTLE, 120.0))([changes])
    assert isinstance(run, MeasuredRun), run
    return run


@pytest.fixture(scope="module")
def plain(workspace: Workspace) -> MeasuredRun:
    return measured(workspace)


def test_steps_losses_and_memory(plain: MeasuredRun) -> None:
    assert SETTLE < len(plain.steps_us) <= STEPS
    assert len(plain.losses) == SETTLE + STEPS
    assert plain.losses[-1] < plain.losses[0]
    assert plain.peak_device_bytes is None
    assert (plain.peak_host_bytes or 0) > 10_000_000
    assert not plain.seeded_by_script


def test_switches_and_the_same_losses_again(workspace: Workspace, plain: MeasuredRun) -> None:
    """A worker process and a fused optimizer train the same, as the seed is fixed."""
    switched = measured(workspace, SWITCHED)
    assert set(switched.switches_used) == set(SWITCHED.switches)
    found = compare_losses([plain.losses], [switched.losses])
    assert found.verdict in ("identical", "close")
    assert found.before == plain.losses


def test_a_patched_module_is_imported_from_the_copy(workspace: Workspace, plain: MeasuredRun) -> None:
    wider = measured(workspace, WIDER)
    assert compare_losses([plain.losses], [wider.losses]).from_step == 0
