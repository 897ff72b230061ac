"""CP001: a CPU with bfloat16 instructions multiplies in FP32."""

from __future__ import annotations

from traceopt.analyzer.work.cpu_work import CpuOperator
from traceopt.rules import (
    Effort,
    Facts,
    Findings,
    Fix,
    Price,
    RemoveHost,
    Risk,
    Rule,
    each_step,
    ms,
    percent,
    places,
    priced,
    the_step,
    threshold,
)
from traceopt.rules.savings.cpu_operators import operator_evidence, operators_ns

CAST_BYTES = 4 + 2  # read and written for each element that is converted between FP32 and bfloat16
AUTOCAST = 'with torch.autocast("cpu", dtype=torch.bfloat16):\n    loss = model(inputs, labels)'


class CpuBfloat16(Rule):
    """Measures the time of FP32 matmuls in a run without a GPU, on a CPU that has instructions for bfloat16 (AMX,
    AVX512_BF16, Arm BF16).

    Why it costs: these instructions multiply several times as many numbers at a time as FP32 instructions, and the
    numbers take half of the memory. oneDNN uses them if the tensors are in bfloat16.

    How to fix: run the forward pass under autocast. bfloat16 needs no gradient scaler.

        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(inputs, labels)

    `torch.set_float32_matmul_precision("medium")` lets oneDNN round the factors of FP32 matmuls to bfloat16 by itself.
    It is one line and gains less, because it converts at each call.

    When it is wrong: matmuls with few columns gain nothing, because autocast converts both factors, and the next
    operator may convert the result. These conversions are subtracted, at the rate at which this CPU copies memory; if
    they may take all of the gain, there is no finding. The gain follows from the rates that `traceopt run` measured on
    this CPU after the run, for square matrices. Without this measurement the finding has no saving. Operators between
    the matmuls may become slower in bfloat16. Convolutions may gain as well, but are not counted.

    Sources: PyTorch documentation of torch.autocast, section "CPU Op-Specific Behavior"; Intel, "Intel 64 and IA-32
    Architectures Optimization Reference Manual", chapter on AMX.
    """

    code = "CP001"
    name = "cpu-bfloat16"
    title = "Use bfloat16 for matmuls on the CPU"
    family = "CPU runs"
    effort = Effort.ONE_LINE_TESTED
    risk = Risk.ROUNDING
    confidence = "low"  # the shares below were not measured on many CPUs
    requires = ("cpu_only", "shapes", "settings")

    min_share: float = threshold(0.10, "smallest time of FP32 matmuls, as a share of the step, to report")
    min_peak_share: float = threshold(0.3, "smallest share of the FP32 peak of a matmul that may become faster")
    min_speedup: float = threshold(1.3, "smallest measured speedup of matmuls in bfloat16 to report")
    low: float = threshold(0.5, "share of the measured speedup's gain that matmuls reach, low")
    expected: float = threshold(0.75, "share of the measured speedup's gain that matmuls reach, expected")

    def applies(self, facts: Facts) -> str | None:
        if not facts.captured.environment.cpu.native_bf16:
            return "This CPU has no bfloat16 instructions, or they were not recorded."
        return None if self._products(facts) else "No FP32 matmuls in this trace."

    def _products(self, facts: Facts) -> list[CpuOperator]:
        """The FP32 matmuls, if the peaks are known those near enough to the peak."""
        work = facts.cpu_work
        products = [one for one in work.heavy if one.is_matmul and one.dtype == "fp32"]
        if work.peaks is None:
            return products
        return [one for one in products if (work.peak_share(one) or 0.0) >= self.min_peak_share]

    def check(self, facts: Facts) -> Findings:
        products, peaks = self._products(facts), facts.cpu_work.peaks
        time_ns = operators_ns(facts, products)
        speedup = peaks.speedup("fp32", "bf16") if peaks is not None else None
        rounds_already = facts.captured.environment.matmul_precision == "medium"
        if time_ns < self.min_share * facts.step_ns or rounds_already:
            return
        if speedup is not None and speedup < self.min_speedup:
            return
        price = self._price(facts, products, speedup) if speedup is not None else None
        if price is not None and not price.bounds_ns[0]:
            return
        evidence = operator_evidence(facts, products)
        measured = f" On this machine, matmuls in bfloat16 are {speedup:.1f} times as fast." if speedup else ""
        yield self.finding(
            why=(
                f"FP32 matmuls take {ms(time_ns)} of {each_step(facts)}, and this CPU has bfloat16 "
                f"instructions.{measured}"
            ),
            saving=price,
            evidence=evidence,
            locations=places(evidence),
            fix=Fix("Run the forward pass under autocast in bfloat16. It needs no gradient scaler.", AUTOCAST)
            if facts.trains
            else Fix("Run the model under autocast in bfloat16, or load its weights in bfloat16.", AUTOCAST),
        )

    def _price(self, facts: Facts, products: list[CpuOperator], speedup: float) -> Price | None:
        """None if the rate of copies was not measured. Then it is unknown what the casts take."""
        work = facts.cpu_work
        time_ns = operators_ns(facts, products)
        if work.peaks is None or not work.peaks.copy_gb_per_s or not time_ns:
            return None
        elements = sum(int(work.elements(one).sum()) for one in products) / facts.steps.count
        casts_ns = CAST_BYTES * elements / work.peaks.copy_gb_per_s
        gain_ns = (1 - 1 / speedup) * time_ns
        low_ns, expected_ns = (max(0.0, share * gain_ns - casts_ns) for share in (self.low, self.expected))
        area = work.area(products)
        return priced(
            facts,
            (low_ns, expected_ns, gain_ns),
            [RemoveHost(area, expected_ns / time_ns, faster=True)],
            f"Assumes {percent(self.expected)} of the gain from the measured speedup of {speedup:.1f} times "
            f"({percent(self.low)} to 100%), less {ms(casts_ns)} for casts.",
            low=[RemoveHost(area, low_ns / time_ns, faster=True)],
            high=[RemoveHost(area, gain_ns / time_ns, faster=True)],
        )

    def passed(self, facts: Facts) -> str:
        if facts.captured.environment.matmul_precision == "medium":
            return "FP32 matmuls may round to bfloat16 already (float32_matmul_precision is medium)."
        share = percent(operators_ns(facts, self._products(facts)) / facts.step_ns)
        return f"FP32 matmuls that bfloat16 could speed up take {share} of {the_step(facts)}."
