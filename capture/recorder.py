"""Owns torch's profiler: starts, steps, closes and saves it, always between two steps and on the training thread.

One profiler object a cycle; none exists while waiting. To stop one in another thread than its own crashes torch, so a
recording that cannot be closed at home is dropped. The script's own profiler always wins: two at once crash torch.
"""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .cpp_log import CppLog
from .environment import describe_memory, rank
from .inventory import take_inventory
from .ledger import Ledger
from .loader_notes import LoaderNotes
from .metadata import of_cycle, of_run
from .settings import Cycle, Settings
from .status import DONE, RECORDING, SAVING, WAITING, WARMING_UP, Status, TraceNote
from .trace_file import TraceFile, save

RETRIES = 3  # of recordings disturbed by an evaluation or by the script's own profiler


@dataclass
class Recording:
    """A profiler at work."""

    profiler: Any
    cycle: Cycle
    first_step: int  # of the warm-up
    thread: int
    memory_before: dict[str, int] | None
    partial: bool = False  # its last step was cut off
    closed_early: str | None = None

    @property
    def from_step(self) -> int:
        return self.first_step + self.cycle.warmup

    @property
    def until_step(self) -> int:
        return self.first_step + self.cycle.length


class Recorder:
    """The Listener of the step tracker. `step` counts the steps that have ended, and so numbers the one at hand."""

    def __init__(self, torch: Any, settings: Settings, control: str | None) -> None:
        self._torch = torch
        self._settings = settings
        self._control = control
        self.ledger = Ledger()
        self.loaders = LoaderNotes()
        self._cpp_log = CppLog(torch)
        self.status = Status()
        self.step = 0
        self.busy = False  # while the profiler's functions are called by us, not by the script
        self._pid = os.getpid()
        self._recording: Recording | None = None
        self._next = 0  # the cycle to come
        self._rested_from = 0  # the step at which its wait began
        self._interruptions = self._yields = 0
        self._foreign = 0  # profilers of the script at work
        self._files: list[tuple[TraceFile, dict[str, Any]]] = []
        self._inventory: dict[str, Any] | None = None
        self._finished = False
        self._helper = _started_by_multiprocessing()

    @property
    def files(self) -> list[Path]:
        """The traces written so far."""
        return [file.path for file, _ in self._files]

    @property
    def recording(self) -> bool:
        return self._recording is not None

    @property
    def exporting(self) -> Any:
        """The profiler of ours, if there is one."""
        return self._recording.profiler if self._recording else None

    def step_ended(self, rule: str) -> None:
        """May raise SystemExit(0), where the user asked to stop after the last cycle."""
        recording = self._recording
        if self._finished or (recording is not None and threading.get_ident() != recording.thread):
            return
        self.ledger.close_step()
        self.step += 1
        self.status.step_rule = rule
        if self.step == 1:
            self.status.rank = rank(self._torch)
            self._tell(WAITING if self._settings.cycles[0].wait > 1 else WARMING_UP)
        try:
            if recording is not None:
                self._advance(recording)
            self._begin_if_due()
        except Exception as error:
            self.give_up(f"{type(error).__name__}: {error}")
        self.ledger.open_step()
        if self._settings.stop_after and self._next == len(self._settings.cycles) and self._recording is None:
            raise SystemExit(0)

    def begin(self) -> None:
        """The training begins here, where the script says so; with wait 0 the first step is recorded."""
        self._begin_if_due()
        self.ledger.open_step()

    def interrupted(self, why: str) -> None:
        recording = self._recording
        if recording is None or self._interruptions >= RETRIES:
            return
        self._interruptions += 1
        self._close_early(why)
        if self.step <= recording.from_step:  # nothing whole was recorded: again, after the step that holds this
            self._next -= 1
            self._rested_from = self.step + 1 - max(1, recording.cycle.wait)

    def restarted(self, why: str) -> None:
        self.status.note(why)
        self._abort()
        for file, _ in self._files:
            file.path.unlink(missing_ok=True)
        self._files.clear()
        self.status.traces.clear()
        self.status.step_rule = None
        self.ledger.reset()
        self.step = self._next = self._rested_from = 0

    def give_up(self, why: str) -> None:
        """Records no more."""
        self.status.trouble(f"step {self.step}: {why}")
        self._abort()
        self._next = len(self._settings.cycles)
        self._tell(DONE)

    def own_profiler_begins(self) -> None:
        """The script is about to start a profiler: ours makes room, and tries again when theirs has ended."""
        self._foreign += 1
        self.status.own_profiler = True
        if self._recording is not None:
            self.status.note(f"step {self.step}: the script started its own profiler")
            self._abort()
            self._yields += 1
            if self._yields <= RETRIES:
                self._next -= 1
            else:
                self._next = len(self._settings.cycles)

    def own_profiler_ended(self) -> None:
        self._foreign -= 1
        self._rested_from = self.step

    def finish(self, why: str) -> None:
        """The process ends: keeps what was recorded so far and completes the metadata."""
        if self._finished or os.getpid() != self._pid:
            return
        self._finished = True
        try:
            if self._recording is not None:
                self._close_early(why)
            for file, head in self._files:
                file.replace_head(head | self._tail())
        except Exception as error:
            self.status.trouble(f"{type(error).__name__}: {error}")
        self.status.ended = True
        self.status.unrecorded_us = self.ledger.unrecorded_us()
        self.status.recorded_us = self.ledger.recorded_us()
        if self.step or not self._helper:
            self._tell(DONE)

    def forget(self) -> None:
        """In a forked child: the profiler is the parent's. A child of a run that has begun to step is left alone."""
        if self._recording is not None:
            self._torch.autograd._enable_record_function(False)
            sys.setprofile(None)
        self._finished = self.step > 0
        self._helper = True
        self._cpp_log.restore()
        self._recording = None
        self._pid = os.getpid()
        self._files = []
        self.status = Status()
        self.ledger.reset()
        self.step = self._next = self._rested_from = self._foreign = 0

    def _begin_if_due(self) -> None:
        if self._recording is None and self._next < len(self._settings.cycles) and not self._foreign:
            cycle = self._settings.cycles[self._next]
            if self.step - self._rested_from >= cycle.wait:
                self._begin(cycle)

    def _begin(self, cycle: Cycle) -> None:
        torch, first = self._torch, self.step
        if torch.autograd._profiler_enabled():
            return
        profiler = torch.profiler.profile(
            schedule=lambda step: _action(torch.profiler.ProfilerAction, cycle, max(0, step - first)),
            on_trace_ready=self._save,
            record_shapes=cycle.record_shapes,
            profile_memory=cycle.profile_memory,
            with_stack=cycle.with_stack,
        )
        profiler.step_num = first  # ProfilerStep#N is then the N-th step of the run
        recording = Recording(profiler, cycle, first, threading.get_ident(), describe_memory(torch))
        self.status.cycle = cycle.name
        self.status.first_step, self.status.last_step = recording.from_step, recording.until_step - 1
        self._tell(WARMING_UP if cycle.warmup else RECORDING)
        self._next += 1
        self._recording = recording
        self.busy = True
        if cycle.profile_memory:
            self._cpp_log.hush()
        try:
            profiler.start()
        except Exception:
            self._recording = None  # it never began; to stop it would fail too
            raise
        finally:
            self.busy = False

    def _advance(self, recording: Recording) -> None:
        if self.step == recording.from_step:
            self._tell(RECORDING)  # before the step begins, so that it is not in it
        last = self.step >= recording.until_step
        if last:
            self._tell(SAVING)
        self.busy = True
        try:
            recording.profiler.step()
        finally:
            self.busy = False
        if last:
            self._stop(recording)

    def _stop(self, recording: Recording) -> None:
        """Ends the recording; the profiler calls _save if it was at an active step."""
        self.busy = True
        try:
            recording.profiler.stop()
        finally:
            self.busy = False
            self._cpp_log.restore()
            self._recording = None
            self._rested_from = self.step
            self._tell(WAITING if self._next < len(self._settings.cycles) else DONE)

    def _close_early(self, why: str) -> None:
        """Keeps the whole steps recorded so far, if there are any."""
        recording = self._recording
        assert recording is not None  # noqa: S101
        self.status.note(f"step {self.step}: the {recording.cycle.name} cycle was closed early: {why}")
        if self.step <= recording.from_step or not self._at_home(recording):
            self._abort()
            return
        recording.partial = True
        recording.closed_early = why
        self._tell(SAVING)
        self._stop(recording)

    def _abort(self) -> None:
        """Ends the recording and saves nothing."""
        recording, self._recording = self._recording, None
        self._rested_from = self.step
        if recording is None:
            return
        recording.profiler.on_trace_ready = None
        if self._at_home(recording):
            self.busy = True
            try:
                recording.profiler.stop()
            except Exception as error:
                self.status.note(f"step {self.step}: {type(error).__name__}: {error}")
            finally:
                self.busy = False
                self._cpp_log.restore()

    def _at_home(self, recording: Recording) -> bool:
        """Whether the profiler may be touched here: to stop it in another thread crashes the process."""
        return threading.get_ident() == recording.thread and os.getpid() == self._pid

    def _save(self, profiler: Any) -> None:
        recording = self._recording
        assert recording is not None  # noqa: S101
        until = min(self.step, recording.until_step)
        steps = until - recording.from_step
        window = {
            "cycle": recording.cycle.name,
            "warmup_from": recording.first_step,
            "from": recording.from_step,
            "until": until,
        }
        self.ledger.windows.append(window)
        try:
            self._inventory = self._inventory or take_inventory(self._torch)
            head = self._head(recording, window)
            file = save(profiler, self._settings.folder, self._worker(), head | self._tail())
        except Exception as error:
            self.status.trouble(f"step {self.step}: the trace of the {recording.cycle.name} cycle is lost: {error}")
            return
        self._files.append((file, head))
        self._interruptions = 0
        note = TraceNote(file.path.name, recording.cycle.name, steps, recording.cycle.active, recording.closed_early)
        self.status.traces.append(note)

    def _worker(self) -> str:
        number = rank(self._torch)
        return f"{self.status.host}_{self._pid}" + ("" if number is None else f"_rank{number}")

    def _head(self, recording: Recording, window: dict[str, Any]) -> dict[str, Any]:
        part = {
            "first_step": window["from"],
            "steps": window["until"] - window["from"],
            "partial_steps": [self.step] if recording.partial else [],
            "closed_early": recording.closed_early,
        }
        memory = {"before": recording.memory_before, "after": describe_memory(self._torch)}
        of_process = {"step_rule": self.status.step_rule, "memory": memory, **(self._inventory or {})}
        return of_cycle(self._torch, recording.cycle, part) | of_process

    def _tail(self) -> dict[str, Any]:
        """What grows with the run: written with the trace, and once more when the process ends."""
        loaders = self.loaders.document(self._control)
        return of_run(self.ledger, self.status.notes) | loaders

    def _tell(self, phase: str) -> None:
        self.status.phase = phase
        self.status.step = self.step
        if self._control is not None:
            self.status.write(self._control)


def _action(actions: Any, cycle: Cycle, step: int) -> Any:
    """torch.profiler.schedule without its warning where there is no warm-up."""
    if step < cycle.warmup:
        return actions.WARMUP
    if step < cycle.length - 1:
        return actions.RECORD
    return actions.RECORD_AND_SAVE if step == cycle.length - 1 else actions.NONE


def _started_by_multiprocessing() -> bool:
    """Whether this may be a DataLoader worker: such a process reports only if it trains."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None
