"""The numbers of the plan as text, the same in every format.

Savings and steps get as many decimals as three digits of the plan's whole saving have. So a reader can check that the
step minus a saving is the step after it.
"""

from __future__ import annotations

from msgspec import Struct

from traceopt.reports.words.step_words import of_each_step
from traceopt.result import quantities
from traceopt.result.document import Result
from traceopt.result.rows import PlanRow


class RowNumbers(Struct, frozen=True):
    """What a row of the plan saves after the rows above, what it saves alone, and the step after it, with units."""

    saves: str
    alone: str
    step_after: str


def row_numbers(row: PlanRow, result: Result) -> RowNumbers:
    return RowNumbers(*(plan_time(us, result) for us in (row.saving_us, row.alone_us, row.step_us_after)))


def row_range(row: PlanRow, result: Result) -> str:
    """What the row saves at least and at most: "47–58 ms"; "24 ms" if both look the same."""
    low, high = plan_time(row.low_us, result), plan_time(row.high_us, result)
    return high if low == high else quantities.from_to(low, high, "–")


def step_before(row: PlanRow, result: Result) -> str:
    """The step with the fixes above the row: "1,096 ms"."""
    return plan_time(row.step_us_after + row.saving_us, result)


def plan_time(us: float, result: Result) -> str:
    """Microseconds of the plan: "148 ms"."""
    whole_us = result.combined.saving_us if result.combined is not None else sum(row.saving_us for row in result.plan)
    return quantities.as_precise_as(us, whole_us / 10)


def saved_together(result: Result) -> str:
    """ "198 ms per step (48%)", "198 ms of the recording (48%)"; empty without a plan."""
    combined = result.combined
    if combined is None:
        return ""
    unit = of_each_step(result)
    return f"{plan_time(combined.saving_us, result)} {unit} ({quantities.percent(combined.share)})"


def step_after(result: Result) -> str:
    """The step after all fixes of the plan: "214 ms"; empty without a plan."""
    return "" if result.combined is None else plan_time(result.combined.step_us_after, result)
