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
    ScaleWork,
    by_site,
    each_step,
    gpu_evidence,
    host_bounds,
    ms,
    percent,
    priced,
    site_evidence,
    site_locations,
    threshold,
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

    When it is wrong: the saving counts host time, and at best the collectives that copy the model. The idle time of
    the other GPUs comes on top and is not estimated.

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
        if len(facts.gpu.computing) < 2:
            return "The process computes on one GPU."
        return None if len(facts.data_parallel_calls) else "No nn.DataParallel in this trace."

    def check(self, facts: Facts) -> Findings:
        rows = facts.data_parallel_calls
        slices, count = facts.slices, facts.steps.count
        area = slices.area_of(rows)
        host = facts.steps.host_mean_ns(area)
        low, expected, most = host_bounds(facts, area, REMOVABLE)
        exposed = facts.gpu.exposed_communication.total / count
        removed = RemoveHost(area, REMOVABLE)
        saved = priced(
            facts,
            (low, expected, most + exposed),
            [removed],
            f"Assumes that {percent(REMOVABLE)} of the host time for copying, splitting and collecting goes away; at "
            "best, also the exposed copies of the model.",
            high=[removed, ScaleWork(facts.gpu.is_communication, 0)],
        )
        sites = by_site(facts, rows)
        gpus = [gpu_evidence(facts, device) for device in facts.device_times]
        yield self.finding(
            why=(
                f"One process drives {len(gpus)} GPUs through nn.DataParallel. Copying the model, batches and results "
                f"blocks the host for {ms(host)} of {each_step(facts)}."
            ),
            saving=saved if saved.share >= self.min_share else None,
            evidence=[*site_evidence(facts, sites), *gpus],
            locations=site_locations(sites),
            fix=Fix(
                "Use DistributedDataParallel instead: run one process per GPU with torchrun.",
                "torchrun --nproc-per-node auto train.py\nmodel = DistributedDataParallel(model.cuda())",
            ),
        )

    def passed(self, facts: Facts) -> str:  # noqa: ARG002
        return "No nn.DataParallel in this trace."
