"""EF003: the throughput is below the user's reference."""

from __future__ import annotations

from traceopt.rules import Effort, Evidence, Facts, Findings, Fix, Rule, ms, percent, threshold


class BelowReference(Rule):
    """Compares the throughput of one GPU (tokens or samples per step, divided by the typical step) with the reference
    that you gave.

    Why it costs: a published or earlier rate on the same device shows that more is possible. The step time at that rate
    shows how much there is to save.

    How to fix: pass what one GPU processes per step, and work down the list of fixes.

        traceopt analyze logs --tokens-per-step 16384 --reference-throughput 3300

    When it is wrong: the profiler slows the step, most of all with stacks and shapes. Compare only recordings of the
    timing cycle. A rate at another sequence length, precision or device is not a reference.

    Sources: none; the reference is yours.
    """

    code = "EF003"
    name = "below-reference"
    title = "Close the gap to the reference throughput"
    family = "efficiency"
    effort = Effort.DEPENDS

    min_ratio: float = threshold(0.95, "smallest share of the reference that is not reported")

    def applies(self, facts: Facts) -> str | None:
        measured = facts.throughput
        if measured is None or measured.per_s is None or measured.reference_per_s is None:
            return "No reference was given (--reference-throughput with --tokens-per-step or --samples-per-step)."
        return None

    def check(self, facts: Facts) -> Findings:
        measured = facts.throughput
        if measured is None or measured.per_s is None or measured.reference_per_s is None:
            return
        share = measured.reference_share or 0.0
        if share >= self.min_ratio:
            return
        mean_ns = facts.steps.window_ns / facts.steps.count
        unit = f"{measured.unit}/s"
        yield self.finding(
            why=(
                f"One GPU processes {measured.per_s:,.0f} {unit}, which is {percent(share)} of the reference of "
                f"{measured.reference_per_s:,.0f}. To reach it, a step must take {ms(mean_ns * share)} instead of "
                f"{ms(mean_ns)}."
            ),
            saving=None,
            evidence=[
                Evidence("Throughput of one GPU", detail=f"{measured.per_s:,.1f} {unit}"),
                Evidence("Reference", detail=f"{measured.reference_per_s:,.1f} {unit}"),
            ],
            fix=Fix("Work down the fixes in this report. What remains is the model's own time on this device."),
        )

    def passed(self, facts: Facts) -> str:
        measured = facts.throughput
        share = measured.reference_share if measured else None
        return f"The throughput is {percent(share or 0.0)} of the reference."
