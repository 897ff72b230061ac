"""Bars of a step before and after, made of letters: what a comment shows where no picture can be."""

from __future__ import annotations

from msgspec import Struct

from traceopt.reports.text.markdown_escaping import code_block
from traceopt.reports.words import step_words
from traceopt.reports.words.fixes import plan_numbers
from traceopt.result.comparison import Comparison
from traceopt.result.document import Result
from traceopt.result.words import quantities

BAR_COLUMNS = 40  # of the longest bar
IDLE, BUSY = "░", "█"


class _Bar(Struct, frozen=True):
    """A step: its name, its time in words, and its two sides."""

    name: str
    time: str
    idle_us: float
    busy_us: float

    @property
    def us(self) -> float:
        return self.idle_us + self.busy_us


def now_and_after(result: Result) -> str:
    """The step now, and after the plan; "" if one is not known."""
    combined = result.combined
    if combined is None or not combined.breakdown_after or not result.breakdown:
        return ""
    before, after = (
        [sum(part.us_per_step for part in parts if part.busy is busy) for busy in (False, True)]
        for parts in (result.breakdown, combined.breakdown_after)
    )
    now = _Bar("Now", quantities.ms_of_us(sum(before)), *before)
    then = _Bar("After the plan", f"≈ {plan_numbers.step_after(result)}", *after)
    words = step_words.sides(result)
    return _drawn(now, then, words.idle, words.busy)


def base_and_head(comparison: Comparison) -> str:
    """The step of both sides; "" if they cannot be compared."""
    if not comparison.comparable or not comparison.breakdown:
        return ""
    base, head = (
        [sum(getattr(part, side) for part in comparison.breakdown if part.busy is busy) for busy in (False, True)]
        for side in ("base_us", "head_us")
    )
    before, after = quantities.ms_of_us(sum(base)), quantities.ms_of_us(sum(head))
    return _drawn(_Bar("BASE", before, *base), _Bar("HEAD", after, *head), "idle", "busy")


def _drawn(one: _Bar, other: _Bar, idle: str, busy: str) -> str:
    longest_us = max(one.us, other.us)
    if longest_us <= 0:
        return ""
    names, times = (max(len(getattr(bar, field)) for bar in (one, other)) for field in ("name", "time"))
    lines = []
    for bar in (one, other):
        columns = max(1, round(BAR_COLUMNS * bar.us / longest_us))
        idle_columns = round(columns * bar.idle_us / bar.us) if bar.us else 0
        drawn = IDLE * idle_columns + BUSY * (columns - idle_columns)
        lines.append(f"{bar.name:<{names}}  {bar.time:>{times}}  {drawn}")
    lines.append(f"{'':<{names}}  {'':>{times}}  {IDLE} {idle}   {BUSY} {busy}")
    return code_block("\n".join(lines), "text")
