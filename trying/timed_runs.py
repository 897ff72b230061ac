"""Timed runs of several sides, which train in turns where they can."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType

from msgspec import Struct

from traceopt.capture.launch import launcher
from traceopt.capture.settings import Settings, TimedRun
from traceopt.errors import one_line
from traceopt.trying import diffs
from traceopt.trying.changes import Change
from traceopt.trying.measured_run import Failure, MeasuredRun
from traceopt.trying.running.processes import EndedError
from traceopt.trying.workspace import Started, Workspace

TURN_S = 0.25  # much longer than a cache needs to fill, shorter than what changes the speed of a machine


class Limits(Struct, frozen=True):
    """`steps` end a run, of which the first `settle` are not measured; `time_limit_s` kills it."""

    steps: int
    settle: int
    time_limit_s: float


class TimedRuns:
    """Runs the script with the changes of each side, once for each call.

    The runs train in turns, so that a machine whose speed changes favors none. Where they cannot (several ranks, a GPU,
    too little memory), each has the machine for itself. The same once one crashes beside another, but not alone: they
    may want the same port, file or memory.
    """

    def __init__(self, workspace: Workspace, limits: Limits) -> None:
        self._workspace = workspace
        self._limits = limits
        self._turns = True

    def __call__(self, sides: Sequence[Sequence[Change]], /) -> list[MeasuredRun | Failure | None]:
        """In the order of the sides. None: it was not measured, because another one failed. Raises SignalError."""
        if self._turns and len(sides) > 1:
            runs = self._run(sides)
            if len(runs) < 2 or not any(run.crashed for run in runs):
                return _results(runs, sides)
        alone: list[_Run] = []
        for side in sides:
            alone += self._run([side])
            if alone[-1].failed:
                break
        self._turns = self._turns and alone[-1].failed  # then it was not the other one
        return _results(alone, sides)

    def _run(self, sides: Sequence[Sequence[Change]]) -> list[_Run]:
        """Up to the first run that fails."""
        runs: list[_Run] = []
        turn_s = TURN_S if len(sides) > 1 else None
        with ExitStack() as stack:
            for number, changes in enumerate(sides):
                run = _Run(self._workspace, changes, self._limits, number, turn_s)
                runs.append(stack.enter_context(run))
                run.advance()
                while not run.over and number + 1 < len(sides) and not run.leaves_room:
                    run.advance()
                if run.failed:
                    return runs
            while not all(run.over for run in runs):
                for run in runs:
                    run.advance()
                    if run.failed:
                        return runs
        return runs


class _Run(AbstractContextManager["_Run"]):
    """One run of a side; its script is ended with the context, or when it has a result."""

    def __init__(
        self, workspace: Workspace, changes: Sequence[Change], limits: Limits, number: int, turn_s: float | None
    ) -> None:
        self._workspace = workspace
        self._changes = changes
        self._limits = limits
        self._number = number
        self._turn_s = turn_s
        self._started: Started | None = None
        self._close = ExitStack()
        self.result: MeasuredRun | Failure | None = None
        self.crashed = False

    @property
    def over(self) -> bool:
        return self.result is not None

    @property
    def failed(self) -> bool:
        return isinstance(self.result, Failure)

    @property
    def leaves_room(self) -> bool:
        return self._started is not None and self._started.script.leaves_room

    def __enter__(self) -> _Run:
        switches = {name: value for change in self._changes for name, value in change.switches.items()}
        timed = TimedRun(self._limits.steps, self._limits.settle, self._turn_s, switches)
        settings = Settings(self._workspace.logs, (), self._workspace.command.step_on, timed=timed)
        starting = self._workspace.started(self._changes, settings, self._limits.time_limit_s, self._number)
        try:
            self._started = self._close.enter_context(starting)
        except diffs.DiffError as error:
            self.result = Failure(f"the patch does not apply: {error}")
        except OSError as error:
            self.result = Failure(f"cannot make a copy: {error.strerror or error}")
        except launcher.CommandError as error:
            self.result = Failure(one_line(str(error)))
        return self

    def advance(self) -> None:
        """Until its turn is over, or it is."""
        if self.result is not None or self._started is None:
            return
        try:
            code = self._workspace.advance(self._started)
        except EndedError as ended:
            self.result = Failure(ended.why, self._workspace.last_lines(self._started))
        else:
            if code is None:
                return
            self.crashed = code != 0
            self.result = self._workspace.measured(self._started, code)
        self._close.close()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._close.close()


def _results(runs: Sequence[_Run], sides: Sequence[object]) -> list[MeasuredRun | Failure | None]:
    return [*(run.result for run in runs), *[None] * (len(sides) - len(runs))]
