"""The numbers of the plan as text, the same in every format.

All have the same decimals: three digits of the plan's whole saving, and more if its smallest row would lose its second
digit above 10 ms, or its first. A saving is the difference of two steps as they are shown, so that a reader who
subtracts gets the step after it.
"""

from __future__ import annotations

from msgspec import Struct

from traceopt.reports.words.step_words import of_each_step, share_range
from traceopt.result.document import Result
from traceopt.result.finding import Saving
from traceopt.result.sections.work_rows import PlanRow
from traceopt.result.words import quantities


class RowTimes(Struct, frozen=True):
    """What a row of the plan saves after the rows above, at least and at most, what it saves alone, and the step before
    and after it, in µs as they are shown.
    """

    saves: float
    low: float
    high: float
    alone: float
    step_before: float
    step_after: float


class RowNumbers(Struct, frozen=True):
    """What a row of the plan saves after the rows above, what it saves alone, and the step after it, with units."""

    saves: str
    alone: str
    step_after: str


def row_times(row: PlanRow, result: Result) -> RowTimes:
    step_us = row.step_us_after + row.saving_us
    before, after, alone, low, high = (
        shown_time(us, result) for us in (step_us, row.step_us_after, row.alone_us, row.low_us, row.high_us)
    )
    saves = round(before - after, 6)
    if alone == shown_time(row.saving_us, result):
        alone = saves
    alone = max(alone, saves) if row.alone_us >= row.saving_us else min(alone, saves)
    return RowTimes(saves, min(low, saves), max(high, saves), alone, before, after)


def row_numbers(row: PlanRow, result: Result) -> RowNumbers:
    times = row_times(row, result)
    return RowNumbers(*(plan_time(us, result) for us in (times.saves, times.alone, times.step_after)))


def row_range(row: PlanRow, result: Result) -> str:
    """What the row saves at least and at most: "47–58 ms"; "24 ms" if both look the same."""
    times = row_times(row, result)
    low, high = plan_time(times.low, result), plan_time(times.high, result)
    return high if low == high else quantities.from_to(low, high, "–")


def beyond_measured(saving: Saving) -> str:
    """Why the range of a saving goes beyond what was measured; empty if it does not."""
    if saving.error_share is None:
        return ""
    off = quantities.percent(saving.error_share)
    return f"Beyond the measured time: earlier predictions were off by up to {off}."


def other_alone(row: PlanRow, result: Result) -> str:
    """Why a row saves another amount in the plan than alone, as the end of a clause; empty if both look the same."""
    times = row_times(row, result)
    if times.saves == times.alone:
        return ""
    if row.saving_us > row.alone_us:
        return ", where the fixes above uncover it"
    return ", where the fixes above save a part of it"


def step_before(row: PlanRow, result: Result) -> str:
    """The step with the fixes above the row: "1,096 ms"."""
    return plan_time(row_times(row, result).step_before, result)


def plan_time(us: float, result: Result) -> str:
    """Microseconds of the plan: "148 ms". All have the unit of the step."""
    combined = result.combined
    step_us = combined.step_us_after + combined.saving_us if combined is not None else 0.0
    return quantities.with_decimals(us, _decimals(result), step_us)


def shown_time(us: float, result: Result) -> float:
    """Microseconds of the plan as they are shown."""
    return round(round(us / 1e3, _decimals(result)) * 1e3, 6)


def _decimals(result: Result) -> int:
    savings = [row.saving_us / 1e3 for row in result.plan if row.saving_us > 0]
    if not savings:
        return 1
    combined = result.combined
    whole, smallest = combined.saving_us / 1e3 if combined is not None else sum(savings), min(savings)
    digits = min(quantities.decimals_of(whole, 3), max(1, quantities.decimals_of(whole)))
    return max(digits, min(0, quantities.decimals_of(smallest)), quantities.decimals_of(smallest, 1))


def saved_us(result: Result) -> float:
    """What the plan saves, as the difference of the steps before and after it."""
    combined = result.combined
    if combined is None:
        return 0.0
    before = shown_time(combined.step_us_after + combined.saving_us, result)
    return round(before - shown_time(combined.step_us_after, result), 6)


def saved_together(result: Result) -> str:
    """ "198 ms per step (48%, likely 35–78%)", "198 ms of the recording (48%)"; empty without a plan."""
    combined = result.combined
    if combined is None:
        return ""
    unit, likely = of_each_step(result), likely_share(result)
    share = quantities.percent(combined.share) + (f", likely {likely}" if likely else "")
    return f"{plan_time(saved_us(result), result)} {unit} ({share})"


def likely_share(result: Result) -> str:
    """ "35–78%": how much less the step likely takes after the plan; empty if it is one number, or not known."""
    combined = result.combined
    if combined is None or combined.low_us is None or combined.high_us is None:
        return ""
    step_us = combined.step_us_after + combined.saving_us
    return share_range(combined.low_us / step_us, combined.high_us / step_us) if step_us > 0 else ""


def step_after(result: Result) -> str:
    """The step after all fixes of the plan: "214 ms"; empty without a plan."""
    return "" if result.combined is None else plan_time(result.combined.step_us_after, result)
