"""Runs `traceopt compare --against`."""

from __future__ import annotations

from collections.abc import Sequence

from traceopt.capture.settings import Settings
from traceopt.comparison.gates import Gate
from traceopt.output import StderrProgress
from traceopt.result.comparison import Comparison
from traceopt.try_script.one_plan import Analyze, Outcome, run_in_copies
from traceopt.try_script.two_sides import WORKING_TREE, Timing, TwoSides, of_commit
from traceopt.trying.workspace import Command, Workspace


def compare_with(
    command: Command,
    revision: str,
    settings: Settings,
    timing: Timing,
    gates: Sequence[Gate],
    analyze: Analyze,
    *,
    quiet: bool,
) -> tuple[Comparison | None, int]:
    """BASE is the commit, HEAD the source as it is now; and the exit code of a signal that ended it, or 0.

    A signal leaves the comparison of the pairs of runs so far; None if they are too few. Raises TraceoptError.
    """
    base, started = of_commit(revision), list[TwoSides]()

    def work(_: Outcome, workspace: Workspace, progress: StderrProgress) -> None:
        started.append(TwoSides(workspace, settings, timing, progress, quiet=quiet))
        started[0].compare(base, WORKING_TREE, analyze, gates)

    outcome = run_in_copies(command, settings.folder, work, quiet=quiet)
    return (started[0].compared if started else None), outcome.signal_exit_code
