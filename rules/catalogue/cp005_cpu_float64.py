"""CP005: a CPU-only run computes in FP64."""

from __future__ import annotations

from traceopt.analyzer.run_log.cpu import CpuPeaks
from traceopt.analyzer.work.cpu_work import CpuOperator
from traceopt.rules import Facts, Findings, Fix, Risk, Rule, each_step, ms, percent, places, the_step, threshold
from traceopt.rules.savings.work.cpu_operators import faster_operators, operator_evidence, operators_ns


class CpuFloat64(Rule):
    """Measures the time of matmuls and convolutions in FP64 (double precision) in a run without a GPU.

    Why it costs: a vector instruction holds half as many FP64 numbers as FP32 numbers, and each takes twice the memory.
    Convolutions in FP64 do not run in oneDNN. NumPy's numbers are FP64 by default, and `torch.from_numpy` keeps that.

    How to fix: convert the data set and the model to FP32.

        inputs = torch.from_numpy(array).float()
        model = model.float()

    When it is wrong: some methods need FP64 (physics, gradient checks). The saving follows from rates that
    `traceopt run` measured on this CPU after the run. Without this measurement the finding has no saving.

    Sources: PyTorch documentation of torch.from_numpy and torch.set_default_dtype; oneDNN developer guide, "Data
    Types".
    """

    code = "CP005"
    name = "cpu-float64"
    title = "Use FP32 unless the model needs FP64"
    family = "CPU runs"
    risk = Risk.NUMERICS
    risk_note = "Less precise"
    confidence = "medium"
    requires = ("cpu_only", "shapes")

    min_share: float = threshold(0.05, "smallest time of FP64 operators, as a share of the step, to report")
    min_peak_share: float = threshold(0.3, "smallest share of the FP64 peak of a matmul that has a saving")
    low: float = threshold(0.5, "share of the measured speedup's gain, low")
    expected: float = threshold(0.8, "share of the measured speedup's gain, expected")

    def applies(self, facts: Facts) -> str | None:
        return None if facts.cpu_work.heavy else "No matmuls or convolutions in this trace."

    def check(self, facts: Facts) -> Findings:
        work = facts.cpu_work
        double = _double(facts)
        time_ns = operators_ns(facts, double)
        if time_ns < self.min_share * facts.step_ns:
            return
        speedups = _speedups(work.peaks)
        fast = {
            "matmuls": [
                one for one in double if one.is_matmul and (work.peak_share(one) or 0.0) >= self.min_peak_share
            ],
            "convolutions": [one for one in double if one.is_convolution],
        }
        saving = faster_operators(
            facts,
            [(operators, speedups.get(kind, 1.0)) for kind, operators in fast.items()],
            (self.low, self.expected, 1.0),
            f"Assumes {percent(self.low)}, {percent(self.expected)} or 100% of the gain from the measured speedup in "
            "FP32: "
            + " and ".join(f"{kind} {speedups[kind]:.1f} times" for kind in fast if kind in speedups)
            + "."
            + "".join(f" The saving does not include {kind}." for kind in fast if fast[kind] and kind not in speedups),
        )
        evidence = operator_evidence(facts, double)
        yield self.finding(
            why=f"Matmuls and convolutions in FP64 take {ms(time_ns)} of {each_step(facts)}.",
            saving=saving,
            evidence=evidence,
            locations=places(evidence),
            fix=Fix(
                "Convert the data and the model to FP32. NumPy arrays are FP64 unless you say otherwise.",
                "inputs = torch.from_numpy(array).float()\nmodel = model.float()",
            ),
        )

    def passed(self, facts: Facts) -> str:
        share = percent(operators_ns(facts, _double(facts)) / facts.step_ns)
        return f"Matmuls and convolutions in FP64 take {share} of {the_step(facts)}."


def _speedups(peaks: CpuPeaks | None) -> dict[str, float]:
    """How many times as fast each kind of operator is in FP32, as far as it was measured."""
    if peaks is None:
        return {}
    measured = {"matmuls": peaks.speedup("fp64", "fp32"), "convolutions": peaks.fp32_convolution_speedup}
    return {kind: speedup for kind, speedup in measured.items() if speedup is not None}


def _double(facts: Facts) -> list[CpuOperator]:
    return [one for one in facts.cpu_work.heavy if one.dtype == "fp64"]
