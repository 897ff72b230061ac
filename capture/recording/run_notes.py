"""What the traces of a process say about its run besides events: noted while it trains, for the key `traceopt`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..metadata.batch_size import samples_and_elements
from ..metadata.caller_lines import call_lines
from ..metadata.cleared_gradients import ClearedGradients
from ..metadata.constructions import Constructions
from ..metadata.document import of_cycle, of_run
from ..metadata.environment import describe_environment, describe_memory
from ..metadata.inventory import ByHand, take_inventory
from ..metadata.loading.loaders import LoaderNotes
from ..metadata.loading.opened_files import OpenedFiles
from ..metadata.step_ledger import LedgerWriter
from ..metadata.values.watched_values import WatchedValues
from ..start_up.start_up import StartUp
from .profiler_session import ProfilerSession
from .step_memory import StepMemory


class RunNotes:
    """A part that cannot be described is None, and `note` is told why: the recording is worth more."""

    def __init__(
        self,
        torch: Any,
        ledger: LedgerWriter,
        start_up: StartUp | None,
        may_look: Callable[[], bool],
        note: Callable[[str], None],
        *,
        timed: bool,
    ) -> None:
        """`start_up`: of this process, if traceopt has followed it from its start. `may_look`: at data, now."""
        self._torch = torch
        self._ledger = ledger
        self._may_look = may_look
        self._note = note
        self.start_up = start_up
        self.loaders = LoaderNotes()
        self.opened = OpenedFiles()
        self.constructions = Constructions()
        self.step_memory = StepMemory(torch)
        self.cleared_gradients = ClearedGradients(active=not timed)
        self.values = WatchedValues(torch)
        self._inventory: dict[str, Any] | None = None
        self._by_hand = ByHand(torch)

    def iterated(self, loader: Any) -> int:
        """The script has created an iterator of this loader. Returns the loader's key."""
        key = self.loaders.iterated(loader)
        if self._may_look():
            with self._ledger.own_work():
                self.loaders.look_into(key, loader)
        return key

    def fetching(self) -> None:
        """The script is about to ask an iterator of a loader for a batch."""
        if not self.opened.done and self._may_look():
            self.opened.begins()

    def fetched(self, loader: int, iterator: int, batch: Any, seconds: float, cpu_seconds: float, ended: bool) -> None:
        """The script spent this time in an iterator of a loader for a batch, part of it on the CPU; `ended`: there was
        no batch left.
        """
        self.opened.ends()
        self._ledger.fetched(seconds)
        if not ended:
            self.loaders.sized(self._torch, loader, batch)
            self._ledger.got_batch(*samples_and_elements(self._torch, batch))
            self._part(self._look_at_batch, batch, loader)
        self.loaders.fetched(loader, seconds, cpu_seconds, ended, iterator)

    def workers_started(self, loader: int, step: int, seconds: float, workers: Iterable[int]) -> None:
        self._ledger.fetched(seconds)
        self.loaders.started(loader, step, seconds, workers)

    def _look_at_batch(self, batch: Any, loader: int) -> None:
        if self._may_look() and not self.values.knows_batches:
            with self._ledger.own_work():
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

    def head(self, session: ProfilerSession, until: int, step_rule: str | None) -> dict[str, Any]:
        """What is known when a trace is written. `until`: the step after its last complete one."""
        self._inventory = (
            self._inventory or self._part(take_inventory, self._torch, self._by_hand, self.values.subnormals) or {}
        )
        part = {
            "first_step": session.from_step,
            "steps": until - session.from_step,
            "partial_steps": session.partial_steps,
            "evaluations": session.evaluations,
            "closed_early": session.closed_early,
        }
        memory = {"before": session.memory_before, "after": self._part(describe_memory, self._torch)}
        lines = {"call_lines": self._part(call_lines, session.profiler)} if session.cycle.with_stack else {}
        return {
            **of_cycle(self._torch, session.cycle, part),
            "environment": self._part(describe_environment, self._torch),
            "step_rule": step_rule,
            "memory": memory,
            **self._inventory,
            **lines,
        }

    def tail(self, notes: list[str], control: str | None) -> dict[str, Any]:
        """What grows during the run: written with each trace, and again when the process ends."""
        return {
            **of_run(self._ledger, notes),
            **(self._part(self.loaders.document, control) or {}),
            **(self._part(self.constructions.document) or {}),
            "cleared_gradients": self._part(self.cleared_gradients.document) or [],
            "padding": self._part(self.values.padding.document) or [],
            "opened_files": self._part(self.opened.document) or [],
            "mostly_zero": self._part(self.values.mostly_zero.document) or [],
            "start_up": self._part(self.start_up.document) if self.start_up is not None else None,
            "step_memory": self.step_memory.document(),
        }

    def look_again(self) -> None:
        """At the end of the run, at weights that no optimizer updates."""
        self._part(self._by_hand.look_again)

    def looped_step(self) -> str | None:
        """What `--step-on` may name in a run that has ended no step."""
        looped: str | None = self._part(self.start_up.looped_step) if self.start_up is not None else None
        return looped

    def restarted(self) -> None:
        """The steps so far were no training steps."""
        self.step_memory.reset()
        if self.start_up is not None:
            self.start_up.goes_on()
        self.loaders.restarted()

    def _part(self, describe: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return describe(*arguments)
        except Exception as error:
            self._note(f"{describe.__name__}: {type(error).__name__}: {error}")
            return None
