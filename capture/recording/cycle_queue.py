"""Which cycle is recorded next, and at which step it begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..settings import Cycle
from .trigger import StepTrigger


class CycleQueue:
    """The cycles, with their numbers in the settings. Those to record again come last. A request begins all anew."""

    def __init__(self, cycles: Sequence[Cycle], trigger: StepTrigger | None = None) -> None:
        self._of_settings = list(enumerate(cycles))
        self._trigger = trigger
        self._waits_for_trigger = trigger is not None
        self.restart()

    def restart(self) -> None:
        self._cycles = list(self._of_settings)
        self._next = 0
        self._rested_from = 0  # the step at which the wait of the next cycle began

    @property
    def is_done(self) -> bool:
        return self._next == len(self._cycles)

    @property
    def recording(self) -> int:
        """The number of the latest request, from 1."""
        return self._trigger.recordings if self._trigger is not None else 1

    def plain_step_ended(self, us: float) -> None:
        """A step without a profiler."""
        if self._trigger is not None:
            self._trigger.step_ended(us)

    def rest_from(self, step: int) -> None:
        self._rested_from = step

    def due(self, step: int, rank_count: Callable[[], int]) -> tuple[int, Cycle] | None:
        """The cycle that begins with this step."""
        if not self._may_begin(step, rank_count):
            return None
        number, cycle = self._cycles[self._next]
        return None if step - self._rested_from < cycle.wait else (number, cycle)

    def _may_begin(self, step: int, rank_count: Callable[[], int]) -> bool:
        """Whether a cycle is next, and what it waits for has happened."""
        if self._trigger is None or not (self._waits_for_trigger or self.is_done):
            return not self.is_done
        if not self._trigger.is_due(step, rank_count):
            return False
        self._trigger.begun()
        self._waits_for_trigger = False
        if self.is_done:
            self._cycles += [(len(self._cycles) + number, cycle) for number, cycle in self._of_settings]
        self._rested_from = step
        return True

    def take(self) -> None:
        """The cycle that was due has begun."""
        self._next += 1

    def put_back(self) -> None:
        """The cycle that was taken last is next again."""
        self._next -= 1

    def record_again(self, number: int, cycle: Cycle) -> None:
        """After the others."""
        self._cycles.append((number, cycle))

    def give_up(self) -> None:
        self._next = len(self._cycles)
