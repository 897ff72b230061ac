"""Decides when a recording starts, ends, is saved or dropped; always between two steps, on the training thread.

There is one recording per cycle, and no profiler while waiting. The script's own profiler always takes precedence: two
profilers at once crash torch.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..metadata.environment import rank, world_size
from ..metadata.step_ledger import LedgerWriter
from ..settings import Settings
from ..start_up.start_up import StartUp
from ..status import DONE, RECORDING, SAVING, WAITING, WARMING_UP, Status, TraceNote
from .cycle_queue import CycleQueue
from .device_queue import drain
from .memory_snapshots import MemorySnapshots
from .profile_function import script_has_one
from .profiler_session import ProfilerSession
from .run_notes import RunNotes
from .saved_traces import SavedCycle, SavedTraces
from .timed_steps import TimedSteps
from .trace_file import save
from .trigger import StepTrigger

LARGE_STEP = 3  # times as many events as in several whole steps are recorded of one step
PLAIN_STEPS = 8  # without a profiler: their median shows what recording costs
PLAIN_S = 5.0  # a run that is to end early does not wait longer for them
RETRIES = 3  # of recordings interrupted by an evaluation or by the script's own profiler


class Recorder:
    """The Listener of the step tracker. `step` is the number of completed steps, and so the number of the
    current one.
    """

    def __init__(self, torch: Any, settings: Settings, control: str | None, start_up: StartUp | None = None) -> None:
        self._torch = torch
        self._settings = settings
        self._control = control
        self.ledger = LedgerWriter(self._gc_range)
        self.run = RunNotes(torch, self.ledger, start_up, self._may_look, self._note, timed=settings.timed is not None)
        self.status = Status()
        self.step = 0
        self._pid = os.getpid()
        self._session: ProfilerSession | None = None
        trigger = None
        if settings.trigger is not None and control is not None and settings.timed is None:
            trigger = StepTrigger(settings.trigger, control)
        self._queue = CycleQueue(settings.cycles, trigger)
        self._rested_since = 0.0  # when the last recording had been saved
        self._interruptions = self._yields = 0
        self._foreign = 0  # number of the script's profilers that are running
        self._saved = SavedTraces()
        self._finished = False
        self._helper = _started_by_multiprocessing()
        self.timed = TimedSteps(torch, settings.timed) if settings.timed is not None else None
        self._memory = MemorySnapshots(
            torch,
            settings.folder,
            requested=settings.memory_snapshot,
            name=self._worker,
            step=lambda: self.step,
            note=lambda text: self.status.trouble(text),
            tell=self._snapshot_written,
        )

    @property
    def files(self) -> list[Path]:
        """The traces written so far."""
        return self._saved.files

    def watch_memory(self) -> None:
        """Memory snapshots; not in a timed run, which must be the same as without traceopt."""
        if self.timed is None:
            self._memory.watch()

    @property
    def profiler(self) -> Any:
        """traceopt's own profiler, if there is one."""
        return self._session.profiler if self._session else None

    @property
    def busy(self) -> bool:
        """Whether traceopt is calling the profiler, as opposed to the script."""
        return self._session is not None and self._session.busy

    def step_ended(self, rule: str) -> None:
        """Raises SystemExit(0) after the last step of a timed run, or the last cycle if the user asked for that."""
        session = self._session
        if self._finished or (session is not None and not session.in_own_thread):
            return
        self.ledger.close_step()
        if session is None:
            self._queue.plain_step_ended(self.ledger.last_us)
        self.step += 1
        self.status.step_rule = rule
        if self.step == 1:
            if self.run.start_up is not None:
                self.run.start_up.first_step_ended()
            self.status.rank = rank(self._torch)
            self._tell(WARMING_UP if self._settings.cycles and self._settings.cycles[0].wait <= 1 else WAITING)
        try:
            if session is not None:
                self._advance(session)
            self._begin_if_due()
        except Exception as error:
            self.give_up(f"{type(error).__name__}: {error}")
        if self.timed is None:  # a timed run must be the same as without traceopt
            self.run.step_memory.step_ended(self.step - 1)
        elif self.timed.step_ended(self.step):
            self._write_timed()
            raise SystemExit(0)
        done = self._queue.is_done and self._session is None
        if done and self.timed is None:
            self._memory.recorded()
        self.ledger.open_step()
        if done and self._settings.stop_after and self._saved and self._plain_steps_known():
            self.ledger.ended_early = True
            self._count(self._catch_up)
            raise SystemExit(0)

    def _plain_steps_known(self) -> bool:
        """Whether enough steps without a profiler show what recording costs, or they are slow. The ranks of a
        distributed run have to end at the same step, so they do not wait for more.
        """
        if (world_size(self._torch) or 1) > 1 or self.ledger.plain_steps >= PLAIN_STEPS:
            return True
        return time.perf_counter() - self._rested_since > PLAIN_S

    def begin(self) -> None:
        """Marks the start of training, for scripts that do so explicitly; with wait 0 the first step is recorded."""
        self._begin_if_due()
        self.ledger.open_step()

    def interrupted(self, why: str) -> None:
        """The complete steps recorded so far are saved, and the cycle is recorded again later. After a few such
        attempts, interruptions are recorded, and marked.
        """
        self._count(self.ledger.evaluates)
        session = self._session
        if session is None or not session.in_own_thread:
            return
        with self.ledger.own_work():
            if self._interruptions < RETRIES:
                self._interruptions += 1
                self._close_early(session, why)
                self._record_again(session)
            elif excess := self._excess(session, "evaluation"):
                self._close_early(session, excess)
            else:
                session.begin_evaluation(certain=True)

    def perhaps_interrupted(self) -> None:
        self._count(self.ledger.evaluates)
        if self._session is not None and self._session.in_own_thread:
            self._session.begin_evaluation(certain=False)

    def resumed(self) -> None:
        if not self.ledger.evaluation.running:
            return
        self._count(self.ledger.evaluated)
        if self._session is not None and self._session.in_own_thread:
            self._session.end_evaluation()

    def trained(self) -> None:
        if not self.ledger.evaluation.running:
            return
        self._count(self.ledger.trains)
        if self._session is not None and self._session.in_own_thread:
            self._session.end_evaluation(late=True)

    def _record_again(self, session: ProfilerSession) -> None:
        """At once if no complete step was recorded, after the step that contains the interruption. Else after the other
        cycles, but not in a distributed run: ranks without an evaluation have these steps.
        """
        if self.step <= session.from_step:
            self._queue.put_back()
            self._queue.rest_from(self.step + 1 - max(1, session.cycle.wait))
        elif (world_size(self._torch) or 1) == 1:
            self._queue.record_again(session.number, session.cycle)

    def _count(self, note: Callable[[], None]) -> None:
        """A count that fails must not end the recording."""
        try:
            note()
        except Exception as error:
            self._note(f"{type(error).__name__}: {error}")

    def restarted(self, why: str) -> None:
        self.status.note(why)
        self._abort()
        self._saved.delete()
        self.status.traces = []
        self.status.step_rule = None
        self.ledger.reset()
        self.run.restarted()
        self._queue.restart()
        self.step = 0

    def backward_begins(self, loss: Any) -> None:
        self.ledger.backward_begins()
        session = self._session
        if session is not None and self.step < session.from_step and session.in_own_thread:
            with self.ledger.own_work():
                self.run.values.backward_begins(loss)

    def _may_look(self) -> bool:
        """At data: not in recorded steps or timed runs, and not in a thread beside the training."""
        recorded = self._session is not None and self.step >= self._session.from_step
        return self.timed is None and not recorded and threading.current_thread() is threading.main_thread()

    def backward_ended(self) -> None:
        """Called within a step, which may be larger than several steps together."""
        session = self._session
        if session is None or self.step < session.from_step or not session.in_own_thread:
            return
        events = session.event_memory.excess("backward", LARGE_STEP)
        if events is None:
            return
        if self.step > session.from_step:
            with self.ledger.own_work():
                self._close_early(session, f"it has about {events}")
        else:
            self.give_up(f"one step has more than {events}; --step-on backward records shorter steps")

    def give_up(self, why: str) -> None:
        """Stops recording for good."""
        self.status.trouble(f"step {self.step}: {why}")
        self._abort()
        self._queue.give_up()
        self._tell(DONE)

    def own_profiler_begins(self) -> None:
        """The script is about to start a profiler: stop ours, and retry when theirs has ended."""
        self._foreign += 1
        self.status.own_profiler = True
        if self._session is not None:
            self._note("the script started its own profiler")
            with self.ledger.own_work():
                self._abort()
            self._yields += 1
            if self._yields <= RETRIES:
                self._queue.put_back()
            else:
                self._queue.give_up()

    def own_profiler_ended(self) -> None:
        self._foreign -= 1
        self._queue.rest_from(self.step)

    def finish(self, why: str) -> None:
        """The process ends: save what was recorded so far and complete the metadata."""
        if self._finished or os.getpid() != self._pid:
            return
        self._finished = True
        self._count(self.ledger.ends)
        try:
            if self._session is not None:
                self._close_early(self._session, why)
            if self._saved and os.environ.get("LOCAL_RANK", "0") == "0":  # one rank of a machine is enough
                self.run.loaders.measure()
            self.run.look_again()
            self._saved.complete(self._tail())
        except Exception as error:
            self.status.trouble(f"{type(error).__name__}: {error}")
        self._memory.finish()
        self.status.memory_snapshots = [path.name for path in self._memory.files]
        if self.timed is not None and self.step:
            self._write_timed()
        if not self.step:
            self.status.looped_step = self.run.looped_step()
        self.status.ended = True
        if self.step or not self._helper:
            self._tell(DONE)

    def forget(self) -> None:
        """Called in a forked child: the profiler is the parent's. If the run has completed a step, the child is not
        recorded.
        """
        if self._session is not None:
            self._torch.autograd._enable_record_function(False)
            self._session.leave_to_parent()
        self._finished = self._finished or self.step > 0
        self._helper = True
        self._session = None
        self._pid = os.getpid()
        self._saved = SavedTraces()
        self.status = Status()
        self.timed = None
        self._memory.forget()
        self.ledger.reset()
        self.run.step_memory.reset()
        self._queue = CycleQueue(self._settings.cycles)
        self.step = self._foreign = 0

    def _begin_if_due(self) -> None:
        if self._session is not None or self._foreign:
            return
        due = self._queue.due(self.step, lambda: world_size(self._torch) or 1)
        if due is None or self._torch.autograd._profiler_enabled():
            return
        number, cycle = due
        if cycle.with_stack and script_has_one():
            cycle = replace(cycle, with_stack=False)
            self.status.trouble(
                f"the {cycle.name} cycle has no lines of code: the script runs a Python profiler itself"
            )
        self._catch_up()
        session = ProfilerSession(self._torch, number, cycle, self.step, self._save)
        self.status.cycle = cycle.name
        self.status.first_step, self.status.last_step = session.from_step, session.until_step - 1
        self._tell(WARMING_UP if cycle.warmup else RECORDING)
        self._queue.take()
        self._session = session
        try:
            session.start()
        except Exception:
            self._session = None  # it never started, so stopping it would fail too
            raise

    def _advance(self, session: ProfilerSession) -> None:
        if self.step == session.from_step:
            self._catch_up()
            self._tell(RECORDING)  # before the step begins, so that it is not part of it
        last = self.step >= session.until_step
        if last:
            session.close_step()
            self._catch_up()
            self._tell(SAVING)
        elif self.step > session.from_step and (excess := self._excess(session)):
            self._close_early(session, excess, in_step=False)
            return
        session.step()
        if last:
            self._stop(session)

    def _catch_up(self) -> None:
        """Lets the GPU finish the steps before this one, and notes for how long. Else the first recorded steps would
        contain work that was launched before the recording, and the time of a step whose work only waits in the GPU's
        queue would say nothing.
        """
        behind_s = drain(self._torch)
        if behind_s is not None:
            self.ledger.caught_up(behind_s)

    def _excess(self, session: ProfilerSession, point: str = "step") -> str | None:
        """The limit that the recording exceeds at this point of a step. None in a distributed run: its ranks would
        close at different steps.
        """
        if (world_size(self._torch) or 1) > 1:
            return None
        if session.recorded_s > self._settings.time_limit_s:
            return f"it took more than {self._settings.time_limit_s:g} s"
        events = session.event_memory.excess(point)
        return f"it has about {events}" if events is not None else None

    def _stop(self, session: ProfilerSession) -> None:
        began = time.perf_counter()
        try:
            session.stop()
        finally:
            self.status.saving_s += time.perf_counter() - began
            self._session = None
            self._queue.rest_from(self.step)
            self._rested_since = time.perf_counter()
            self._tell(DONE if self._queue.is_done else WAITING)

    def _close_early(self, session: ProfilerSession, why: str, *, in_step: bool = True) -> None:
        """Saves the complete steps recorded so far, if any. `in_step`: another step has begun and is cut off."""
        self._note(f"the {session.cycle.name} cycle was closed early: {why}")
        if self.step <= session.from_step or not session.in_own_thread:
            self._abort()
            return
        session.close_step()
        session.closed_early = why
        if in_step:
            session.partial_steps.append(self.step)
        self._tell(SAVING)
        self._stop(session)

    def _abort(self) -> None:
        """Ends the recording, if there is one, without saving it."""
        self._queue.rest_from(self.step)
        if self._session is None:
            return
        try:
            self._session.drop()
        except Exception as error:
            self._note(f"{type(error).__name__}: {error}")
        finally:
            self._session = None

    def _save(self, profiler: Any) -> None:
        session = self._session
        assert session is not None  # noqa: S101
        cycle, until = session.cycle, min(self.step, session.until_step)
        window = {"cycle": cycle.name, "warmup_from": session.first_step, "from": session.from_step, "until": until}
        self.ledger.windows.append(window)
        try:
            head = self.run.head(session, until, self.status.step_rule)
            file = save(profiler, self._trace_folder, self._worker(), head | self._tail())
        except Exception as error:
            self.status.trouble(f"step {self.step}: could not save the trace of the {cycle.name} cycle: {error}")
            return
        steps = until - session.from_step
        name = str(file.path.relative_to(self._settings.folder))
        note = TraceNote(name, cycle.name, steps, cycle.active, session.closed_early)
        self._saved.add(SavedCycle(session.number, file, head, window, note))
        self.status.traces = self._saved.notes
        if session.closed_early is None:
            self._interruptions = 0

    @property
    def _trace_folder(self) -> Path:
        """What later requests record is another run, and so in a folder of its own."""
        folder, number = self._settings.folder, self._queue.recording
        return folder if number < 2 else folder / f"recording-{number}"

    def _snapshot_written(self) -> None:
        """Told at once: a process that is out of memory may not end normally."""
        self.status.memory_snapshots = [path.name for path in self._memory.files]
        self._tell(self.status.phase)

    def _gc_range(self) -> Any:
        """The range that marks a collection; None while the profiler itself is working."""
        if self._session is None or self._session.busy:
            return None
        return self._torch._C._profiler._RecordFunctionFast("traceopt: gc")

    def _write_timed(self) -> None:
        if self.timed is not None and self._control is not None:
            self.timed.write(self._control, self.status, self.ledger)

    def _worker(self) -> str:
        number = rank(self._torch)
        return f"{self.status.host}_{self._pid}" + ("" if number is None else f"_rank{number}")

    def _tail(self) -> dict[str, Any]:
        return self.run.tail(self.status.notes, self._control)

    def _note(self, text: str) -> None:
        self.status.note(f"step {self.step}: {text}")

    def _tell(self, phase: str) -> None:
        self.status.phase = phase
        self.status.step = self.step
        if self._control is not None:
            self.status.write(self._control)


def _started_by_multiprocessing() -> bool:
    """Whether this may be a DataLoader worker. Such a process reports only if it trains."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None
