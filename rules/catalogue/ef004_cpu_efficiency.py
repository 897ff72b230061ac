"""EF004: what the model's work on the CPU consists of, and what is left to gain."""

from __future__ import annotations

from msgspec import Struct

from traceopt.analyzer.vocabulary.causes.table import OPTIMIZER
from traceopt.rules import (
    Effort,
    Evidence,
    Facts,
    Findings,
    Fix,
    Rule,
    each_step,
    intersect,
    ms,
    percent,
    places,
    subtract,
    the_step,
    threshold,
    us,
)
from traceopt.rules.savings.cpu_operators import operator_evidence, operators_ns

RECURRENT = ("rnn", "lstm", "gru")


class Part(Struct, frozen=True):
    """A part of the model's work: time per step, and what to do about it."""

    name: str
    time_ns: float
    advice: str
    code: str | None = None


class CpuEfficiency(Rule):
    """Measures what the forward and backward passes of a run without a GPU consist of: matmuls, convolutions and
    attention at the rate that this CPU reaches, the excess over that rate, and all other operators. FLOP follow from
    the shapes. `traceopt run` measures the rate after the run, with as many threads as the run used.

    Why it costs: if model work takes most of the step, the question is which of it could be shorter. Large matmuls
    reach most of the CPU's peak. Small ones, and operators that only read and write memory, do not.

    How to fix: it depends on the largest part. Other operators: let the compiler fuse them. Matmuls below the peak:
    use a larger batch. Matmuls at the peak: only fewer or narrower numbers help (TC001).

        model = torch.compile(model)

    When it is wrong: it is a metric, not a fault. The peak was measured with square matrices on an otherwise idle
    machine. A run that shares its cores with other programs cannot reach it.

    Sources: Williams et al., "Roofline" (2009); PyTorch tutorial, "Performance Tuning Guide", section on CPUs.
    """

    code = "EF004"
    name = "cpu-efficiency"
    title = "Find out what limits the model's work on the CPU"
    family = "efficiency"
    effort = Effort.DEPENDS
    confidence = "medium"
    requires = ("cpu_only", "shapes", "settings")

    min_share: float = threshold(0.6, "smallest model work, as a share of the step, to report")
    max_peak_share: float = threshold(0.7, "largest share of the measured peak that leaves something to gain")
    min_part: float = threshold(0.15, "smallest part, as a share of the step, that is worth advice")

    def applies(self, facts: Facts) -> str | None:
        if not facts.cpu_work.heavy:
            return "No matmuls or convolutions in this trace."
        return None if facts.has_step_marks else "Without step marks, work before the loop looks the same."

    def check(self, facts: Facts) -> Findings:
        model_ns = facts.steps.mean_ns(facts.cpu_phases.model_work)
        if model_ns < self.min_share * facts.step_ns:
            return
        parts = self._parts(facts)
        lever = max((part for part in parts if part.advice), key=lambda part: part.time_ns, default=None)
        if lever is None or lever.time_ns < self.min_part * facts.step_ns:
            return
        evidence = operator_evidence(facts, [*facts.cpu_work.heavy[:3], *facts.cpu_work.light[:3]])
        yield self.finding(
            why=(
                f"Model work takes {ms(model_ns)} of {each_step(facts)}. {_rate(facts)} The largest part "
                f"that can become shorter is {lever.name[:1].lower()}{lever.name[1:]}, {ms(lever.time_ns)}."
            ),
            saving=None,
            evidence=[
                *(
                    Evidence(part.name, us(part.time_ns), detail=percent(part.time_ns / facts.step_ns))
                    for part in parts
                    if part.time_ns > 0
                ),
                *evidence,
            ],
            locations=places(evidence),
            fix=Fix(lever.advice, lever.code),
        )

    def _parts(self, facts: Facts) -> list[Part]:
        """Exclusive parts of the model's work."""
        work, phases = facts.cpu_work, facts.cpu_phases
        heavy = work.area(work.heavy)
        heavy_ns, peak_share = operators_ns(facts, work.heavy), work.heavy_peak_share
        passes = facts.steps.mean_ns(subtract(phases.model_work, phases.areas[OPTIMIZER]))
        inside = facts.steps.mean_ns(intersect(heavy, phases.model_work))
        parts = [Part("Other operators and calls", max(0.0, passes - inside), *_fusion(facts))]
        if peak_share is None:
            return [Part("Matmuls, convolutions and attention", heavy_ns, ""), *parts]
        advice = _larger(facts) if peak_share < self.max_peak_share else ""
        return [
            Part("Matmuls, convolutions and attention at the measured peak", peak_share * heavy_ns, ""),
            Part("Matmuls, convolutions and attention below the measured peak", (1 - peak_share) * heavy_ns, advice),
            *parts,
        ]

    def passed(self, facts: Facts) -> str:
        return f"{_rate(facts)} No large part of the model's work can become shorter."


def _rate(facts: Facts) -> str:
    """How fast the heavy operators are."""
    work = facts.cpu_work
    share = percent(operators_ns(facts, work.heavy) / facts.step_ns)
    text = f"Matmuls, convolutions and attention take {share} of {the_step(facts)}"
    if work.heavy_peak_share is None:
        return f"{text}."
    return f"{text}, at {percent(work.heavy_peak_share)} of the peak measured on this machine."


def _fusion(facts: Facts) -> tuple[str, str | None]:
    """What to do about operators that only read and write memory."""
    light = facts.cpu_work.light
    names = ", ".join(one.name.removeprefix("aten::") for one in light[:3])
    if light and any(kind in light[0].name.lower() for kind in RECURRENT):
        return f"Most of it is {names}. torch.compile does not fuse recurrent layers: use shorter sequences.", None
    if any(model.compiled for model in facts.captured.models):
        return f"Most of it is {names}. Keep these operators inside the compiled code.", None
    return f"Most of it is {names}. torch.compile fuses such operators.", "model = torch.compile(model)"


def _larger(facts: Facts) -> str:
    """What to do about matmuls below the peak."""
    thin = facts.cpu_work.thin
    if thin is not None and operators_ns(facts, [thin]) > 0.3 * operators_ns(facts, facts.cpu_work.heavy):
        return "Use a larger batch. Most of these matmuls have so few rows that reading the weights limits them."
    return "Use a larger batch, so that each matmul and convolution is larger. Check that no other program runs."
