"""Decides when a recording starts, ends, is saved or dropped; always between two steps, on the training thread.

There is one recording per cycle, and no profiler while waiting. The script's own profiler always takes precedence: two
profilers at once crash torch.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..metadata.batch_size import samples_and_elements
from ..metadata.caller_lines import call_lines
from ..metadata.cleared_gradients import ClearedGradients
from ..metadata.constructions import Constructions
from ..metadata.document import of_cycle, of_run
from ..metadata.environment import describe_environment, describe_memory, rank, world_size
from ..metadata.inventory import ByHand, take_inventory
from ..metadata.loaders import LoaderNotes
from ..metadata.step_ledger import LedgerWriter
from ..metadata.values.watched_values import WatchedValues
from ..settings import Settings
from ..start_up.start_up import StartUp
from ..status import DONE, RECORDING, SAVING, WAITING, WARMING_UP, Status, TraceNote
from .device_queue import drain
from .event_memory import EVENT_BYTES
from .memory_snapshots import MemorySnapshots
from .profile_function import script_has_one
from .profiler_session import ProfilerSession
from .step_memory import StepMemory
from .timed_steps import TimedSteps
from .trace_file import SavedTrace, save
from .trigger import StepTrigger

LARGE_STEP = 3  # times as many events as in several whole steps are recorded of one step
PLAIN_STEPS = 8  # without a profiler: their median shows what recording costs
PLAIN_S = 5.0  # a run that is to end early does not wait longer for them
RETRIES = 3  # of recordings interrupted by an evaluation or by the script's own profiler


@dataclass
class _Recording:
    """A trace that was written. `cycle`: its number in the settings; `window`: its row in the ledger."""

    cycle: int
    file: SavedTrace
    head: dict[str, Any]
    window: dict[str, Any]
    note: TraceNote


class Recorder:
    """The Listener of the step tracker. `step` is the number of completed steps, and so the number of the
    current one.
    """

    def __init__(self, torch: Any, settings: Settings, control: str | None, start_up: StartUp | None = None) -> None:
        """`start_up`: of this process, if traceopt has followed it from its start."""
        self._torch = torch
        self._settings = settings
        self._control = control
        self._start_up = start_up
        self.ledger = LedgerWriter(self._gc_range)
        self.loaders = LoaderNotes()
        self.constructions = Constructions()
        self._step_memory = StepMemory(torch)
        self.status = Status()
        self.step = 0
        self._pid = os.getpid()
        self._session: ProfilerSession | None = None
        self._cycles = list(enumerate(settings.cycles))  # with their numbers; those to record again come last
        self._next = 0  # index of the next cycle
        self._rested_from = 0  # the step at which its wait began
        self._rested_since = 0.0  # when the last recording had been saved
        self._trigger = None
        if settings.trigger is not None and control is not None and settings.timed is None:
            self._trigger = StepTrigger(settings.trigger, control)
        self._waits_for_trigger = self._trigger is not None
        self._interruptions = self._yields = 0
        self._foreign = 0  # number of the script's profilers that are running
        self._recordings: list[_Recording] = []
        self._inventory: dict[str, Any] | None = None
        self._by_hand = ByHand(torch)
        self._finished = False
        self._helper = _started_by_multiprocessing()
        self.timed = TimedSteps(torch, settings.timed) if settings.timed is not None else None
        self.cleared_gradients = ClearedGradients(active=self.timed is None)
        self.values = WatchedValues(torch)
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
        return [recording.file.path for recording in self._recordings]

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
        if self._trigger is not None and session is None:
            self._trigger.step_ended(self.ledger.last_us)
        self.step += 1
        self.status.step_rule = rule
        if self.step == 1:
            if self._start_up is not None:
                self._start_up.first_step_ended()
            self.status.rank = rank(self._torch)
            self._tell(WARMING_UP if self._settings.cycles and self._settings.cycles[0].wait <= 1 else WAITING)
        try:
            if session is not None:
                self._advance(session)
            self._begin_if_due()
        except Exception as error:
            self.give_up(f"{type(error).__name__}: {error}")
        if self.timed is None:  # a timed run must be the same as without traceopt
            self._step_memory.step_ended(self.step - 1)
        elif self.timed.step_ended(self.step):
            self._write_timed()
            raise SystemExit(0)
        done = self._next == len(self._cycles) and self._session is None
        if done and self.timed is None:
            self._memory.recorded()
        self.ledger.open_step()
        if done and self._settings.stop_after and self._recordings and self._plain_steps_known():
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

    def iterated(self, loader: Any) -> int:
        """The script has created an iterator of this loader. Returns the loader's key."""
        key = self.loaders.iterated(loader)
        if self._may_look:
            with self.ledger.own_work():
                self.loaders.look_into(key, loader)
        return key

    def fetched(self, loader: int, iterator: int, batch: Any, seconds: float, cpu_seconds: float, ended: bool) -> None:
        """The script spent this time in an iterator of a loader for a batch, part of it on the CPU; `ended`: there was
        no batch left.
        """
        self.ledger.fetched(seconds)
        if not ended:
            self.loaders.sized(self._torch, loader, batch)
            self.ledger.got_batch(*samples_and_elements(self._torch, batch))
            self._count(lambda: self._look_at_batch(batch, loader))
        self.loaders.fetched(loader, seconds, cpu_seconds, ended, iterator)

    def workers_started(self, loader: int, seconds: float, workers: Iterable[int]) -> None:
        self.ledger.fetched(seconds)
        self.loaders.started(loader, self.step, seconds, workers)

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
            self._next -= 1
            self._rested_from = self.step + 1 - max(1, session.cycle.wait)
        elif (world_size(self._torch) or 1) == 1:
            self._cycles.append((session.number, session.cycle))

    def _count(self, note: Callable[[], None]) -> None:
        """A count that fails must not end the recording."""
        try:
            note()
        except Exception as error:
            self.status.note(f"step {self.step}: {type(error).__name__}: {error}")

    def restarted(self, why: str) -> None:
        self.status.note(why)
        self._abort()
        for recording in self._recordings:
            recording.file.path.unlink(missing_ok=True)
        self._recordings.clear()
        self.status.traces.clear()
        self.status.step_rule = None
        self.ledger.reset()
        self._step_memory.reset()
        if self._start_up is not None:
            self._start_up.goes_on()
        self.loaders.restarted()
        self._cycles = list(enumerate(self._settings.cycles))
        self.step = self._next = self._rested_from = 0

    def backward_begins(self, loss: Any) -> None:
        self.ledger.backward_begins()
        session = self._session
        if session is not None and self.step < session.from_step and session.in_own_thread:
            with self.ledger.own_work():
                self.values.backward_begins(loss)

    @property
    def _may_look(self) -> bool:
        """At data: not in recorded steps or timed runs, and not in a thread beside the training."""
        recorded = self._session is not None and self.step >= self._session.from_step
        return self.timed is None and not recorded and threading.current_thread() is threading.main_thread()

    def _look_at_batch(self, batch: Any, loader: int) -> None:
        if self._may_look and not self.values.knows_batches:
            with self.ledger.own_work():
                self.values.fetched(batch, self.loaders.collate(loader))

    def updated(self, optimizer: Any = None) -> None:
        """A backward pass has ended, or this optimizer has used the gradients."""
        self.loaders.updated()
        if not self.cleared_gradients.active:
            return
        if optimizer is None:
            self.cleared_gradients.backward_ends()
        else:
            self.cleared_gradients.read(optimizer)

    def backward_ended(self) -> None:
        """Called within a step, which may be larger than several steps together."""
        session = self._session
        if session is None or self.step < session.from_step or not session.in_own_thread:
            return
        grown_bytes = session.event_memory.grown_bytes("backward")
        if grown_bytes <= LARGE_STEP * session.event_memory.limit_bytes:
            return
        if self.step > session.from_step:
            with self.ledger.own_work():
                self._close_early(session, f"it has about {_events(grown_bytes)}")
        else:
            self.give_up(f"one step has more than {_events(grown_bytes)}; --step-on backward records shorter steps")

    def give_up(self, why: str) -> None:
        """Stops recording for good."""
        self.status.trouble(f"step {self.step}: {why}")
        self._abort()
        self._next = len(self._cycles)
        self._tell(DONE)

    def own_profiler_begins(self) -> None:
        """The script is about to start a profiler: stop ours, and retry when theirs has ended."""
        self._foreign += 1
        self.status.own_profiler = True
        if self._session is not None:
            self.status.note(f"step {self.step}: the script started its own profiler")
            with self.ledger.own_work():
                self._abort()
            self._yields += 1
            if self._yields <= RETRIES:
                self._next -= 1
            else:
                self._next = len(self._cycles)

    def own_profiler_ended(self) -> None:
        self._foreign -= 1
        self._rested_from = self.step

    def finish(self, why: str) -> None:
        """The process ends: save what was recorded so far and complete the metadata."""
        if self._finished or os.getpid() != self._pid:
            return
        self._finished = True
        self._count(self.ledger.ends)
        try:
            if self._session is not None:
                self._close_early(self._session, why)
            if self._recordings and os.environ.get("LOCAL_RANK", "0") == "0":  # one rank of a machine is enough
                self.loaders.measure()
            self._described(self._by_hand.look_again)
            for recording in self._recordings:
                recording.file.replace_head(recording.head | self._tail())
        except Exception as error:
            self.status.trouble(f"{type(error).__name__}: {error}")
        self._memory.finish()
        self.status.memory_snapshots = [path.name for path in self._memory.files]
        if self.timed is not None and self.step:
            self._write_timed()
        if self._start_up is not None and not self.step:
            self.status.looped_step = self._described(self._start_up.looped_step)
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
        self._recordings = []
        self.status = Status()
        self.timed = self._trigger = None
        self._memory.forget()
        self.ledger.reset()
        self._step_memory.reset()
        self._cycles = list(enumerate(self._settings.cycles))
        self.step = self._next = self._rested_from = self._foreign = 0

    def _begin_if_due(self) -> None:
        if self._session is not None or self._foreign or not self._may_begin():
            return
        number, cycle = self._cycles[self._next]
        if self.step - self._rested_from < cycle.wait or self._torch.autograd._profiler_enabled():
            return
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
        self._next += 1
        self._session = session
        try:
            session.start()
        except Exception:
            self._session = None  # it never started, so stopping it would fail too
            raise

    def _may_begin(self) -> bool:
        """Whether a cycle is next, and what it waits for has happened. A request begins all cycles anew."""
        done = self._next == len(self._cycles)
        if self._trigger is None or not (self._waits_for_trigger or done):
            return not done
        if not self._trigger.is_due(self.step, lambda: world_size(self._torch) or 1):
            return False
        self._trigger.begun()
        self._waits_for_trigger = False
        if done:
            self._cycles += [(len(self._cycles) + number, cycle) for number, cycle in enumerate(self._settings.cycles)]
        self._rested_from = self.step
        return True

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
        grown_bytes = session.event_memory.grown_bytes(point)
        return f"it has about {_events(grown_bytes)}" if grown_bytes > session.event_memory.limit_bytes else None

    def _stop(self, session: ProfilerSession) -> None:
        began = time.perf_counter()
        try:
            session.stop()
        finally:
            self.status.saving_s += time.perf_counter() - began
            self._session = None
            self._rested_from = self.step
            self._rested_since = time.perf_counter()
            self._tell(WAITING if self._next < len(self._cycles) else DONE)

    def _close_early(self, session: ProfilerSession, why: str, *, in_step: bool = True) -> None:
        """Saves the complete steps recorded so far, if any. `in_step`: another step has begun and is cut off."""
        self.status.note(f"step {self.step}: the {session.cycle.name} cycle was closed early: {why}")
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
        self._rested_from = self.step
        if self._session is None:
            return
        try:
            self._session.drop()
        except Exception as error:
            self.status.note(f"step {self.step}: {type(error).__name__}: {error}")
        finally:
            self._session = None

    def _save(self, profiler: Any) -> None:
        session = self._session
        assert session is not None  # noqa: S101
        cycle, until = session.cycle, min(self.step, session.until_step)
        window = {
            "cycle": cycle.name,
            "warmup_from": session.first_step,
            "from": session.from_step,
            "until": until,
        }
        self.ledger.windows.append(window)
        try:
            self._inventory = (
                self._inventory
                or self._described(take_inventory, self._torch, self._by_hand, self.values.subnormals)
                or {}
            )
            head = self._head(session, until)
            if cycle.with_stack:
                head["call_lines"] = self._described(call_lines, profiler)
            file = save(profiler, self._trace_folder, self._worker(), head | self._tail())
        except Exception as error:
            self.status.trouble(f"step {self.step}: could not save the trace of the {cycle.name} cycle: {error}")
            return
        steps = until - session.from_step
        name = str(file.path.relative_to(self._settings.folder))
        note = TraceNote(name, cycle.name, steps, cycle.active, session.closed_early)
        self._recordings.append(_Recording(session.number, file, head, window, note))
        self.status.traces.append(note)
        if session.closed_early is None:
            self._interruptions = 0
        self._keep_most_steps(session.number)

    @property
    def _trace_folder(self) -> Path:
        """What later requests record is another run, and so in a folder of its own."""
        folder, number = self._settings.folder, self._trigger.recordings if self._trigger is not None else 1
        return folder if number < 2 else folder / f"recording-{number}"

    def _keep_most_steps(self, number: int) -> None:
        """Of the recordings of one cycle, all but the last of which were cut short, keeps the one with most steps."""
        same = [recording for recording in self._recordings if recording.cycle == number]
        best = max(same, key=lambda one: one.note.steps)
        for one in same:
            if one is not best:
                one.file.path.unlink(missing_ok=True)
                one.window["until"] = one.window["from"]  # the profiler was active, but these steps are in no trace
                self._recordings.remove(one)
                self.status.traces.remove(one.note)

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

    def _head(self, session: ProfilerSession, until: int) -> dict[str, Any]:
        part = {
            "first_step": session.from_step,
            "steps": until - session.from_step,
            "partial_steps": session.partial_steps,
            "evaluations": session.evaluations,
            "closed_early": session.closed_early,
        }
        memory = {"before": session.memory_before, "after": self._described(describe_memory, self._torch)}
        of_process = {
            "environment": self._described(describe_environment, self._torch),
            "step_rule": self.status.step_rule,
            "memory": memory,
            **(self._inventory or {}),
        }
        return of_cycle(self._torch, session.cycle, part) | of_process

    def _tail(self) -> dict[str, Any]:
        """What grows during the run: written with the trace, and again when the process ends."""
        loaders = self._described(self.loaders.document, self._control) or {}
        constructed = self._described(self.constructions.document) or {}
        cleared = {"cleared_gradients": self._described(self.cleared_gradients.document) or []}
        start_up = self._described(self._start_up.document) if self._start_up is not None else None
        padding = {"padding": self._described(self.values.padding.document) or []}
        followed = {"start_up": start_up, "step_memory": self._step_memory.document()}
        return of_run(self.ledger, self.status.notes) | loaders | constructed | cleared | padding | followed

    def _described(self, describe: Callable[..., Any], *arguments: Any) -> Any:
        """A part of the description, or None if it fails: the recording is worth more than what describes it."""
        try:
            return describe(*arguments)
        except Exception as error:
            self.status.note(f"step {self.step}: {describe.__name__}: {type(error).__name__}: {error}")
            return None

    def _tell(self, phase: str) -> None:
        self.status.phase = phase
        self.status.step = self.step
        if self._control is not None:
            self.status.write(self._control)


def _events(memory_bytes: int) -> str:
    return f"{memory_bytes / EVENT_BYTES / 1e6:.1f} million events"


def _started_by_multiprocessing() -> bool:
    """Whether this may be a DataLoader worker. Such a process reports only if it trains."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None
