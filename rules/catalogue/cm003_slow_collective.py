"""CM003: collectives take far longer than their bytes justify."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.facts import Facts
from traceopt.result.finding import Confidence, Evidence, Fix
from traceopt.result.quantities import ms
from traceopt.rules.evidence import place_of_work
from traceopt.rules.rule import Findings, Rule, threshold
from traceopt.rules.savings.pricing import hide, priced


class SlowCollective(Rule):
    """Measures collectives of a megabyte and more whose rate on the link is below what even a slow network gives.

    Why it costs: a collective ends when the last rank arrives. Far too low a rate means that this rank waits for a late
    one (the kernel spins and looks busy), or that the link or its settings are wrong.

    How to fix: compare the ranks. If the same collective starts at different times on different ranks, the late rank's
    own delay (data, CPU, NUMA, clocks) is the cause. If all start together, check the transport:

        NCCL_DEBUG=INFO torchrun ...     # which transport? P2P and InfiniBand in use?
        NCCL_P2P_DISABLE, NCCL_IB_DISABLE, NCCL_SOCKET_IFNAME

    When it is wrong: the rate of a shared network is not known to the trace; the rule takes a floor that every link
    between data-centre GPUs reaches.

    Sources: NCCL tests, "Performance reported by NCCL tests" (bus bandwidth).
    """

    code: ClassVar[str] = "CM003"
    name: ClassVar[str] = "slow-collective"
    title: ClassVar[str] = "Find the late rank or the slow link"
    family: ClassVar[str] = "communication"
    effort: ClassVar[str] = "Some investigation"
    confidence: ClassVar[Confidence] = "low"
    requires: ClassVar[tuple[str, ...]] = ("gpu",)

    min_share: float = threshold(0.03, "smallest exposed excess, as a share of the step, to report")
    min_bytes: int = threshold(1 << 20, "smallest buffer to judge")
    floor_gb_per_s: float = threshold(5.0, "bus rate below which a call is slow")
    fair_gb_per_s: float = threshold(10.0, "bus rate that prices the excess")

    def applies(self, facts: Facts) -> str | None:
        if not facts.collectives:
            return "No collectives in this trace."
        if not any((c.bytes >= 0).any() for c in facts.collectives):
            return "The bytes of the collectives were not recorded."
        return None

    def check(self, facts: Facts) -> Findings:
        count = facts.steps.count
        evidence, late = [], np.zeros(len(facts.gpu.work))  # how much too long each row is, ns
        for c in facts.collectives:
            moved = c.bytes * c.bus_factor
            full = facts.gpu.work.duration[c.rows]
            slow = (c.bytes >= self.min_bytes) & (moved < self.floor_gb_per_s * full)
            if not slow.any():
                continue
            fair = moved[slow] / self.fair_gb_per_s
            excess = np.minimum(np.maximum(full[slow] - fair, 0), c.exposed[slow])
            late[c.rows[slow]] = excess
            rate = median(moved[slow] / np.maximum(full[slow], 1))
            evidence.append(
                Evidence(
                    what=c.name,
                    us_per_step=round(float(excess.sum()) / count / 1e3, 3),
                    calls_per_step=round(int(slow.sum()) / count, 3),
                    detail=f"{median(c.bytes[slow]) / 1e6:,.1f} MB at {rate:,.1f} GB/s in the median",
                    location=place_of_work(facts, int(c.rows[slow][0])),
                )
            )
        excess_ns = float(late.sum()) / count
        if excess_ns < self.min_share * facts.step_ns:
            return
        rows = np.flatnonzero(late)
        yield self.finding(
            why=(
                f"Collectives take {ms(excess_ns)} of each {ms(facts.step_ns)} step longer than their bytes need at "
                f"{self.fair_gb_per_s:g} GB/s: this rank waits for a late one, or the link is slow."
            ),
            saving=priced(
                facts,
                (0.2 * excess_ns, 0.5 * excess_ns, excess_ns),
                hide(facts, rows, 0.5 * late[rows]),
                "The exposed time above what the bytes need; how much of it one rank can win is not known.",
                low=hide(facts, rows, 0.2 * late[rows]),
                high=hide(facts, rows, late[rows]),
            ),
            evidence=evidence,
            fix=Fix(
                "Compare the start of the same collective on all ranks: a late rank has its own cause (data, CPU, "
                "clocks); if all are in time, check the transport with NCCL_DEBUG=INFO.",
                "NCCL_DEBUG=INFO torchrun --nproc-per-node 8 train.py",
            ),
            shares_cause_with=["CM001"],
        )

    def passed(self, facts: Facts) -> str:
        rates = [rate for c in facts.collectives if (rate := c.bus_gb_per_s()) is not None]
        if not rates:
            return "No collective of a megabyte and more is slow."
        return f"Collectives of known size reach {min(rates):,.1f} to {max(rates):,.1f} GB/s."
