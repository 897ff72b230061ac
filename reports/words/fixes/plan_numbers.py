"""The numbers of the plan as text, the same in every format.

Savings and steps get as many decimals as three digits of the plan's whole saving have. So a reader can check that the
step minus a saving is the step after it.
"""

from __future__ import annotations

from msgspec import Struct

from traceopt.reports.words.step_words import of_each_step, share_range
from traceopt.result.document import Result
from traceopt.result.finding import Saving
from traceopt.result.sections.work_rows import PlanRow
from traceopt.result.words import quantities


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


def beyond_measured(saving: Saving) -> str:
    """Why the range of a saving goes beyond what was measured; empty if it does not."""
    if saving.error_share is None:
        return ""
    off = quantities.percent(saving.error_share)
    return f"Beyond the measured time: earlier predictions were off by up to {off}."


def other_alone(row: PlanRow, result: Result) -> str:
    """Why a row saves another amount in the plan than alone, as the end of a clause; empty if both look the same."""
    planned, alone = plan_time(row.saving_us, result), plan_time(row.alone_us, result)
    if planned == alone:
        return ""
    if row.saving_us > row.alone_us:
        return ", where the fixes above uncover it"
    return ", where the fixes above save a part of it"


def step_before(row: PlanRow, result: Result) -> str:
    """The step with the fixes above the row: "1,096 ms"."""
    return plan_time(row.step_us_after + row.saving_us, result)


def plan_time(us: float, result: Result) -> str:
    """Microseconds of the plan: "148 ms". All have the unit of the step."""
    combined = result.combined
    saving_us = combined.saving_us if combined is not None else sum(row.saving_us for row in result.plan)
    step_us = combined.step_us_after + combined.saving_us if combined is not None else 0.0
    return quantities.as_precise_as(us, saving_us / 10, step_us)


def saved_together(result: Result) -> str:
    """ "198 ms per step (48%, likely 35–78%)", "198 ms of the recording (48%)"; empty without a plan."""
    combined = result.combined
    if combined is None:
        return ""
    unit, likely = of_each_step(result), likely_share(result)
    share = quantities.percent(combined.share) + (f", likely {likely}" if likely else "")
    return f"{plan_time(combined.saving_us, result)} {unit} ({share})"


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
