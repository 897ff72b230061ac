"""CP004: oneDNN is switched off in a CPU-only run with convolutions."""

from __future__ import annotations

from traceopt.rules import (
    Effort,
    Facts,
    Findings,
    Fix,
    Rule,
    SetAttribute,
    each_step,
    ms,
    percent,
    the_step,
    threshold,
)
from traceopt.rules.savings.work.cpu_operators import operator_evidence, operators_ns


class OneDnnOff(Rule):
    """Measures the time of convolutions in a run without a GPU whose script or environment switched oneDNN off
    (`torch.backends.mkldnn`).

    Why it costs: without oneDNN, torch copies the input of a convolution into a large matrix and multiplies it, or uses
    a plain loop. oneDNN convolves directly with the CPU's widest instructions.

    How to fix: remove the line that switches it off.

        torch.backends.mkldnn.enabled = True

    When it is wrong: oneDNN was switched off to work around a bug, or to get the same bits as another machine. The gain
    was not measured, so there is no saving.

    Sources: PyTorch documentation, "torch.backends.mkldnn"; oneDNN developer guide.
    """

    code = "CP004"
    name = "onednn-off"
    title = "Switch oneDNN on"
    family = "CPU runs"
    effort = Effort.ONE_LINE
    confidence = "medium"
    requires = ("cpu_only", "shapes", "settings")

    min_share: float = threshold(0.05, "smallest time of convolutions, as a share of the step, to report")

    def applies(self, facts: Facts) -> str | None:
        cpu = facts.captured.environment.cpu
        if not cpu.mkldnn or cpu.mkldnn_enabled is None:
            return "This torch has no oneDNN, or its state was not recorded."
        convolutions = any(operator.is_convolution for operator in facts.cpu_work.heavy)
        return None if convolutions else "No convolutions in this trace."

    def check(self, facts: Facts) -> Findings:
        convolutions = [operator for operator in facts.cpu_work.heavy if operator.is_convolution]
        time_ns = operators_ns(facts, convolutions)
        if facts.captured.environment.cpu.mkldnn_enabled or time_ns < self.min_share * facts.step_ns:
            return
        yield self.finding(
            why=f"Convolutions take {ms(time_ns)} of {each_step(facts)}, and oneDNN is switched off.",
            evidence=operator_evidence(facts, convolutions),
            fix=Fix(
                "Remove the line that switches oneDNN off.",
                edits=[SetAttribute("torch.backends.mkldnn.enabled", "True")],
            ),
        )

    def passed(self, facts: Facts) -> str:
        time_ns = operators_ns(facts, [operator for operator in facts.cpu_work.heavy if operator.is_convolution])
        state = "on" if facts.captured.environment.cpu.mkldnn_enabled else "off"
        return f"oneDNN is {state}; convolutions take {percent(time_ns / facts.step_ns)} of {the_step(facts)}."
