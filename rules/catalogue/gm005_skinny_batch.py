"""GM005: matmuls have so few rows that reading the weights limits them."""

from __future__ import annotations

from traceopt.result.words.kernel_names import gemm_name
from traceopt.rules import (
    DTYPE_BYTES,
    OP,
    Effort,
    Evidence,
    Facts,
    Findings,
    Fix,
    GemmShape,
    Risk,
    Rule,
    SetArguments,
    each_step,
    location_of,
    ms,
    named,
    peak_caveat,
    percent,
    places,
    priced_work,
    the_step,
    threshold,
    work_of,
)
from traceopt.rules.fixes.advice.batch_size import larger_batch_risk
from traceopt.rules.fixes.advice.constructed import loader_places
from traceopt.rules.fixes.advice.memory import peak_of_capacity, peak_share
from traceopt.rules.savings.roofline import HBM_SHARE

REACHABLE = 0.8  # of the peak rate; the same share as for the bandwidth


class SkinnyBatch(Rule):
    """Measures matmuls with few rows (samples or tokens of the batch) and large weights. By the roofline of the device
    they are limited by reading the weights, so more rows would take hardly any longer.

    Why it costs: the weights are read once per step, whether for 8 rows or for 80. The saving is stated for the same
    number of samples: a step with `factor` times the batch, divided by that factor.

    How to fix: increase the batch size per device, as far as memory and the training recipe allow. With gradient
    accumulation, use fewer and larger micro-batches.

        loader = DataLoader(dataset, batch_size=4 * 8, ...)

    When it is wrong: the batch may be small for a reason (memory, convergence, latency). For inference the finding has
    no saving, because one request cannot wait for others. The rule judges only matmuls, not convolutions.

    Sources: Williams et al., "Roofline" (2009); NVIDIA, "Matrix Multiplication Background User's Guide", math and
    memory bounds.
    """

    code = "GM005"
    name = "skinny-batch"
    title = "Increase the micro-batch size"
    family = "matrix shapes"
    effort = Effort.ONE_LINE_TESTED
    risk = Risk.CONVERGENCE
    confidence = "low"
    requires = ("gpu", "launches", "shapes", "device")

    min_share: float = threshold(0.05, "smallest gain, as a share of the step, to report")
    max_rows: int = threshold(64, "largest number of rows that counts as few")
    factor: float = threshold(4.0, "multiple of the batch size that the estimate assumes")
    max_memory_share: float = threshold(
        0.5, "largest peak memory, as a share of the device's, with room for a larger batch"
    )

    def applies(self, facts: Facts) -> str | None:
        if not facts.gemms.shapes:
            return "No matmul with a recorded shape in this trace."
        if facts.memory is not None and facts.device.memory_bytes and peak_share(facts) > self.max_memory_share:
            return f"Memory has no room for a larger batch: {peak_of_capacity(facts)}."
        return None

    def check(self, facts: Facts) -> Findings:
        found = self._skinny(facts)
        count = facts.steps.count
        gain, time = sum(row[0] for row in found) / count, sum(row[1] for row in found) / count
        if gain < self.min_share * facts.step_ns:
            return
        evidence = [_evidence(facts, shape, rows) for _, _, shape, rows in found[:5]]
        most = max(rows for *_, rows in found)
        yield self.finding(
            title=None if facts.trains else "Run more requests in one batch" if facts.infers else "Use a larger batch",
            risk=larger_batch_risk(facts),
            why=(
                f"Matmuls with {'one row' if most == 1 else f'{most} rows or fewer'} take {ms(time)} of "
                f"{each_step(facts)}, limited by reading their weights. With {self.factor:g} times the rows, the "
                f"same samples would take {ms(gain)} less."
            ),
            saving=priced_work(
                facts,
                work_of(facts, [shape for _, _, shape, _ in found]),
                (0.3 * gain, 0.7 * gain, gain),
                f"Assumes 30%, 70% or 100% of the gain by the roofline{_caveat(facts, found)} at {self.factor:g} times "
                "the batch size.",
            )
            if facts.trains
            else None,
            evidence=evidence,
            locations=[*(loader_places(facts) if facts.trains else []), *places(evidence)],
            fix=Fix(
                "Serve several requests in one batch, if they can wait for each other."
                if facts.infers
                else "Increase the batch size per device.",
                edits=[SetArguments("DataLoader", {"batch_size": f"{self.factor:g} * batch_size"})]
                if facts.trains
                else [],
            ),
            shares_cause_with=["LB002", "MM001"],
        )

    def _skinny(self, facts: Facts) -> list[tuple[float, float, GemmShape, int]]:
        """Gain and time over the window (ns), shape and rows, largest gain first."""
        out = []
        for shape in facts.gemms.shapes:
            rows = facts.gemms.batch_rows(shape)
            if shape.batch > 1 or rows > self.max_rows:
                continue
            now, then = _roofline_ns(facts, shape, rows, 1.0), _roofline_ns(facts, shape, rows, self.factor)
            if now <= 0:
                continue
            gain = shape.duration_ns * (1 - then / now / self.factor)
            if gain > 0:
                out.append((gain, float(shape.duration_ns), shape, rows))
        return sorted(out, key=lambda row: -row[0])

    def passed(self, facts: Facts) -> str:
        time = sum(row[1] for row in self._skinny(facts)) / facts.steps.window_ns
        return f"Matmuls with {self.max_rows} rows or fewer take {percent(time)} of {the_step(facts)}."


def _caveat(facts: Facts, found: list[tuple[float, float, GemmShape, int]]) -> str:
    return peak_caveat(facts, "hbm_gb_per_s", *(shape.dtype for _, _, shape, _ in found))


def _roofline_ns(facts: Facts, shape: GemmShape, rows: int, factor: float) -> float:
    """Least time of one call with `factor` times the rows, ns; 0 if the device's peaks are unknown."""
    accelerator = facts.device.accelerator
    peak = accelerator.peak(shape.dtype) if accelerator else None
    bandwidth = accelerator.hbm_gb_per_s if accelerator else None
    if not peak or not bandwidth:
        return 0.0
    m, n, k = shape.m, shape.n, shape.k
    if rows == shape.m:
        m = round(m * factor)
    else:
        k = round(k * factor)
    traffic = (m * k + k * n + m * n) * DTYPE_BYTES.get(shape.dtype, 2)
    return max(2 * m * n * k / (peak * REACHABLE * 1e3), traffic / (bandwidth * HBM_SHARE))


def _evidence(facts: Facts, shape: GemmShape, rows: int) -> Evidence:
    place = location_of(facts, int(facts.slices.of(OP, len(facts.trace.ops))[shape.rows[0]]))
    count = facts.steps.count
    return Evidence(
        what=named(gemm_name(shape)),
        us_per_step=round(shape.duration_ns / count / 1e3, 3),
        calls_per_step=round(shape.calls / count, 3),
        detail="1 row" if rows == 1 else f"{rows} rows",
        location=place,
    )
