"""CM012: one pipeline stage computes longer than the others."""

from __future__ import annotations

from traceopt.rules import (
    Effort,
    Evidence,
    Findings,
    Fix,
    RunFacts,
    RunRule,
    each_step,
    ms,
    on_rank,
    percent,
    rank_name,
    ranks_saving,
    threshold,
)


class UnevenStages(RunRule):
    """Compares how long the stages of a pipeline compute in a step, without the optimizer.

    Why it costs: every micro-batch passes through all stages, so the slowest one sets the pace, and the others wait for
    it. The saving is measured by replaying the recorded order of forward and backward passes of all ranks, as they are
    and with the mean compute time on each.

    How to fix: move layers from the slowest stage to the others until all take about the same time. The embedding
    belongs to the first stage and the loss over a large vocabulary to the last one, so these need fewer layers.

        stage = PipelineStage(model.layers[first[rank] : first[rank + 1]], rank, size, device)     # by measured time

        --account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split             # Megatron-LM

    When it is wrong: layers can be moved only as a whole, so the saving is an upper bound for few large layers. A stage
    may be slow because its GPU is: then its kernels take longer than the same ones of another stage. The memory of the
    other stages must hold the layers.

    The rule needs the traces of all stages, and their order of forward and backward passes: as annotated by
    torch.distributed.pipelining, or by the peers of sends and receives, which `record_shapes=True` records.

    Sources: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM" (2021);
    Qi et al., "Zero Bubble Pipeline Parallelism" (2023); PyTorch documentation, "Pipeline Parallelism".
    """

    code = "CM012"
    name = "uneven-stages"
    title = "Move layers away from the slowest pipeline stage"
    family = "communication"
    effort = Effort.REFACTORING
    confidence = "medium"

    min_share: float = threshold(0.03, "smallest saving of equal stages, as a share of the step, to report")

    def lacks_ranks(self, run: RunFacts) -> str | None:
        return run.incomparable

    def applies_run(self, run: RunFacts) -> str | None:
        if any(rank.stage is not None for rank in run.ranks):
            return None if run.whole_pipelines else "Not all stages of a pipeline are recorded."
        return "No pipeline whose schedule these traces show."

    def check_run(self, run: RunFacts) -> Findings:
        uneven = max(run.whole_pipelines, key=lambda pipeline: pipeline.uneven_ns)
        if uneven.uneven_ns < self.min_share * run.step_ns:
            return
        slow, stages = uneven.slowest, uneven.stages
        finding = self.finding(
            why=(
                f"{rank_name(run, slow).capitalize()} computes {ms(stages[slow].compute_ns)} of {each_step(run)}, and "
                f"the {len(stages)} stages of its pipeline {ms(uneven.mean_ns)} on average. The other stages wait for "
                "it in every micro-batch."
            ),
            saving=ranks_saving(
                run,
                0.5 * uneven.uneven_ns,
                uneven.uneven_ns,
                1.1 * uneven.uneven_ns,
                "The recorded schedule of all ranks, replayed with the mean compute time on each.",
            ),
            evidence=[
                Evidence(f"Compute on {rank_name(run, index)}", round(stage.compute_ns / 1e3, 3))
                for index, stage in stages.items()
            ],
            fix=Fix("Give each stage the layers that take the same time, not the same number of layers."),
            shares_cause_with=["CM001", "CM003", "CM004", "CM011"],
        )
        yield on_rank(finding, run, slow)

    def passed_run(self, run: RunFacts) -> str:
        most = max(pipeline.uneven_ns for pipeline in run.whole_pipelines)
        return f"Stages that compute equally long would save {percent(most / run.step_ns)} of the step."
