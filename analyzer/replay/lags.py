"""How soon each piece of work started after what it waited for: its launch, the previous work, another stream."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.replay.queues import BEFORE, EARLY, Queues
from traceopt.analyzer.replay.waits import TOLERANCE_NS
from traceopt.analyzer.tables.schema import I8, Mask

LATENCY_NS, LEAD_NS = 3_000, 1_000  # used if a trace has too few examples of its own
MIN_EXAMPLES = 5
MAX_LAG_NS = 30_000  # work that starts later than this after everything it is known to wait for has another reason

DRAIN_NS = 100_000  # this long before the end of a kernel that fills the device, other kernels find room


class Lags(Struct, frozen=True):
    """One row per piece of work, as in Queues; arrays have shape (len,), times in ns."""

    latency: I8  # since the host issued it; EARLY: unknown when that was
    lead: I8  # since the end of the previous work on its stream
    awaits: I8  # row of `Queues` on another stream, -1: none
    wake: I8  # since the end of that row
    inferred: Mask
    unexplained: I8  # how much later it started than all of this explains


def find_lags(queues: Queues, issued_at: I8, own_time: Mask, awaits: I8, inferred: Mask) -> Lags:
    """Derives the lags. `issued_at` is when the host issued each row; `awaits` and `inferred` come from stream waits;
    `own_time` marks work with a variable start time: graphs, and collectives, which wait for other ranks.

    The condition that was met last gets the observed lag; the others get the usual lag, because after a change they may
    be met last. A start that no condition explains is attributed to another stream whose work had just ended, or was
    about to end and left room. Any remaining delay is `unexplained`, and a replay does not repeat it.
    """
    known = queues.launched != BEFORE
    delay = np.where(known, queues.start - issued_at, EARLY)
    slack = queues.start - queues.before
    latency = _usual(delay[known & (queues.before < issued_at - MAX_LAG_NS)], LATENCY_NS)
    lead = _usual(slack[known & (issued_at < queues.before - MAX_LAG_NS)], LEAD_NS)

    def late_by(awaits: I8, wake: I8) -> tuple[I8, I8]:
        """Which condition was met last, and how much later than that plus its usual lag each row started."""
        launched, before = np.where(known, issued_at + latency, EARLY), queues.before + lead
        ready = np.maximum(np.maximum(launched, before), queues.end_of(awaits) + wake)
        return np.where(launched == ready, 0, np.where(before == ready, 1, 2)), queues.start - ready

    usual_wake = np.full(len(queues), lead)
    last, late = late_by(awaits, usual_wake)
    strange = np.flatnonzero(known & (late > MAX_LAG_NS) & ~own_time)
    found, about = _neighbor(queues, strange)
    awaits, inferred = awaits.copy(), inferred.copy()
    awaits[strange[about]], inferred[strange[about]] = found[about], True
    wait = np.where(awaits >= 0, queues.start - queues.end_of(awaits), 0)
    last, late = late_by(awaits, np.minimum(wait, usual_wake))

    seen = np.where(known & ~own_time, late <= MAX_LAG_NS, True)
    return Lags(
        latency=np.where((last == 0) & seen, delay, np.minimum(delay, latency)),
        lead=np.where((last == 1) & seen, slack, np.minimum(slack, lead)),
        awaits=awaits,
        wake=np.where((last == 2) & seen, wait, np.minimum(wait, lead)),
        inferred=inferred,
        unexplained=np.where(seen, 0, late),
    )


def _neighbor(queues: Queues, rows: I8) -> tuple[I8, Mask]:
    """For each row, the work of another stream that ends closest to its start, and whether it is close enough."""
    call, start = queues.call[rows], queues.start[rows]
    candidates = np.stack((queues.last_done(call, start + TOLERANCE_NS), queues.last_begun(call, start)))
    after = queues.end_of(candidates) - start
    near = (after >= -MAX_LAG_NS) & (after <= DRAIN_NS)
    near[:, queues.stream[rows], np.arange(len(rows))] = False
    candidates = np.where(near, candidates, -1).reshape(2 * queues.streams, len(rows))
    found = queues.latest(candidates)
    return found, found >= 0


def _usual(examples: I8, default: int) -> int:
    if len(examples) < MIN_EXAMPLES:
        return default
    return int(np.clip(median(examples), 0, MAX_LAG_NS))
