"""One profiler session: a torch profiler from start to stop, all in one thread.

Stopping a profiler in another thread than its own, or in a forked child, crashes torch: there it is only dropped.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..metadata.environment import describe_memory
from ..settings import Cycle
from .cpp_log import CppLog
from .event_memory import EventMemory
from .profile_function import ProfileFunction

EVALUATION = "traceopt: evaluation mode"


class ProfilerSession:
    """Records `cycle`, which has this `number` in the settings, from `first_step` on: warm-up steps first, then the
    recorded steps, `from_step` to `until_step` - 1.

    `busy` is set while traceopt calls the profiler, as opposed to the script. `save` is called from step() or stop()
    when the events are available.
    """

    def __init__(self, torch: Any, number: int, cycle: Cycle, first_step: int, save: Callable[[Any], None]) -> None:
        self.number = number
        self.cycle = cycle
        self.first_step = first_step
        self.from_step = first_step + cycle.warmup
        self.until_step = first_step + cycle.length
        self.memory_before = describe_memory(torch)
        self.event_memory = EventMemory()
        self.closed_early: str | None = None
        self.partial_steps: list[int] = []
        self.busy = False
        self._record_function = torch.profiler.record_function
        self._step_range: Any = None
        self._evaluation_range: Any = None
        self._last_range = 0
        self._unconfirmed: list[int] = []  # ranges of which it is not known yet whether they are evaluations
        self._certain = False  # whether the current one is
        self.evaluations: list[int] = []  # ranges that are
        self._began = 0.0
        self._thread = threading.get_ident()
        self._pid = os.getpid()
        self._cpp_log = CppLog(torch, profile_memory=cycle.profile_memory)
        self._profile_function = ProfileFunction()
        actions = torch.profiler.ProfilerAction
        self.profiler = torch.profiler.profile(
            schedule=lambda step: _action(actions, cycle, max(0, step - first_step)),
            on_trace_ready=save,
            record_shapes=cycle.record_shapes,
            profile_memory=cycle.profile_memory,
            with_stack=cycle.with_stack,
        )
        self.profiler.step_num = first_step
        self.profiler.record_steps = False  # torch 2.1 would name each step's range after the previous step

    @property
    def recorded_s(self) -> float:
        """Duration of the recorded steps so far."""
        return time.perf_counter() - self._began

    @property
    def in_own_thread(self) -> bool:
        """Whether this is the thread, and the process, that started the session."""
        return threading.get_ident() == self._thread and os.getpid() == self._pid

    def start(self) -> None:
        self._cpp_log.silence()
        with self._cpp_log.starting(), self._at_work():
            self.profiler.start()
        self._open_step()
        self._begin_recording()  # again when the warm-up has ended

    def step(self) -> None:
        evaluates = self._evaluation_range is not None
        self.close_step()
        with self._at_work():
            self.profiler.step()
        self._open_step()
        if evaluates:
            self.begin_evaluation(certain=self._certain)
        if self.profiler.step_num == self.from_step:
            self._begin_recording()

    def stop(self) -> None:
        try:
            self.close_step()
            with self._at_work():
                self.profiler.stop()
        finally:
            self._cpp_log.restore()
            self._profile_function.give_back()

    def drop(self) -> None:
        """Ends the session without saving anything."""
        self.profiler.on_trace_ready = None
        if self.in_own_thread:
            self.stop()
        self._cpp_log.restore()

    def leave_to_parent(self) -> None:
        """In a forked child: nothing of the session goes on there."""
        self._profile_function.remove()
        self.drop()

    def _begin_recording(self) -> None:
        self._began = time.perf_counter()
        self.event_memory = EventMemory()
        self.event_memory.grown_bytes("step")

    def _open_step(self) -> None:
        """ProfilerStep#N is the N-th step of the run."""
        self._step_range = self._record_function(f"ProfilerStep#{self.profiler.step_num}")
        self._step_range.__enter__()

    def begin_evaluation(self, *, certain: bool) -> None:
        """Opens a range inside the step's, which the analysis takes out of the step if it was an evaluation."""
        self._certain |= certain
        if self._evaluation_range is None:
            self._last_range += 1
            self._unconfirmed.append(self._last_range)
            self._evaluation_range = self._record_function(f"{EVALUATION} {self._last_range}")
            self._evaluation_range.__enter__()

    def end_evaluation(self, *, late: bool = False) -> None:
        """`late`: training has gone on for some time. If it was an evaluation, the step cannot be told from it."""
        if self._evaluation_range is None:
            return
        self._close_evaluation_range()
        if not late:
            self.evaluations += self._unconfirmed
        elif self._certain:
            self.partial_steps.append(self.profiler.step_num)
        self._unconfirmed, self._certain = [], False

    def _close_evaluation_range(self) -> None:
        if self._evaluation_range is not None:
            self._evaluation_range.__exit__(None, None, None)
            self._evaluation_range = None

    def close_step(self) -> None:
        """Ends the range of the current step, before traceopt does something that is not part of it."""
        self._close_evaluation_range()
        if self._certain:
            self.evaluations += self._unconfirmed
            self._unconfirmed = []
        if self._step_range is not None:
            self._step_range.__exit__(None, None, None)
            self._step_range = None

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        self.busy = True
        try:
            with self._profile_function.watched():
                yield
        finally:
            self.busy = False


def _action(actions: Any, cycle: Cycle, step: int) -> Any:
    """Like torch.profiler.schedule, but without its warning if there is no warm-up."""
    if step < cycle.warmup:
        return actions.WARMUP
    if step < cycle.length - 1:
        return actions.RECORD
    return actions.RECORD_AND_SAVE if step == cycle.length - 1 else actions.NONE
