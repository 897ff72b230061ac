"""EF005: evaluations between the training steps take much of the run."""

from __future__ import annotations

import numpy as np

from traceopt.rules import Evidence, Facts, Findings, Fix, Ledger, Risk, Rule, median, ms, percent, threshold


class EvaluationTime(Rule):
    """Measures the time in which the script evaluates its model, from the log of the whole run that `traceopt run`
    writes. It counts as an evaluation when the script reads a DataLoader that it does not train on, or reads one
    without gradients, or puts the model into evaluation mode and back into training mode.

    Why it costs: the model does not learn meanwhile. Recorded steps leave evaluations out, so no other finding shows
    them. A training that evaluates for half of its time takes twice as long as its steps.

    How to fix: evaluate less often or on a fixed sample, and make an evaluation cheaper: no gradients, larger batches,
    mixed precision, loader workers that stay alive. If it is self-play or a rollout of reinforcement learning, run many
    games or environments as one batch.

        @torch.no_grad()
        def evaluate():
            model.eval()
            ...

        if epoch % 5 == 0:
            evaluate()

    torch.inference_mode() is little faster, and not safe here: the training cannot use tensors that a module makes and
    keeps under it, such as a cache of rotary tables.

    When it is wrong: a short trial of a long training may evaluate far more often than the training itself.
    Reinforcement learning may collect its data in evaluation mode. Evaluations that show none of these signs are not
    seen.

    Sources: PyTorch documentation, "Autograd mechanics" (inference mode and evaluation mode).
    """

    code = "EF005"
    name = "evaluation-time"
    title = "Evaluate less often or faster"
    family = "efficiency"
    risk = Risk.LATER
    risk_note = "Fewer points in the validation curve"
    requires = ("ledger",)

    min_share: float = threshold(0.1, "smallest share of the run after its first step to report")
    min_evaluations: int = threshold(2, "fewest steps with an evaluation to report")

    def check(self, facts: Facts) -> Findings:
        ledger = facts.captured.ledger
        if ledger is None:
            return
        steps, share = np.flatnonzero(ledger.eval_ns), _share(ledger)
        if len(steps) < self.min_evaluations or share < self.min_share:
            return
        sure = bool(facts.captured.loaders)  # else it may be how the script collects its data
        name, half = ledger.evaluation_name(sure), percent(share / 2)
        run, every = ledger.whole_run, median(np.diff(steps))
        each_ns = run.evaluation_ns / max(len(steps), sum(place.count for place in ledger.evaluations))
        yield self.finding(
            title=f"Evaluate half as often to make the run {half} shorter" if sure else None,
            why=(
                f"{name} takes {percent(share)} of the run after its first step. It happens {_often(every)}, for "
                f"{ms(each_ns)} each time. Half as many evaluations make the run {half} shorter."
            ),
            impact="high" if sure and run.evaluation_ns > run.steps_ns else "info",
            evidence=[
                Evidence(
                    name,
                    detail=f"{place.count:,} times, {ms(place.total_ns / place.count)} each",
                    location=place.location,
                )
                for place in ledger.evaluations[:3]
            ],
            locations=[place.location for place in ledger.evaluations[:3]],
            fix=Fix(
                "Evaluate less often or on fewer batches. Use torch.no_grad(), larger batches and mixed precision "
                "for it. Rollouts and self-play: run many games or environments as one batch.",
                "@torch.no_grad()\ndef evaluate(): ...\n\nif epoch % 5 == 0:\n    evaluate()",
            ),
        )

    def passed(self, facts: Facts) -> str:
        ledger = facts.captured.ledger
        if ledger is None or not ledger.whole_run.evaluation_ns:
            return "No evaluation was seen in the run."
        return f"Evaluation takes {percent(_share(ledger))} of the run after its first step."


def _often(steps: float) -> str:
    return "after each step" if steps <= 1 else f"about once every {steps:,.0f} steps"


def _share(ledger: Ledger) -> float:
    run = ledger.whole_run
    return run.evaluation_ns / max(1, run.total_ns - run.start_up_ns)
