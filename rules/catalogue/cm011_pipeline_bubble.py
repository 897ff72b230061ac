"""CM011: a pipeline stage waits for other stages."""

from __future__ import annotations

from traceopt.analyzer.communication.pipeline import PipelineStage
from traceopt.rules import (
    Changes,
    Facts,
    Findings,
    Fix,
    Risk,
    Rule,
    by_site,
    each_step,
    hide,
    ms,
    percent,
    priced,
    site_evidence,
    the_step,
    threshold,
)

TRAINING_FIX = Fix(
    "Split the batch into more micro-batches: twice as many halve the bubble. Or use a schedule with a smaller bubble "
    "(interleaved 1F1B, zero bubble), and give all stages equal work: the first has the embedding, the last the loss.",
    "schedule = ScheduleInterleaved1F1B(stages, n_microbatches=4 * stage_count)",
)
INFERENCE_FIX = Fix(
    "Keep at least as many batches in flight as there are stages, and give all stages equal work. Where the model fits "
    "into fewer GPUs, use fewer stages."
)


class PipelineBubble(Rule):
    """Measures how long the GPU waits in sends and receives for another pipeline stage, with no compute meanwhile. The
    transfer itself does not count: the shortest call of the same size shows how long it takes.

    Why it costs: a stage computes nothing until the first micro-batch arrives, and again until the first gradient comes
    back. With p stages and m micro-batches, a step without interleaving is idle for (p - 1) / (m + p - 1) of its time:
    43 % with 4 of each, 16 % with 16 micro-batches. If a stage has more work than the others, they wait for it in every
    micro-batch.

    How to fix: use more micro-batches, or a schedule in which each rank has several small stages.

        schedule = ScheduleInterleaved1F1B(stages, n_microbatches=4 * stage_count)

    Compare the compute time of the ranks: if one has more, move a layer to another stage.

    Where the schedule and the number of stages are known, the rule says how much of the wait is due to the schedule.
    Then it expects the saving of twice as many micro-batches of half the size. torch.distributed.pipelining annotates
    most schedules. With one chunk per rank, the peers of sends and receives show it, too (`record_shapes=True`). With
    the traces of all stages, CM012 names the slowest one.

    When it is wrong: one rank's trace cannot tell a bubble from a late stage or a slow link. More micro-batches of the
    same size are a larger batch per step, which may change convergence. Smaller ones use the GPU less well.

    Sources: Huang et al., "GPipe" (2019); Narayanan et al., "Efficient Large-Scale Language Model Training on GPU
    Clusters Using Megatron-LM" (2021); Qi et al., "Zero Bubble Pipeline Parallelism" (2023); PyTorch documentation,
    "Pipeline Parallelism".
    """

    code = "CM011"
    name = "pipeline-bubble"
    title = "Use more micro-batches or a schedule with a smaller pipeline bubble"
    family = "communication"
    risk = Risk.CONVERGENCE
    risk_note = "More micro-batches of the same size are a larger batch"
    confidence = "medium"
    requires = ("gpu", "launches")

    min_share: float = threshold(0.03, "smallest wait for other stages, as a share of the step, to report")
    low: float = threshold(0.2, "share of the waits that the fix removes, low")
    expected: float = threshold(0.5, "share of the waits that the fix removes, expected")
    high: float = threshold(0.9, "share of the waits that the fix removes, high")

    def applies(self, facts: Facts) -> str | None:
        return None if len(facts.stage_waits.rows) else "No sends or receives in this trace."

    def check(self, facts: Facts) -> Findings:
        waits = facts.stage_waits
        wait = waits.total_ns / facts.steps.count
        if wait < self.min_share * facts.step_ns:
            return
        sites = by_site(facts, waits.launch, waits.waits_ns)
        stage = facts.pipeline_stage
        expected = self.expected if stage is None else stage.doubling_saves_ns / wait
        low, high = min(self.low, expected), max(self.high, expected)
        yield self.finding(
            why=(
                f"The GPU waits {ms(wait)} of {each_step(facts)} for other pipeline stages: sends and receives take "
                f"that much longer than their transfer, and nothing computes meanwhile.{_of_schedule(stage)}"
            ),
            saving=priced(
                facts,
                (low * wait, expected * wait, high * wait),
                _shorter(facts, expected),
                f"Assumes the waits shrink by {percent(low)}, {percent(expected)} or {percent(high)}"
                + ("." if stage is None else ": the second is what twice as many micro-batches of half the size save."),
                low=_shorter(facts, low),
                high=_shorter(facts, high),
            ),
            evidence=site_evidence(facts, sites, "Waiting in sends and receives"),
            fix=TRAINING_FIX if facts.trains else INFERENCE_FIX,
        )

    def passed(self, facts: Facts) -> str:
        share = facts.stage_waits.total_ns / facts.steps.window_ns
        return f"The GPU waits for other pipeline stages for {percent(share)} of {the_step(facts)}."


def _of_schedule(stage: PipelineStage | None) -> str:
    if stage is None:
        return ""
    return (
        f" With {stage.size} stages and {stage.micro_batches} micro-batches, {ms(stage.least_ns())} of it is due to "
        f"the schedule ({stage.schedule})."
        if stage.least_ns() <= stage.bubble_ns
        else ""
    )


def _shorter(facts: Facts, share: float) -> Changes:
    return hide(facts, facts.stage_waits.rows, share * facts.stage_waits.waits_ns)
