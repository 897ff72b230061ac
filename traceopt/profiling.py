"""Records from inside a script: `with traceopt.profile("logs") as p:`, and `p.step()` at the end of every step."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from traceopt.capture.recording.recorder import Recorder
from traceopt.capture.script.endings import watch_forks
from traceopt.capture.settings import TIME_LIMIT_S, Settings, first_recorded_step, plan_cycles


class profile:  # noqa: N801 - spelled like torch.profiler.profile
    """Records the steps of a training loop as `traceopt run` does, and writes the traces to `logdir`.

        with traceopt.profile("logs") as p:
            for batch in loader:
                train_step(batch)
                p.step()

    By default two cycles are recorded: one with times only, and one with shapes, memory and lines of code. The keyword
    arguments are the same as for `traceopt run`: `preset`, or `wait`, `warmup`, `active`, `repeat`, `record_shapes`,
    `profile_memory`, `with_stack`; `time_limit` in seconds. Afterwards, run `traceopt analyze logs`.

    Under `traceopt run` it does nothing, because that records the steps itself.

    Raises ValueError for arguments that do not go together. Entering it without torch raises ImportError.
    """

    def __init__(
        self, logdir: str | Path, preset: str | None = None, *, time_limit: float = TIME_LIMIT_S, **schedule: Any
    ) -> None:
        cycles = plan_cycles(preset, **schedule)
        self._settings = Settings(Path(logdir).absolute(), cycles, time_limit_s=time_limit)
        self._recorder: Recorder | None = None

    def __enter__(self) -> profile:
        if not _under_traceopt_run():
            import torch

            self._recorder = Recorder(torch, self._settings, control=None)
            watch_forks(self._recorder)
            self._recorder.ledger.watch_gc()
            self._recorder.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._recorder is None:
            return
        self._recorder.finish("the with block ended")
        self._recorder.ledger.unwatch_gc()
        for trouble in self._recorder.status.troubles:
            warnings.warn(f"traceopt: {trouble}", RuntimeWarning, stacklevel=2)
        if not self.traces:
            needed = first_recorded_step(self._settings.cycles) + 1
            text = f"traceopt recorded nothing: {self._recorder.step} steps ended, but at least {needed} are needed"
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    def step(self) -> None:
        """Call this at the end of each step, always from the same thread."""
        if self._recorder is not None:
            self._recorder.trained()
            self._recorder.step_ended("given")

    @contextmanager
    def detecting_steps(self) -> Iterator[None]:
        """Inside, steps end where `traceopt run` would find them, without calls of `step`."""
        if self._recorder is None:
            yield
            return
        import torch

        from traceopt.capture.script.loop_hooks import detected_steps

        with detected_steps(torch, self._recorder):
            yield

    def interrupt(self, why: str = "evaluation") -> None:
        """Call this before an evaluation, say, and at its end: it ends the current recording, which keeps its complete
        steps. The time between the calls counts as evaluation.
        """
        if self._recorder is not None:
            self._recorder.interrupted(why)

    @property
    def traces(self) -> list[Path]:
        """The files written so far."""
        return [] if self._recorder is None else self._recorder.files


def _under_traceopt_run() -> bool:
    """Whether the agent of `traceopt run` is active in this process."""
    return "_traceopt_capture" in sys.modules
