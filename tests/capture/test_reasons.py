"""If nothing could be recorded, the user sees why, and the run is the same as without traceopt."""

from __future__ import annotations

import sys

import pytest
from runs import SCRIPTS, Run

NOTHING = "traceopt: nothing was recorded: "


@pytest.mark.run("no_torch.py", options=("--analyze",))
def test_torch_was_never_imported(run: Run) -> None:
    assert (run.code, run.stdout) == (0, "nothing to see\n")
    assert run.stderr == f"{NOTHING}the command never imported torch\n"
    assert not run.folder.exists()


ISOLATED = [
    (("-I", "no_steps.py"), "2.0\n"),
    (("-E", "no_torch.py"), "nothing to see\n"),
    (("-S", "no_torch.py"), "nothing to see\n"),
]


@pytest.mark.parametrize(
    "stdout",
    [
        pytest.param(stdout, id=flag, marks=pytest.mark.run(sys.executable, flag, str(SCRIPTS / script)))
        for (flag, script), stdout in ISOLATED
    ],
)
def test_an_isolated_interpreter(run: Run, stdout: str) -> None:
    assert (run.code, run.stdout) == (0, stdout)
    assert (
        f"{NOTHING}traceopt could not load into the command's Python: Python was started with -I, -E or -S"
        in run.stderr
    )


@pytest.mark.run("no_steps.py")
def test_no_step_was_seen(run: Run) -> None:
    assert f"{NOTHING}no training step was recognized (seen: no DataLoader, backward or optimizer)" in run.stderr
    assert "--step-on batch, update, backward, forward or module:function" in run.stderr


@pytest.mark.run("endings.py", "exit", "20", options=("--step-on", "__main__:no_such_function"))
def test_the_function_that_ends_a_step_was_never_called(run: Run) -> None:
    assert run.code == 3
    assert f"{NOTHING}--step-on __main__:no_such_function: no step ended" in run.stderr


@pytest.mark.run("without_open.py")
def test_a_script_that_replaces_what_the_agent_calls(run: Run) -> None:
    assert (run.code, run.stdout) == (0, "trained\n")
    assert run.stderr == f"{NOTHING}step 0: RuntimeError: not now\n"


@pytest.mark.run("own_profiler.py", "always")
def test_the_scripts_own_profiler_was_at_work_all_the_time(run: Run) -> None:
    assert (run.code, run.stdout) == (0, "found [60]\n")
    assert f"{NOTHING}the script runs torch.profiler itself" in run.stderr
    assert "it wrote theirs.json, which traceopt analyze can read" in run.stderr


@pytest.mark.run("own_profiler.py", "scheduled")
def test_a_scheduled_profiler_of_the_script_goes_first(run: Run) -> None:
    """Its step ranges stay out of our trace: Trace.steps fails if a step has two."""
    assert (run.code, run.stdout) == (0, "found [3, 3]\n")
    assert list(run.cycle("timing").steps) == [30, 31, 32, 33, 34]


@pytest.mark.run("own_profiler.py", "inside")
def test_a_profiler_of_the_script_in_the_middle_of_ours(run: Run) -> None:
    """Each of theirs sees one step, also with the old profiler; ours starts again after the second."""
    assert (run.code, run.stdout) == (0, "found [1, 1, 1]\n")
    assert len(run.cycle("timing").steps) == 5
    assert "the script also runs torch.profiler itself; traceopt recorded at other times" in run.stderr
    assert run.stderr.count("Completed Stage: Collection") == 3, "Kineto's lines are those of the script's profilers"
