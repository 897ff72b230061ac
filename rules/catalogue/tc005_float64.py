"""TC005: the model computes in FP64."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from traceopt.analyzer.run_log.cpu import CpuPeaks
from traceopt.analyzer.work.cpu_work import CpuOperator, CpuWork
from traceopt.rules import (
    Facts,
    Findings,
    Fix,
    Former,
    Intervals,
    Price,
    Risk,
    Rule,
    by_site,
    each_step,
    kernel_evidence,
    ms,
    peak_caveat,
    percent,
    places,
    priced_work,
    site_evidence,
    subtract,
    the_step,
    threshold,
)
from traceopt.rules.savings.work.cpu_experiments import in_dtype, measured_operators
from traceopt.rules.savings.work.cpu_operators import Gains, operator_evidence, operators_ns, shortened
from traceopt.rules.savings.work.precision import needs_precision, peak_ratio

PARTS_OF_RATIO = (0.25, 0.5, 1.0)  # of the device's FP32 rate over its FP64 rate: low, expected, high
NEAR_PEAK = 0.7  # of the peak: matmuls that are slower are limited by something else, in FP32 as well
# Times as fast as in FP64 are a CPU's other operators on large tensors, measured for 512 x 512 numbers: a vector holds
# twice as many, and they gain more where they fit the cache or a function (erf, tanh) needs fewer terms.
OTHERS = (2.0, 3.0, 5.0)
GAINS_OF_OTHERS = (0.3, 0.5, 0.9)  # of the time of kernels that move half of the bytes
GAINS_OF_FUNCTIONS = (0.5, 0.8, 0.95)  # of that of sin, exp and the like, which compute in FP64 for most of it


class Float64(Rule):
    """Measures the time of FP64 (double precision) kernels on a GPU whose FP64 units are far slower than its FP32
    units. In a run without a GPU: the time of matmuls and convolutions in FP64.

    Why it costs: GPUs for graphics and inference multiply FP64 numbers at 1/32 or 1/64 of their FP32 rate. GPUs for
    data centers (V100, A100, H100) run at half of it or better, and are not reported. On a CPU, a vector instruction
    holds half as many FP64 numbers as FP32 numbers, and convolutions in FP64 do not run in oneDNN. Everywhere they take
    twice the memory. NumPy's numbers are FP64 by default, and `torch.from_numpy` keeps that. A tensor that is made of
    such an array, or `torch.set_default_dtype(torch.float64)`, turns all that is computed from it into FP64.

    How to fix: convert the data set and the model to FP32.

        inputs = torch.from_numpy(array).float()
        model = model.float()

    When it is wrong: some methods need FP64 (physics, gradient checks). On a GPU the saving follows from the rates in
    FP64 and FP32: matmuls, convolutions and attention gain a quarter, half or all of their ratio, functions such as sin
    and exp 50%, 80% or 95% of their time, and other kernels 30%, 50% or 90%. On a CPU it follows from rates that
    `traceopt run` measured after the run; where all matmuls are in FP64, other operators on large tensors run 2 to 5
    times as fast. Without this measurement the finding has no saving.

    Sources: CUDA C++ Programming Guide, "Arithmetic Instructions" (results per clock by compute capability); PyTorch
    documentation of torch.from_numpy and torch.set_default_dtype; oneDNN developer guide, "Data Types".
    """

    code = "TC005"
    name = "float64"
    title = "Use FP32 unless the model needs FP64"
    family = "precision"
    risk = Risk.NUMERICS
    risk_note = "Less precise"
    confidence = "medium"
    requires = ("gpu",)
    requires_on_cpu = ("shapes",)
    former = (Former("CP005", "cpu-float64"),)

    min_share: float = threshold(0.05, "smallest time of FP64 operators, as a share of the step, to report")
    min_ratio: float = threshold(4.0, "smallest rate in FP32, as a multiple of that in FP64, of a GPU to report")
    min_peak_share: float = threshold(0.3, "smallest share of the CPU's FP64 peak of a matmul that has a saving")
    low: float = threshold(0.5, "share of the CPU's measured gain, low")
    expected: float = threshold(0.9, "share of the CPU's measured gain, expected")

    def applies(self, facts: Facts) -> str | None:
        if (reason := needs_precision(facts)) is not None:
            return reason
        if not facts.has_gpu:
            return None if facts.cpu_work.heavy else "No matmuls or convolutions in this trace."
        ratio = peak_ratio(facts, "fp64")
        if ratio is None:
            return "The rate of this device in FP64 is not known."
        return None if self.min_ratio * ratio <= 1 else "This device is fast in FP64."

    def check(self, facts: Facts) -> Findings:
        return self._on_gpu(facts) if facts.has_gpu else self._on_cpu(facts)

    def _on_gpu(self, facts: Facts) -> Findings:
        found, ratio = facts.double_precision, 1 / (peak_ratio(facts, "fp64") or 1.0)
        work = found.products | found.other
        time_ns = facts.gpu.spent_ns(work) / facts.steps.count
        if time_ns < self.min_share * facts.step_ns:
            return
        copied = by_site(facts, found.copied)
        made = site_evidence(facts, copied, "FP64 data is copied to the GPU")
        evidence = [*kernel_evidence(facts, work), *made]
        yield self.finding(
            why=(
                f"Kernels in FP64 take {ms(time_ns)} of {each_step(facts)}. {facts.device.name or 'The device'} "
                f"computes {ratio:.0f} times as fast in FP32."
            ),
            saving=_price(facts, ratio),
            evidence=evidence,
            locations=places([*made, *evidence]),
            fix=Fix(ADVICE, EXAMPLE),
        )

    def _on_cpu(self, facts: Facts) -> Findings:
        work = facts.cpu_work
        double = _double(facts)
        time_ns = operators_ns(facts, double)
        if time_ns < self.min_share * facts.step_ns:
            return
        casts = work.casts_to_double
        made = site_evidence(facts, by_site(facts, casts), "Cast to FP64")
        evidence = [*operator_evidence(facts, double), *made]
        yield self.finding(
            why=f"Matmuls and convolutions in FP64 take {ms(time_ns)} of {each_step(facts)}.",
            saving=self._price_on_cpu(facts, double),
            evidence=evidence,
            locations=places([*made, *evidence]),
            fix=Fix(ADVICE, EXAMPLE),
        )

    def _price_on_cpu(self, facts: Facts, double: Sequence[CpuOperator]) -> Price | None:
        work = facts.cpu_work
        sizes = measured_operators(facts, double, in_dtype("fp32"))
        if sizes.speedup is not None:
            parts = [(work.area(list(double)), (1 - 1 / sizes.speedup,) * 3)]
            basis = f"{sizes.words} in FP32."
        else:
            parts, basis = self._by_peaks(work, double)
        others = subtract(work.threaded, work.area(work.heavy))
        only = len(double) == len(work.heavy)  # then the operators between them work on FP64 tensors, too
        if parts and only and others.total:
            low, expected, high = OTHERS
            parts.append((others, (1 - 1 / low, 1 - 1 / expected, 1 - 1 / high)))
            basis += f" Other operators on large tensors run {low:g}, {expected:g} or {high:g} times as fast."
        price = shortened(facts, parts, basis)
        return None if price is None else replace(price, experiments=sizes.experiments)

    def _by_peaks(self, work: CpuWork, double: Sequence[CpuOperator]) -> tuple[list[tuple[Intervals, Gains]], str]:
        """Gains by what the CPU reaches in one size, and the basis for them; no gains if that was not measured."""
        speedups = _speedups(work.peaks)
        fast = {
            "matmuls": [
                operator
                for operator in double
                if operator.is_matmul and (work.peak_share(operator) or 0.0) >= self.min_peak_share
            ],
            "convolutions": [operator for operator in double if operator.is_convolution],
        }
        parts = [(work.area(fast[kind]), self._gains(work, fast[kind], speedups[kind])) for kind in speedups]
        basis = (
            f"Assumes {percent(self.low)}, {percent(self.expected)} or 100% of the gain from the measured speedup in "
            "FP32, at best with the measured rate: "
            + " and ".join(f"{kind} {speedups[kind]:.1f} times" for kind in fast if kind in speedups)
            + "."
        )
        without = (f" The saving does not include {kind}." for kind in fast if fast[kind] and kind not in speedups)
        return parts, basis + "".join(without)

    def _gains(self, work: CpuWork, operators: Sequence[CpuOperator], speedup: float) -> Gains:
        """Shares of these operators' time. At best, matmuls near their peak in FP64 reach it in FP32."""
        gain, shares = max(0.0, 1 - 1 / speedup), [work.peak_share(operator) or 0.0 for operator in operators]
        ideal_ns = sum(
            one.duration_ns * (share if one.is_matmul and share >= NEAR_PEAK else 1.0)
            for one, share in zip(operators, shares, strict=True)
        )
        ideal = ideal_ns / max(1, sum(operator.duration_ns for operator in operators))
        return self.low * gain, self.expected * gain, max(gain, 1 - ideal / speedup)

    def passed(self, facts: Facts) -> str:
        if facts.has_gpu:
            spent_ns = facts.gpu.spent_ns(facts.double_precision.products | facts.double_precision.other)
            return f"Kernels in FP64 take {percent(spent_ns / facts.steps.window_ns)} of {the_step(facts)}."
        share = percent(operators_ns(facts, _double(facts)) / facts.step_ns)
        return f"Matmuls and convolutions in FP64 take {share} of {the_step(facts)}."


ADVICE = "Convert the data and the model to FP32. NumPy arrays are FP64 unless you say otherwise."
EXAMPLE = "inputs = torch.from_numpy(array).float()\nmodel = model.float()"


def _price(facts: Facts, ratio: float) -> Price:
    found, count = facts.double_precision, facts.steps.count
    parts = found.products, found.other & ~found.functions, found.functions
    products_ns, other_ns, functions_ns = (facts.gpu.spent_ns(mask) / count for mask in parts)
    speedups = [max(1.0, part * ratio) for part in PARTS_OF_RATIO]
    low, expected, high = (
        products_ns * (1 - 1 / speedup) + other_ns * share + functions_ns * of_function
        for speedup, share, of_function in zip(speedups, GAINS_OF_OTHERS, GAINS_OF_FUNCTIONS, strict=True)
    )
    basis = (
        f"Assumes that matmuls, convolutions and attention run {speedups[0]:.0f}, {speedups[1]:.0f} or "
        f"{speedups[2]:.0f} times as fast in FP32{peak_caveat(facts, 'fp32', 'fp64')}."
    )
    if functions_ns:
        basis += " Functions such as sin and exp save 50%, 80% or 95% of their time."
    if other_ns:
        basis += " Other kernels save 30%, 50% or 90% of their time."
    return priced_work(facts, found.products | found.other, (low, expected, high), basis)


def _speedups(peaks: CpuPeaks | None) -> dict[str, float]:
    """How many times as fast each kind of operator is in FP32, as far as it was measured."""
    if peaks is None:
        return {}
    measured = {"matmuls": peaks.speedup("fp64", "fp32"), "convolutions": peaks.fp32_convolution_speedup}
    return {kind: speedup for kind, speedup in measured.items() if speedup is not None}


def _double(facts: Facts) -> list[CpuOperator]:
    return [operator for operator in facts.cpu_work.heavy if operator.dtype == "fp64"]
