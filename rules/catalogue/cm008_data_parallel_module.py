"""CM008: one process drives several GPUs through nn.DataParallel."""

from __future__ import annotations

from traceopt.rules import (
    Effort,
    Facts,
    Findings,
    Fix,
    RemoveHost,
    Risk,
    Rule,
    by_site,
    each_step,
    host_bounds,
    ms,
    percent,
    priced,
    site_evidence,
    site_locations,
    threshold,
    union,
)

REMOVABLE = 0.95  # of the module's host time


class DataParallelModule(Rule):
    """Measures the host time in which `nn.DataParallel` copies the model to every GPU, splits the batch and collects
    the results, while the GPU waits for the host.

    Why it costs: every forward pass sends all parameters from the first GPU to the others. One thread per GPU shares
    one Python interpreter. The first GPU gathers the outputs and computes the loss for all.

    How to fix: run one process per GPU.

        torchrun --nproc-per-node 4 train.py

        dist.init_process_group("nccl")
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        model = DistributedDataParallel(model.cuda())
        sampler = DistributedSampler(dataset)

    When it is wrong: the saving counts only host time. The idle time of the other GPUs comes on top and is not
    estimated.

    Sources: PyTorch documentation of DataParallel ("It is recommended to use DistributedDataParallel").
    """

    code = "CM008"
    name = "data-parallel-module"
    title = "Replace DataParallel with DistributedDataParallel"
    family = "communication"
    effort = Effort.REFACTORING
    risk = Risk.CORRECTNESS
    risk_note = "batch_size is then per GPU"
    confidence = "medium"
    requires = ("gpu", "launches")

    min_share: float = threshold(0.01, "smallest saving, as a share of the step, to state one")

    def applies(self, facts: Facts) -> str | None:
        if facts.gpu.device_count < 2:
            return "The process uses one GPU."
        return None if len(facts.data_parallel_calls) else "No nn.DataParallel in this trace."

    def check(self, facts: Facts) -> Findings:
        rows = facts.data_parallel_calls
        slices = facts.slices
        area = union(slices.start[rows], slices.end[rows])
        host = facts.steps.host_mean_ns(area)
        saved = priced(
            facts,
            host_bounds(facts, area, REMOVABLE),
            [RemoveHost(area, REMOVABLE)],
            f"Assumes that {percent(REMOVABLE)} of the host time for copying, splitting and collecting goes away.",
        )
        sites = by_site(facts, rows, slices.end[rows] - slices.start[rows])
        devices = facts.gpu.device_count
        yield self.finding(
            why=(
                f"One process drives {devices} GPUs through nn.DataParallel. Copying the model, batches and results "
                f"blocks the host for {ms(host)} of {each_step(facts)}."
            ),
            saving=saved if saved.share >= self.min_share else None,
            evidence=site_evidence(facts, sites),
            locations=site_locations(sites),
            fix=Fix(
                "Run one process per GPU with torchrun, and wrap the model in DistributedDataParallel.",
                "torchrun --nproc-per-node auto train.py\nmodel = DistributedDataParallel(model.cuda())",
            ),
        )

    def passed(self, facts: Facts) -> str:  # noqa: ARG002
        return "No nn.DataParallel in this trace."
