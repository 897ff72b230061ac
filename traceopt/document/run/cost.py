"""What the steps cost, by the price of the job that the user gave."""

from __future__ import annotations

from msgspec.structs import replace

from traceopt.result.document import Result
from traceopt.result.sections.run import Cost

US_PER_HOUR = 3.6e9


def with_cost(result: Result, price_per_hour: float | None) -> Result:
    """The document with the cost of a step; unchanged without a price, or without a step that can be judged."""
    step_us = result.step.typical_us
    if price_per_hour is None or not step_us or result.quality.verdict == "unusable":
        return result

    def dollars(us: float) -> float:
        return float(f"{us / US_PER_HOUR * price_per_hour:.6g}")

    return replace(
        result,
        cost=Cost(
            price_per_hour=price_per_hour,
            per_step=dollars(step_us),
            of_run=None if result.whole_run is None else dollars(result.whole_run.us),
            saved_per_step=None if result.combined is None else dollars(result.combined.saving_us),
        ),
    )
