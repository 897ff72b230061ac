"""How long the script evaluates its model, and on which lines."""

from __future__ import annotations

import time
from types import CodeType

from .user_line import Places, UserLine, line_of_call, user_functions


class EvaluationClock:
    """An evaluation lasts from its first sign to its last one. Times are seconds, or microseconds where named so."""

    def __init__(self) -> None:
        self.running = False
        self._latest = 0.0  # the latest sign
        self._seconds = 0.0  # not taken yet
        self._of_this_one = 0.0
        self._place: UserLine | None = None
        self.places = Places()  # where the training loop calls for evaluations
        self._loop: set[CodeType] = set()  # functions of the user in which steps ended

    def step_ended(self) -> None:
        """The functions that are running hold the training loop."""
        self._loop |= user_functions()

    def sign(self) -> None:
        now = time.perf_counter()
        if self.running:
            self._seconds += max(0.0, now - self._latest)
            self._of_this_one += max(0.0, now - self._latest)
        else:
            self.running, self._of_this_one, self._place = True, 0.0, line_of_call(self._loop)
        self._latest = now

    def end(self) -> None:
        """Evaluations that consist of a single sign do not count."""
        self.running = False
        if self._of_this_one:
            self.places.add(self._place, self._of_this_one)

    def skip(self, seconds: float) -> None:
        """What the script or traceopt did meanwhile is no evaluation."""
        self._latest += seconds

    @property
    def so_far_us(self) -> float:
        """The time that `take_us` would return."""
        return self._seconds * 1e6

    def take_us(self) -> float:
        """The time since the last call, up to the latest sign."""
        us, self._seconds = self._seconds * 1e6, 0.0
        return us
