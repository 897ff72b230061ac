"""CM002: many small collectives, such as one per tensor."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from traceopt.analyzer.communication.collectives import CollectiveCalls
from traceopt.rules import (
    I8,
    Changes,
    DropSync,
    Evidence,
    Facts,
    Findings,
    Fix,
    Intervals,
    RemoveHost,
    Rule,
    area_of,
    by_site,
    calls_in,
    each_step,
    hide_collectives,
    host_bounds,
    median,
    microseconds,
    ms,
    named,
    per_step,
    percent,
    priced,
    site_locations,
    subtract,
    threshold,
)

LATE = 3  # times the median call: beyond this a rank may wait for another one
BUCKET_BYTES = 25 << 20  # of one coalesced call, as in DistributedDataParallel
UNKNOWN_CALLS = 4.0  # that remain if nothing shows what bytes cost
LIKELY = 0.8  # share of the calls' time that goes then
UNLIKELY = 0.4  # the same at worst: calls that depend on each other stay

IN_ONE_CALL = (
    "flat = torch.cat([t.flatten() for t in tensors])\n"
    "dist.all_reduce(flat)  # and divide it, if each call was followed by a division\n"
    "for t, part in zip(tensors, flat.split([t.numel() for t in tensors])):\n"
    "    t.copy_(part.view_as(t))"
)

IN_ONE_READ = Fix(
    "Stack the values into one tensor, reduce it once, and read it once.",
    "values = torch.stack(metrics)\ndist.all_reduce(values)  # and divide it, if each was divided\n"
    "values = values.tolist()  # one read",
)


class SmallCollectives(Rule):
    """Measures kinds of collectives that run many times per step, each on a small buffer.

    Why it costs: every collective has a fixed cost, whatever its size: 10 to 50 µs with NCCL, up to 1 ms with Gloo on
    CPUs, and about as much host time for the call. A hundred small calls pay it a hundred times; one large call pays it
    once.

    How to fix: flatten the tensors into one buffer, or let DDP's buckets do it.

        flat = torch.cat([p.grad.flatten() for p in params])
        dist.all_reduce(flat)                                  # one call, one fixed cost; divide as before
        for p, part in zip(params, flat.split([p.numel() for p in params])):
            p.grad.copy_(part.view_as(p))

        model = DistributedDataParallel(model, bucket_cap_mb=25)   # averages them during the backward pass

    When it is wrong: calls that depend on each other cannot be coalesced, such as those of tensor parallelism, one per
    layer; the rule does not apply to serving engines. Compute may already hide the calls: only exposed time counts, and
    host time while the GPU has no work. Time of a call beyond three times the median is not counted if the rank did
    other work before it: there it may wait for a late rank. If the sizes are known, the calls that remain are priced
    by what larger buffers take longer, so the estimate takes no further discount. If they are unknown or all equal,
    four calls remain, and 80% of the rest is expected to go. Host time is what the caller spends on the calls: while
    the GPU has no work, or on a CPU-only run while no collective runs.

    If the same line also reads a value after most calls, as of metrics, one read of all values is part of the fix and
    of the saving. Calls of other lines on large buffers, such as DDP's buckets, do not count.

    Sources: NCCL documentation, "Group Calls"; Li et al., "PyTorch Distributed" (VLDB 2020), gradient bucketing.
    """

    code = "CM002"
    name = "small-collectives"
    title = "Coalesce small collectives into one"
    family = "communication"
    confidence = "medium"

    min_share: float = threshold(0.01, "smallest exposed and host time of small collectives, as a share of the step")
    min_calls: int = threshold(30, "fewest calls of one kind per step")
    small_bytes: int = threshold(1 << 20, "largest median buffer that counts as small, in bytes")
    small_us: float = threshold(200.0, "longest median call that counts as small if sizes were not recorded, in µs")

    def applies(self, facts: Facts) -> str | None:
        if facts.serving_engine is not None:
            return "Each layer waits for its collective, so they cannot be coalesced."
        return None if facts.collectives else "No collectives in this trace."

    def check(self, facts: Facts) -> Findings:
        count = facts.steps.count
        # without what other lines call on large buffers, such as DDP's buckets
        small = [facts.collectives_of_sites(c, self._small) for c in facts.collectives if self._small(c)]
        many = [c for c in small if c.calls / count >= self.min_calls]
        exposed = sum(float(_own_ns(c).sum()) for c in many) / count
        calls = sum(c.calls for c in many) / count
        if not calls:
            return
        remain = min(calls, sum(_remaining_calls(c, count) for c in many))
        fewer = 1 - min(1.0, remain / calls)
        reads = _reads(facts, many)
        host = self._host_time(facts, many, reads)
        starved, host_ns, _ = host_bounds(facts, host, fewer)
        if exposed + starved < self.min_share * facts.step_ns:
            return
        gain = fewer * exposed
        most = (
            sum(float(c.exposed.sum()) * (1 - min(1.0, _fewest_calls(c, count) * count / c.calls)) for c in many)
            / count
        )
        share = LIKELY if any(_remaining_ns(c, count) is None for c in many) else 1.0
        waits = " that the GPU waits for" if facts.has_gpu else ""
        also = " and the reads of their results" if len(reads) else ""
        yield self.finding(
            why=(
                f"{calls:,.0f} small collectives {per_step(facts)} add {ms(exposed)} of exposed communication to "
                f"{each_step(facts)}."
                + (f" Their calls{also} take {ms(host_ns / fewer)} of host time{waits}." if host_ns else "")
            ),
            saving=priced(
                facts,
                (UNLIKELY * (gain + starved), share * (gain + host_ns), most + host_ns),
                [*self._coalesced(facts, many, host, share * fewer), *_unread(facts, reads)],
                f"Assumes that coalescing removes {'all' if share == 1 else percent(share)} of these calls' exposed "
                f"and host time, minus what a few large calls take. At worst {percent(UNLIKELY)} of that goes; at best "
                "the waits for late ranks and the time of the bytes go as well.",
                low=self._coalesced(facts, many, host, UNLIKELY * fewer),
                high=[*self._gone(facts, many, host), *_unread(facts, reads)],
            ),
            evidence=[
                Evidence(
                    what=named(c.name),
                    us_per_step=round(float(c.exposed.sum()) / count / 1e3, 3),
                    calls_per_step=round(c.calls / count, 3),
                    detail=f"median {microseconds(median(c.duration))} per call",
                    location=next(iter(site_locations(by_site(facts, c.launch, c.exposed))), None),
                )
                for c in many
            ],
            fix=IN_ONE_READ
            if len(reads)
            else Fix(
                "Flatten the tensors into one buffer, or let DDP's buckets do the reduction."
                if facts.trains
                else "Flatten the tensors that are ready at the same time into one buffer.",
                "tensors = [p.grad for p in params]\n" + IN_ONE_CALL if facts.trains else IN_ONE_CALL,
            ),
            shares_cause_with=["CM001"],
        )

    def _host_time(self, facts: Facts, many: list[CollectiveCalls], reads: I8) -> Intervals:
        """When the host makes these calls and reads their results. On a CPU-only run without the time in which
        collectives run, because that counts as exposed.
        """
        calls = np.concatenate([*(c.call for c in many), facts.syncs.cause_slice[reads]])
        area = area_of(facts, calls[calls >= 0])
        return area if facts.has_gpu else subtract(area, facts.cpu_phases.communication)

    def _coalesced(self, facts: Facts, many: list[CollectiveCalls], host: Intervals, share: float) -> Changes:
        """Each call loses a share of its exposed time and of its host time."""
        rows = np.concatenate([c.rows for c in many])
        shorter = hide_collectives(facts, rows, share * np.concatenate([_own_ns(c) for c in many]))
        return [*shorter, RemoveHost(host, share)] if len(host) else shorter

    def _gone(self, facts: Facts, many: list[CollectiveCalls], host: Intervals) -> Changes:
        """All exposed time and host time of the calls, as the bounds leave what remains."""
        gone = hide_collectives(
            facts, np.concatenate([c.rows for c in many]), np.concatenate([c.exposed for c in many])
        )
        return [*gone, RemoveHost(host)] if len(host) else gone

    def _small(self, calls: CollectiveCalls) -> bool:
        known = calls.bytes[calls.bytes >= 0]
        if 2 * len(known) >= calls.calls:
            return bool(median(known) <= self.small_bytes)
        return bool(median(calls.duration) <= self.small_us * 1e3)

    def passed(self, facts: Facts) -> str:
        most = max(c.calls for c in facts.collectives) / facts.steps.count
        return f"No kind of collective runs more than {most:,.0f} times per step."


def _reads(facts: Facts, many: list[CollectiveCalls]) -> I8:
    """The reads of single values in the functions that make these calls, if most calls have one: rows of syncs."""
    if not facts.has_gpu:
        return np.empty(0, np.int64)
    calls = np.concatenate([c.call for c in many])
    reads = facts.reads_of_sites(calls[calls >= 0])
    return reads if facts.syncs.calls(reads) > len(calls) / 2 else reads[:0]


def _unread(facts: Facts, reads: I8) -> Changes:
    return [DropSync(calls_in(facts, facts.syncs.slice[reads]))] if len(reads) else []


def _own_ns(calls: CollectiveCalls) -> npt.NDArray[np.float64]:
    """The exposed time of each call, without waits for late ranks. No rank can be late by more than it did since the
    previous collective, so a call that follows another one directly is long by itself: its thread waits for a core.
    """
    other_work = calls.since_last > median(calls.duration)
    most = np.where(other_work, LATE * median(calls.exposed), np.inf)
    return np.asarray(np.minimum(calls.exposed, most), np.float64)


def _remaining_calls(calls: CollectiveCalls, steps: int) -> float:
    """How many of these calls take as long as the coalesced ones that replace them, per step."""
    transfer_ns = _remaining_ns(calls, steps)
    longer = transfer_ns / float(_own_ns(calls).mean()) if transfer_ns is not None else 0.0
    return _fewest_calls(calls, steps) + longer


def _fewest_calls(calls: CollectiveCalls, steps: int) -> float:
    """How many calls remain per step at best: one for each 25 MB."""
    if _remaining_ns(calls, steps) is None:
        return UNKNOWN_CALLS
    return math.ceil(float(calls.bytes.sum()) / steps / BUCKET_BYTES)


def _remaining_ns(calls: CollectiveCalls, steps: int) -> float | None:
    """How long the bytes of a step take, ns, at the rate at which the largest buffers take longer than the smallest.
    None if nothing shows that rate.
    """
    size, time = calls.bytes, _own_ns(calls)
    if (size < 0).any() or size.min() == size.max() or not time.any():
        return None
    small, large = size <= np.percentile(size, 50), size >= np.percentile(size, 90)
    more_bytes = float(size[large].mean() - size[small].mean())
    more_ns = max(0.0, float(time[large].mean() - time[small].mean()))
    return float(size.sum()) / steps * more_ns / more_bytes if more_bytes else 0.0
