"""Bars of a step before and after, made of letters: what a comment shows where no picture can be."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

from msgspec import Struct

from traceopt.analyzer.vocabulary.causes.table import COMMUNICATION, COPIES
from traceopt.reports.text.markdown_escaping import code_block
from traceopt.reports.words import step_words
from traceopt.reports.words.fixes import plan_numbers
from traceopt.result.comparison import Comparison
from traceopt.result.document import Result
from traceopt.result.words import quantities

BAR_COLUMNS = 40  # of the longest bar
IDLE, MOVING, BUSY = "░▒█"
_WORDS = {MOVING: "exposed communication and copies", BUSY: "compute"}


class _Bar(Struct, frozen=True):
    """A step: its name, its time in words, and its times by letter."""

    name: str
    time: str
    us: dict[str, float]


def now_and_after(result: Result) -> str:
    """The step now, and after the plan; "" if one is not known."""
    combined = result.combined
    if combined is None or not combined.breakdown_after or not result.breakdown:
        return ""
    before, after = (
        _by_letter((part.name, part.busy, part.us_per_step) for part in parts)
        for parts in (result.breakdown, combined.breakdown_after)
    )
    now = _Bar("Now", quantities.ms_of_us(sum(before.values())), before)
    then = _Bar("After the plan", f"≈ {plan_numbers.step_after(result)}", after)
    return _drawn(now, then, step_words.sides(result).idle)


def base_and_head(comparison: Comparison) -> str:
    """The step of both sides; "" if they cannot be compared."""
    if not comparison.comparable:
        return ""
    base = _by_letter((part.name, part.busy, part.base_us) for part in comparison.breakdown)
    head = _by_letter((part.name, part.busy, part.head_us) for part in comparison.breakdown)
    before, after = (quantities.ms_of_us(sum(side.values())) for side in (base, head))
    return _drawn(_Bar("BASE", before, base), _Bar("HEAD", after, head), "idle")


def _by_letter(parts: Iterable[tuple[str, bool, float]]) -> dict[str, float]:
    """The times of parts, given with their names and whether the GPU works."""
    times = dict.fromkeys((IDLE, MOVING, BUSY), 0.0)
    for name, busy, us in parts:
        moves = name in (COMMUNICATION.key, COPIES.key)
        times[IDLE if not busy else MOVING if moves else BUSY] += us
    return times


def _drawn(one: _Bar, other: _Bar, idle: str) -> str:
    longest_us = max(sum(bar.us.values()) for bar in (one, other))
    if longest_us <= 0:
        return ""
    names, times = (max(len(getattr(bar, field)) for bar in (one, other)) for field in ("name", "time"))
    lines = []
    for bar in (one, other):
        ends = [round(BAR_COLUMNS * us / longest_us) for us in accumulate(bar.us.values())]
        letters = "".join(letter * (end - start) for letter, start, end in zip(bar.us, [0, *ends], ends, strict=False))
        lines.append(f"{bar.name:<{names}}  {bar.time:>{times}}  {letters}")
    words = {IDLE: idle, **_WORDS}
    legend = "   ".join(f"{letter} {words[letter]}" for letter in words if any(letter in line for line in lines))
    lines.append(f"{'':<{names}}  {'':>{times}}  {legend}")
    return code_block("\n".join(lines), "text")
