"""A machine whose runs take no time: what `Session` measures on it is known."""

from __future__ import annotations

import random
from collections.abc import Sequence

from traceopt.result.trial import TriedChange
from traceopt.trying.changes import Change, Prediction
from traceopt.trying.expectation import Recording
from traceopt.trying.measured_run import Failure, MeasuredRun
from traceopt.trying.session import Session


def a_run(step_us: float, wait: float | None = None, losses: Sequence[float] = (1.0, 0.5)) -> MeasuredRun:
    return MeasuredRun([step_us * factor for factor in (0.999, 1.0, 1.001)] * 10, list(losses), core_wait_share=wait)


def a_change(name: str, predicted_us: float | None = None) -> Change:
    alone = None if predicted_us is None else Prediction(predicted_us, predicted_us / 2, predicted_us)
    return Change(name, "environment", name, "environment", alone=alone)


class Machine:
    """Runs scripts that take a known time: `factors` are what each change does to the step. A run takes a second."""

    def __init__(self, noise: float = 0.0, seed: int = 0, **factors: float) -> None:
        self.now_s = 0.0
        self._factors = factors
        self._noise = noise
        self._random = random.Random(seed)  # noqa: S311

    def run(self, sides: Sequence[Sequence[Change]], /) -> list[MeasuredRun | Failure | None]:
        return [self._run(changes) for changes in sides]

    def _run(self, changes: Sequence[Change]) -> MeasuredRun:
        self.now_s += 1.0
        step_us = 1000.0 * self._random.gauss(1.0, self._noise)
        for change in changes:
            step_us *= self._factors[change.name]
        return a_run(step_us)

    def tried(
        self, *changes: Change, budget_s: float = 600.0, each: bool = False, recording: Recording | None = None
    ) -> list[TriedChange]:
        session = Session(self.run, budget_s=budget_s, each=each, recording=recording, clock=lambda: self.now_s)
        session.try_all(changes)
        return session.tried
