"""CM003: collectives take far longer than their size justifies."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from traceopt.analyzer.communication.collectives import CollectiveCalls
from traceopt.analyzer.communication.late_waits import UNEVEN, LateWaits
from traceopt.analyzer.communication.stage_waits import SEND_RECV
from traceopt.rules import (
    I8,
    Effort,
    Evidence,
    Facts,
    Finding,
    Findings,
    Fix,
    Mask,
    Priced,
    Rule,
    RunFacts,
    SetVariable,
    each_step,
    hide,
    median,
    megabytes,
    ms,
    named,
    per_second,
    per_step,
    percent,
    place_of_work,
    priced,
    rate_number,
    threshold,
)

SMALL_CALLS = "Most of it is in small calls, so this rank waits for a late one."
LATE = "Find the late rank"
BASIS = "Expects half of the exposed excess to go away."
VERBOSE = SetVariable("NCCL_DEBUG", "INFO")
TRANSPORT = "P2P and InfiniBand in use, and the right network interface"
EITHER = "Either this rank waits for a late one, or the link is slow."
STEADY = "They take about as long in every step, so a slow link is more likely than a rank that is late now and then."
STEADY_SHARE = 1.2  # times the shortest of the steps: if none takes longer, they take about as long in every step
MIN_STEADY = 3  # steps


class _Judged(NamedTuple):
    """Which calls are slow, and how long each should take for its size, ns. Shape (calls,)."""

    calls: CollectiveCalls
    slow: npt.NDArray[np.bool_]
    expected: npt.NDArray[np.floating]


class SlowCollective(Rule):
    """Measures collectives that take far longer than their size needs. If all ranks share one node and the rate of its
    NVLink or Infinity Fabric is known, that link is the measure. Otherwise the network is unknown, and the rule only
    counts collectives of 1 MiB or more whose bus bandwidth is below the rate of even a slow network.

    Why it costs: a collective ends when the last rank arrives. If its rate is far too low, this rank waits for a late
    one (the kernel spins and looks busy), or the link or its settings are wrong.

    Whatever the link, a collective waits for another rank if it takes many times as long as most of its kind and size.
    The collectives behind it start later, so the rule measures what they expose from then on.

    Where hardware counters were sampled (GPU metrics of Nsight Systems), the traffic on NVLink during these collectives
    is measured: a busy link is not reported, the finding says if the link is idle, and the expected time follows from
    the traffic instead of the size.

    If the traces of all ranks are given, the time until the last rank enters these collectives is measured. If it is
    most of the excess, ranks are late: the finding then has no saving, and CM004 prices the straggler. If not, the link
    is slow.

    How to fix: compare the ranks. If the same collective starts at different times on different ranks, fix the late
    rank's own delay (data, CPU, NUMA, clocks). If all ranks start together, check the transport:

        NCCL_DEBUG=INFO torchrun ...     # which transport? P2P and InfiniBand in use?
        NCCL_P2P_DISABLE, NCCL_IB_DISABLE, NCCL_SOCKET_IFNAME

    When it is wrong: the trace does not show the bandwidth of a shared network, nor whether a job that fits one node
    really runs on one. Sends and receives between pipeline stages are left out, because a stage waits by design. Ranks
    may put different sizes into an all-to-all, so each call is given the time of the largest one.

    Sources: NCCL tests, "Performance reported by NCCL tests" (bus bandwidth); data sheets (docs/devices.md).
    """

    code = "CM003"
    name = "slow-collective"
    title = "Find the late rank or the slow link"
    family = "communication"
    effort = Effort.SEARCH
    confidence = "low"
    refutable = True
    requires = ("gpu",)

    min_share: float = threshold(0.03, "smallest exposed excess, as a share of the step, to report")
    link_share: float = threshold(0.5, "share of the node's link, in one direction, that a large collective reaches")
    latency_us: float = threshold(50.0, "time that even an empty collective takes inside a node, in µs")
    slowdown: float = threshold(4.0, "a collective inside a node is slow from this multiple of the expected time")
    min_bytes: int = threshold(1 << 20, "smallest buffer to judge on an unknown network, in bytes")
    floor_gb_per_s: float = threshold(5.0, "bus bandwidth below which a call on an unknown network is slow, in GB/s")
    fair_gb_per_s: float = threshold(10.0, "bus bandwidth to expect of an unknown network, in GB/s")
    late_share: float = threshold(
        0.5, "wait for late ranks, as a share of the excess, from which they are the reason; needs all ranks"
    )

    def applies(self, facts: Facts) -> str | None:
        if not facts.collectives:
            return "No collectives in this trace."
        if not any((c.bytes >= 0).any() for c in facts.collectives):
            return "The sizes of the collectives were not recorded."
        return None

    def check(self, facts: Facts) -> Findings:
        count = facts.steps.count
        judged = [
            _Judged(c, *self._judged(facts, c, facts.gpu.work.duration[c.rows]))
            for c in facts.collectives
            if c.bus_factor is not None and c.name != SEND_RECV  # a pipeline stage waits by design
        ]
        slow_rows = np.zeros(len(facts.gpu.work), bool)
        for kind in judged:
            slow_rows[kind.calls.rows[kind.slow]] = True
        used = self._link_use(facts, slow_rows)
        if used is not None and used >= self.link_share:
            return
        evidence, late = [], np.zeros(len(facts.gpu.work))  # excess time of each row, ns
        of_small = 0.0  # the part of it in calls that no link can slow down as much
        for kind in judged:
            c, slow = kind.calls, kind.slow
            if not slow.any():
                continue
            full = facts.gpu.work.duration[c.rows]
            expected = kind.expected if used is None else self.latency_us * 1e3 + full * used / self.link_share
            excess = np.minimum(np.maximum(full - expected, 0), c.exposed)[slow]
            late[c.rows[slow]] = excess
            of_small += float(excess[_sizes(c)[slow] < self.min_bytes].sum())
            rate = median((c.bytes * (c.bus_factor or 0.0) / np.maximum(full, 1))[slow])
            evidence.append(
                Evidence(
                    what=named(c.name),
                    us_per_step=round(float(excess.sum()) / count / 1e3, 3),
                    calls_per_step=round(int(slow.sum()) / count, 3),
                    detail=f"median {megabytes(median(c.bytes[slow]))} at {per_second(rate, 'GB')}",
                    location=place_of_work(facts, int(c.rows[slow][0])),
                )
            )
        excess_ns = float(late.sum()) / count
        waits = facts.late_waits
        if waits.step_ns > excess_ns and (waits.exposed_ns > 0).sum() >= min(2, count):
            if waits.step_ns >= self.min_share * facts.step_ns:
                yield self._late(facts, waits)
            return
        if excess_ns < self.min_share * facts.step_ns:
            return
        rows = np.flatnonzero(late)
        likely = SMALL_CALLS if of_small > 0.5 * late.sum() else STEADY if _is_steady(facts, rows) else EITHER
        yield self.finding(
            why=(
                f"In {each_step(facts)}, collectives take {ms(excess_ns)} longer than their "
                f"{'size' if used is None else 'measured traffic'} needs at {self._fair(facts)}."
                + (f" Hardware counters measured {percent(used)} of NVLink's rate in them." if used is not None else "")
            ),
            saving=priced(
                facts,
                (0.0, 0.5 * excess_ns, excess_ns),
                hide(facts, rows, 0.5 * late[rows]),
                BASIS,
                low=hide(facts, rows, 0.0 * late[rows]),
                high=hide(facts, rows, late[rows]),
            ),
            evidence=evidence,
            locations=[],
            fix=Fix(
                f"{likely} Analyze the traces of all ranks together: they show which rank is late, and why. If none "
                f"is, check the transport with NCCL_DEBUG=INFO: {TRANSPORT}.",
                edits=[VERBOSE],
            ),
        )

    def _late(self, facts: Facts, waits: LateWaits) -> Priced:
        slow_calls = len(waits.rows) / facts.steps.count
        return self.finding(
            title=LATE,
            why=(
                f"The GPU waits {ms(waits.step_ns)} of {each_step(facts)} for another rank. It waits in collectives "
                f"that take {median(waits.slower):.0f} times as long as most of their kind and size ({slow_calls:.3g} "
                f"{per_step(facts)}). The collectives behind them start later."
            ),
            confidence="medium",
            saving=priced(
                facts,
                (0.0, 0.5 * waits.step_ns, waits.step_ns),
                hide(facts, waits.rows, 0.5 * waits.waits_ns),
                "Expects half of the wait to go away.",
                low=[],
                high=hide(facts, waits.rows, waits.waits_ns),
            ),
            evidence=[
                Evidence(
                    what=named("collectives that wait"),
                    us_per_step=round(waits.step_ns / 1e3, 3),
                    calls_per_step=round(slow_calls, 3),
                    location=place_of_work(facts, int(waits.rows[0])),
                )
            ],
            locations=[],
            fix=Fix(
                "Record all ranks and analyze their traces together: they show which rank is late, and why: its data, "
                "its host, its clocks or more work. More overlap or larger buckets do not shorten this wait."
            ),
        )

    def in_view_of_ranks(self, finding: Finding, run: RunFacts) -> Finding:
        """With the traces of all ranks, the wait for late ranks is measured: the rest is the link's."""
        if run.missing is not None:
            return replace(finding, why=finding.why + f" {run.missing}. Their traces tell which rank is late, if any.")
        rank = finding.ranks[0] if finding.ranks else None
        late_ns = run.late_start_ns(rank)
        if late_ns is None:
            return finding
        excess_ns = sum(row.us_per_step or 0.0 for row in finding.evidence) * 1e3
        if late_ns >= self.late_share * excess_ns:
            return replace(
                finding,
                title="Make the ranks enter their collectives together",
                effort=Effort.DEPENDS,
                impact="info",
                confidence="medium",
                saving=None,
                why=finding.why + f" Rank {rank} waits {ms(late_ns)} for ranks that enter its collectives later, so "
                "the link is not the reason.",
                fix=Fix(
                    "Find out why ranks enter the same collective at different times: one late rank (CM004), unequal "
                    "work, or their data, hosts and clocks."
                ),
            )
        saving = finding.saving
        return replace(
            finding,
            title="Find the slow link",
            confidence="medium",
            saving=saving and replace(saving, low_us=0.4 * saving.est_us),
            why=finding.why + f" The ranks enter them at about the same time: rank {rank} waits {ms(late_ns)} for "
            "later ones. So the link or its settings are slow.",
            fix=Fix(f"Check the transport with NCCL_DEBUG=INFO: {TRANSPORT}.", edits=[VERBOSE]),
        )

    def _judged(
        self, facts: Facts, calls: CollectiveCalls, full: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.floating]]:
        """Which calls of known size are slow, and how long each should take for its size, ns."""
        link, moved = facts.node_link, _sizes(calls) * (calls.bus_factor or 0.0)
        if link is None:
            slow = (calls.bytes >= self.min_bytes) & (moved < self.floor_gb_per_s * full)
            return slow, moved / self.fair_gb_per_s
        rate = self.link_share * link.bus_gb_per_s(calls.group_size)
        expected = self.latency_us * 1e3 + moved / rate
        return (calls.bytes >= 0) & (full >= self.slowdown * expected), expected

    def _link_use(self, facts: Facts, late: Mask) -> float | None:
        """Measured share of NVLink's rate during these collectives; None if it is not their link, or not measured."""
        if facts.node_link is None or facts.measured_counters is None:
            return None
        return facts.measured_counters.nvlink_during(late)

    def _fair(self, facts: Facts) -> str:
        """The rate that is expected, in words."""
        link = facts.node_link
        if link is None:
            return f"{self.fair_gb_per_s:g} GB/s"
        rate, full = self.link_share * link.bus_gb_per_s(0), link.gb_per_s
        return f"{per_second(rate, 'GB')} (the GPU's link does {per_second(full, 'GB')} in each direction)"

    def passed(self, facts: Facts) -> str:
        every = facts.gpu.is_communication
        if (used := self._link_use(facts, every)) is not None and used >= self.link_share:
            return f"Hardware counters measured {percent(used)} of NVLink's rate during collectives."
        rates = [rate for c in facts.collectives if (rate := c.bus_gb_per_s()) is not None]
        if not rates:
            return "No large collective is slow."
        return f"Collectives of known size reach {rate_number(min(rates))} to {rate_number(max(rates))} GB/s."


def _is_steady(facts: Facts, rows: I8) -> bool:
    """Whether these rows of the GPU's work take about as long in every step."""
    work, steps = facts.gpu.work, facts.steps
    spent = steps.per_step(steps.step_of(work.start[rows]), work.duration[rows])
    return len(spent) >= MIN_STEADY and bool(spent.max() <= STEADY_SHARE * spent.min())


def _sizes(calls: CollectiveCalls) -> npt.NDArray[np.int64]:
    """Bytes of each call, or of the largest one where ranks may put in different sizes."""
    return np.full(calls.calls, calls.bytes.max()) if calls.name == UNEVEN else calls.bytes
