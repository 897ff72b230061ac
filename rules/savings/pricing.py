"""Prices fixes: the step replayed without and with the fix, within the measured bounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from traceopt.analyzer.arrays.grouping import distinct
from traceopt.analyzer.arrays.intervals import EMPTY, Intervals, intersect, merge
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.facts.replay import EVENT_NS
from traceopt.analyzer.replay.changes import AsyncCopy, Change, DropSync, RemoveHost, ScaleWork
from traceopt.analyzer.tables.schema import Mask
from traceopt.analyzer.timeline.call_tree import RUNTIME
from traceopt.analyzer.vocabulary.causes.table import COMMUNICATION
from traceopt.analyzer.work.gemms import GemmShape
from traceopt.result.finding import impact_of_share
from traceopt.result.words.message import microseconds, ms
from traceopt.result.words.rounding import SHARE_DECIMALS
from traceopt.rules.savings.correction import correction_of
from traceopt.rules.savings.known_error import MAX_SAVED_SHARE
from traceopt.rules.savings.price import Price, Priced
from traceopt.rules.savings.starvation import launched_ns, saving

Changes = Sequence[Change]

UNLIKE = 0.1  # of the cost in the typical step: a mean of all steps that differs more is mentioned
ALIKE = 0.99  # of the high saving: a low one of this size is the same
UNKNOWN_COST = (
    " How much recording slowed the host was not measured: the range covers up to "
    f"{microseconds(EVENT_NS[1])} an event."
)
MENTIONED_SHARE = 0.05  # of the time that a fix removes: a smaller profiler cost is not mentioned


def priced(
    facts: Facts,
    bounds_ns: tuple[float, float, float],
    expected: Changes,
    basis: str,
    *,
    low: Changes | None = None,
    high: Changes | None = None,
    without_replay_ns: float | None = None,
    least_step_ns: float = 0.0,
) -> Price:
    """`bounds_ns`: the measured cost per step: low, expected and at most. The replay never promises more, and if
    nothing can be replayed, the bounds are the saving.

    Where the replay finds how much of the cost a partial change removes, the expected bound is all of the cost: a
    discount in it would count twice. `without_replay_ns` is the expected saving then, if nothing can be replayed.

    `low`, `high`: what the fix changes at worst and at best; None: as expected. `least_step_ns`: see `Price`.
    """
    worst, best = (expected if end is None else end for end in (low, high))
    gains = bounds_ns if without_replay_ns is None else (bounds_ns[0], without_replay_ns, bounds_ns[2])
    if facts.replay_error is not None and facts.quality.sampled_share is None:
        est = gain_ns(facts, expected)
        least = est if low is None else gain_ns(facts, low)
        most = est if high is None else gain_ns(facts, high)
        gains = min(least, bounds_ns[0]), min(est, bounds_ns[1]), min(max(est, most), bounds_ns[2])
        if low is not None and high is not None and gains[0] > ALIKE * gains[2]:
            basis += " The low and high estimates are alike, because another part of the step becomes the limit."
        basis += _without_profiler(facts, expected)
        if facts.recording_cost_unknown and _of_host(expected):
            wider = _with_unknown_recording(facts, expected, gains)
            basis += UNKNOWN_COST if wider != gains else ""
            gains = wider
    if facts.has_gpu and not _of_host(expected) and not facts.limit.busy:
        gains = 0.0, *gains[1:]  # the device waits: faster, it may wait as much longer
    return replace(
        saving(facts, *gains, basis),
        changes=tuple(expected),
        worst=tuple(worst),
        best=tuple(best),
        bounds_ns=bounds_ns,
        least_step_ns=least_step_ns,
        by_replay=True,
    )


def over_all_steps(facts: Facts, price: Price, typical_ns: float, mean_ns: float) -> Price:
    """The price with a low end that also covers the mean of all recorded steps, if that is less: no fix saves more of a
    step than the step has. `typical_ns`, `mean_ns`: the cost in the typical step, and on average in all of them.
    """
    basis = price.basis
    if is_unlike(typical_ns, mean_ns):
        basis += f" In all {facts.recorded_steps.count:,} steps, unusual ones included, it is {ms(mean_ns)} on average."
    return within(facts, price, min(price.low_ns, mean_ns / typical_ns * price.est_ns), price.high_ns, basis)


def is_unlike(typical_ns: float, mean_ns: float) -> bool:
    """Whether a cost in the typical step says little about the mean of all steps."""
    return abs(mean_ns / typical_ns - 1) > UNLIKE


def within(facts: Facts, price: Price, low_ns: float, high_ns: float, basis: str) -> Price:
    """The price with another range."""
    other = saving(facts, low_ns, price.est_ns, high_ns, basis)
    return replace(price, low_ns=other.low_ns, high_ns=other.high_ns, basis=basis)


def corrected(fix: Priced, facts: Facts) -> Priced:
    """The finding with the saving that follows from earlier trials of its rule on this machine, if there were any."""
    price, correction = fix.price, correction_of(facts.tried_here, fix.finding.code)
    if price is None or fix.finding.saving is None or not correction.trials:
        return fix
    ends = (
        min(end, MAX_SAVED_SHARE * facts.step_ns) for end in correction.of(price.low_ns, price.est_ns, price.high_ns)
    )
    low_ns, est_ns, high_ns = map(round, ends)
    now = replace(
        price,
        low_ns=low_ns,
        est_ns=est_ns,
        high_ns=high_ns,
        share=round(est_ns / facts.step_ns, SHARE_DECIMALS),
        basis=price.basis + correction.words,
        correction=correction,
    )
    return replace(fix, finding=replace(fix.finding, saving=now.saving, impact=impact_of_share(now.share)), price=now)


def unrecorded_gain_ns(facts: Facts, changes: Changes, event_ns: int = EVENT_NS[0]) -> float:
    """What changes save if recording an event cost the host so much: the same share of the recorded step."""
    before = facts.replayed_without_recording[event_ns]
    return facts.step_ns * (1 - facts.replay([*before.changes, *changes]).step_ns / before.step_ns)


def _with_unknown_recording(
    facts: Facts, changes: Changes, gains_ns: tuple[float, float, float]
) -> tuple[float, float, float]:
    """The gains with a range for any cost of recording. The faster the host, the less its work costs. But a sync that
    seems to cost nothing may keep a faster host from getting ahead.
    """
    low, expected, high = gains_ns
    others = [unrecorded_gain_ns(facts, changes, event_ns) for event_ns in EVENT_NS]
    waits = all(isinstance(change, DropSync) for change in changes)
    return min(low, *others), expected, max(high, *others) if waits else high


def _without_profiler(facts: Facts, changes: Changes) -> str:
    """A sentence on how much of the removed time is recording overhead, if it is a significant part."""
    areas = [change.area for change in changes if isinstance(change, RemoveHost)]
    removed = merge(*areas) if areas else EMPTY
    cost = intersect(removed, facts.profiler_cost).total
    if cost <= MENTIONED_SHARE * removed.total:  # 0 <= 0: no host time is removed
        return ""
    return f" Excludes {ms(cost / facts.steps.count)} of profiler overhead in the recorded time."


def gain_ns(facts: Facts, changes: Changes) -> float:
    """How much the changes shorten the step: as a share of the measured step, because the replay may differ from it
    slightly.
    """
    return facts.step_ns * (1 - facts.replay(changes).step_ns / facts.replayed.step_ns)


def on_host(fix: Priced) -> bool:
    """Whether the fix speeds up the host rather than the device."""
    return _of_host(fix.changes)


def _of_host(changes: Changes) -> bool:
    return any(isinstance(change, RemoveHost | DropSync | AsyncCopy) for change in changes)


def area_of(facts: Facts, slices: npt.NDArray[np.integer]) -> Intervals:
    """The times when any of these slices ran."""
    return facts.slices.area_of(slices)


def without_calls(facts: Facts, slices: npt.NDArray[np.integer], share: float = 1.0) -> Changes:
    """The host spends `share` less time in slices (calls, or operators and frames around them) and waits in none."""
    return [RemoveHost(area_of(facts, slices), share), DropSync(calls_in(facts, slices))]


def calls_in(facts: Facts, slices: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """The runtime calls (rows of the trace's table) that are these slices or lie inside them."""
    around = facts.slices.mask(slices)
    calls = facts.slices.of(RUNTIME, len(facts.trace.runtime))
    return np.flatnonzero(facts.slices.nearest(around)[calls] >= 0)


def priced_work(facts: Facts, work: Mask, gains_ns: tuple[float, float, float], basis: str) -> Price:
    """Masked work takes this much less time per step (low, expected, high), divided over its rows by duration."""
    low, expected, high = (shorter(facts, work, gain) for gain in gains_ns)
    worst, best = (low, high) if gains_ns[0] < gains_ns[2] else (None, None)  # nothing is assumed
    return priced(facts, gains_ns, expected, basis, low=worst, high=best)


def priced_host(
    facts: Facts,
    area: Intervals,
    cost_ns: float,
    shares: tuple[float, float, float],
    basis: str,
    *,
    faster: bool = False,
    least_step_ns: float = 0.0,
) -> Price:
    """These shares of the host's time in an area go away (low, expected, high). `cost_ns`: what it costs per step.
    `faster`: see `RemoveHost`.
    """
    low, expected, high = ([RemoveHost(area, share, faster)] for share in shares)
    bounds_ns = shares[0] * cost_ns, shares[1] * cost_ns, shares[2] * cost_ns
    return priced(facts, bounds_ns, expected, basis, low=low, high=high, least_step_ns=least_step_ns)


def work_of(facts: Facts, shapes: Sequence[GemmShape]) -> Mask:
    """The GPU work in the window of matmuls with these shapes."""
    rows = np.concatenate([shape.rows for shape in shapes]) if shapes else np.empty(0, np.int64)
    return np.asarray(np.isin(facts.gemms.owner, rows) & facts.gpu.is_inside)


def shorter(facts: Facts, work: Mask, gain_ns: float) -> Changes:
    """Masked work takes this much less time per step, divided over its rows by duration."""
    inside = float(facts.gpu.step_ns[work].sum()) / facts.steps.count
    total = launched_ns(facts, work) if _goes_beyond(facts, work) else inside
    return scaled(facts, work, max(0.0, 1 - gain_ns / total)) if total else []


def hide(facts: Facts, rows: npt.NDArray[np.int64], gain_ns: npt.NDArray[np.floating | np.integer]) -> Changes:
    """Each of these rows of GPU work takes this much less time."""
    work = np.zeros(len(facts.gpu.work), bool)
    work[rows] = True
    factor = np.ones(len(work))
    factor[rows] = np.maximum(1 - gain_ns / np.maximum(facts.gpu.work.duration[rows], 1), 0)
    return scaled(facts, work, factor)


def hide_collectives(
    facts: Facts, rows: npt.NDArray[np.int64], gain_ns: npt.NDArray[np.floating | np.integer]
) -> Changes:
    """The same for collectives (rows as in CollectiveCalls), also on a CPU-only run: there, the waits for all of them
    shrink together.
    """
    if facts.has_gpu:
        return hide(facts, rows, gain_ns)
    waits = intersect(area_of(facts, rows), facts.cpu_phases.areas[COMMUNICATION])
    return [RemoveHost(waits, min(1.0, float(gain_ns.sum()) / max(1, waits.total)))]


def scaled(facts: Facts, work: Mask, factor: float | npt.NDArray[np.float64]) -> Changes:
    """Masked work takes `factor` times as long.

    A mask limited to the typical steps misses the work of the others, behind which that of typical steps may wait. So
    it is scaled like work of the same name in the typical steps.
    """
    inside = facts.gpu.is_inside
    if inside.all() or _goes_beyond(facts, work):
        return [ScaleWork(work, factor)]
    factors = np.where(work, factor, 1.0)
    codes, name = distinct(facts.gpu.work.name)
    before = np.bincount(name, weights=facts.gpu.in_window, minlength=len(codes))
    after = np.bincount(name, weights=facts.gpu.in_window * factors, minlength=len(codes))
    usual = np.divide(after, before, out=np.ones(len(codes)), where=before > 0)
    return [ScaleWork(np.ones(len(work), bool), np.where(inside, factors, usual[name]))]


def _goes_beyond(facts: Facts, work: Mask) -> bool:
    """Whether a mask includes work that ran outside the window."""
    return bool((work & ~facts.gpu.is_inside).any())
