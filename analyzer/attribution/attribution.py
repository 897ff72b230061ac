"""What every attribution of time offers: the time of each step by cause."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary.causes.cause import Cause


class Attribution(Struct, frozen=True, dict=True):
    """Exclusive time of the steps by cause. A subclass says which causes it knows, and their time in each step."""

    steps: Steps

    @property
    def causes(self) -> Sequence[Cause]:
        raise NotImplementedError

    @property
    def by_step(self) -> I8:
        """Shape (steps, causes), ns."""
        raise NotImplementedError

    def of_steps(self, cause: Cause) -> I8:
        """Time in each step due to a cause. Shape (steps,), ns."""
        return self.by_step[:, self.causes.index(cause)]

    def total_ns(self, cause: Cause) -> int:
        """Time of all steps due to a cause; 0 for a cause that this attribution does not know."""
        return int(self.of_steps(cause).sum()) if cause in self.causes else 0

    def typical_ns(self, *causes: Cause) -> float:
        """Time per step due to these causes."""
        return sum(map(self.total_ns, causes)) / self.steps.count
