"""Decides when a recording starts, ends, is saved or dropped; always between two steps, on the training thread.

There is one recording per cycle, and no profiler while waiting. The script's own profiler always takes precedence: two
profilers at once crash torch.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from ..metadata.caller_lines import call_lines
from ..metadata.document import of_cycle, of_run
from ..metadata.environment import describe_memory, rank, world_size
from ..metadata.inventory import take_inventory
from ..metadata.loaders import LoaderNotes
from ..metadata.step_ledger import Ledger
from ..settings import Settings
from ..status import DONE, RECORDING, SAVING, WAITING, WARMING_UP, Status, TraceNote
from .profiler_session import Recording
from .trace_file import TraceFile, save

RETRIES = 3  # of recordings interrupted by an evaluation or by the script's own profiler


class Recorder:
    """The Listener of the step tracker. `step` is the number of completed steps, and so the number of the
    current one.
    """

    def __init__(self, torch: Any, settings: Settings, control: str | None) -> None:
        self._torch = torch
        self._settings = settings
        self._control = control
        self.ledger = Ledger(self._gc_range)
        self.loaders = LoaderNotes()
        self.status = Status()
        self.step = 0
        self._pid = os.getpid()
        self._recording: Recording | None = None
        self._next = 0  # index of the next cycle
        self._rested_from = 0  # the step at which its wait began
        self._interruptions = self._yields = 0
        self._foreign = 0  # number of the script's profilers that are running
        self._files: list[tuple[TraceFile, dict[str, Any]]] = []
        self._inventory: dict[str, Any] | None = None
        self._finished = False
        self._helper = _started_by_multiprocessing()

    @property
    def files(self) -> list[Path]:
        """The traces written so far."""
        return [file.path for file, _ in self._files]

    @property
    def profiler(self) -> Any:
        """traceopt's own profiler, if there is one."""
        return self._recording.profiler if self._recording else None

    @property
    def busy(self) -> bool:
        """Whether traceopt is calling the profiler, as opposed to the script."""
        return self._recording is not None and self._recording.busy

    def step_ended(self, rule: str) -> None:
        """Raises SystemExit(0) if the user asked to stop after the last cycle."""
        recording = self._recording
        if self._finished or (recording is not None and not recording.in_own_thread):
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
        done = self._next == len(self._settings.cycles) and self._recording is None
        if done and self._settings.stop_after and self._files:
            raise SystemExit(0)

    def begin(self) -> None:
        """Marks the start of training, for scripts that do so explicitly; with wait 0 the first step is recorded."""
        self._begin_if_due()
        self.ledger.open_step()

    def fetched(self, loader: int, seconds: float, cpu_seconds: float, ended: bool) -> None:
        """The script spent this time in a loader for a batch, part of it on the CPU; `ended`: there was no
        batch left.
        """
        self.ledger.fetched(seconds)
        self.loaders.fetched(loader, seconds, cpu_seconds, ended)

    def workers_started(self, loader: int, seconds: float) -> None:
        self.ledger.fetched(seconds)
        self.loaders.started(loader, self.step, seconds)

    def interrupted(self, why: str) -> None:
        recording = self._recording
        if recording is None or self._interruptions >= RETRIES:
            return
        self._interruptions += 1
        self._close_early(recording, why)
        # No complete step was recorded: retry after the step that contains the interruption.
        if self.step <= recording.from_step:
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
        self.loaders.restarted()
        self.step = self._next = self._rested_from = 0

    def give_up(self, why: str) -> None:
        """Stops recording for good."""
        self.status.trouble(f"step {self.step}: {why}")
        self._abort()
        self._next = len(self._settings.cycles)
        self._tell(DONE)

    def own_profiler_begins(self) -> None:
        """The script is about to start a profiler: stop ours, and retry when theirs has ended."""
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
        """The process ends: save what was recorded so far and complete the metadata."""
        if self._finished or os.getpid() != self._pid:
            return
        self._finished = True
        try:
            if self._recording is not None:
                self._close_early(self._recording, why)
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
        """Called in a forked child: the profiler is the parent's. If the run has completed a step, the child is not
        recorded.
        """
        if self._recording is not None:
            self._torch.autograd._enable_record_function(False)
            sys.setprofile(None)
            self._recording.drop()
        self._finished = self._finished or self.step > 0
        self._helper = True
        self._recording = None
        self._pid = os.getpid()
        self._files = []
        self.status = Status()
        self.ledger.reset()
        self.step = self._next = self._rested_from = self._foreign = 0

    def _begin_if_due(self) -> None:
        if self._recording is not None or self._next == len(self._settings.cycles) or self._foreign:
            return
        cycle = self._settings.cycles[self._next]
        if self.step - self._rested_from < cycle.wait or self._torch.autograd._profiler_enabled():
            return
        recording = Recording(self._torch, cycle, self.step, self._save)
        self.status.cycle = cycle.name
        self.status.first_step, self.status.last_step = recording.from_step, recording.until_step - 1
        self._tell(WARMING_UP if cycle.warmup else RECORDING)
        self._next += 1
        self._recording = recording
        try:
            recording.start()
        except Exception:
            self._recording = None  # it never started, so stopping it would fail too
            raise

    def _advance(self, recording: Recording) -> None:
        if self.step == recording.from_step:
            self._tell(RECORDING)  # before the step begins, so that it is not part of it
        last = self.step >= recording.until_step
        if last:
            self._tell(SAVING)
        elif self.step > recording.from_step and self._too_long(recording):
            self._close_early(recording, f"it took more than {self._settings.time_limit_s:g} s", in_step=False)
            return
        recording.step()
        if last:
            self._stop(recording)

    def _too_long(self, recording: Recording) -> bool:
        """Never in a distributed run: its ranks would close at different steps."""
        return recording.recorded_s > self._settings.time_limit_s and (world_size(self._torch) or 1) == 1

    def _stop(self, recording: Recording) -> None:
        try:
            recording.stop()
        finally:
            self._recording = None
            self._rested_from = self.step
            self._tell(WAITING if self._next < len(self._settings.cycles) else DONE)

    def _close_early(self, recording: Recording, why: str, *, in_step: bool = True) -> None:
        """Saves the complete steps recorded so far, if any. `in_step`: another step has begun and is cut off."""
        self.status.note(f"step {self.step}: the {recording.cycle.name} cycle was closed early: {why}")
        if self.step <= recording.from_step or not recording.in_own_thread:
            self._abort()
            return
        recording.closed_early = why
        recording.partial_steps = [self.step] if in_step else []
        self._tell(SAVING)
        self._stop(recording)

    def _abort(self) -> None:
        """Ends the recording, if there is one, without saving it."""
        self._rested_from = self.step
        if self._recording is None:
            return
        try:
            self._recording.drop()
        except Exception as error:
            self.status.note(f"step {self.step}: {type(error).__name__}: {error}")
        finally:
            self._recording = None

    def _save(self, profiler: Any) -> None:
        recording = self._recording
        assert recording is not None  # noqa: S101
        cycle, until = recording.cycle, min(self.step, recording.until_step)
        window = {
            "cycle": cycle.name,
            "warmup_from": recording.first_step,
            "from": recording.from_step,
            "until": until,
        }
        self.ledger.windows.append(window)
        try:
            self._inventory = self._inventory or take_inventory(self._torch)
            head = self._head(recording, until)
            if cycle.with_stack:
                head["call_lines"] = call_lines(profiler)
            file = save(profiler, self._settings.folder, self._worker(), head | self._tail())
        except Exception as error:
            self.status.trouble(f"step {self.step}: could not save the trace of the {cycle.name} cycle: {error}")
            return
        self._files.append((file, head))
        self._interruptions = 0
        steps = until - recording.from_step
        note = TraceNote(file.path.name, cycle.name, steps, cycle.active, recording.closed_early)
        self.status.traces.append(note)

    def _gc_range(self) -> Any:
        """The range that marks a collection; None while the profiler itself is working."""
        if self._recording is None or self._recording.busy:
            return None
        return self._torch._C._profiler._RecordFunctionFast("traceopt: gc")

    def _worker(self) -> str:
        number = rank(self._torch)
        return f"{self.status.host}_{self._pid}" + ("" if number is None else f"_rank{number}")

    def _head(self, recording: Recording, until: int) -> dict[str, Any]:
        part = {
            "first_step": recording.from_step,
            "steps": until - recording.from_step,
            "partial_steps": recording.partial_steps,
            "closed_early": recording.closed_early,
        }
        memory = {"before": recording.memory_before, "after": describe_memory(self._torch)}
        of_process = {"step_rule": self.status.step_rule, "memory": memory, **(self._inventory or {})}
        return of_cycle(self._torch, recording.cycle, part) | of_process

    def _tail(self) -> dict[str, Any]:
        """What grows during the run: written with the trace, and again when the process ends."""
        loaders = self.loaders.document(self._control)
        return of_run(self.ledger, self.status.notes) | loaders

    def _tell(self, phase: str) -> None:
        self.status.phase = phase
        self.status.step = self.step
        if self._control is not None:
            self.status.write(self._control)


def _started_by_multiprocessing() -> bool:
    """Whether this may be a DataLoader worker. Such a process reports only if it trains."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None
