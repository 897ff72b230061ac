"""PH003: one process drives several GPUs, and only one of them works at a time."""

from __future__ import annotations

from traceopt.rules import (
    Effort,
    Evidence,
    Facts,
    Findings,
    Fix,
    Intervals,
    Price,
    Risk,
    Rule,
    each_step,
    ms,
    percent,
    place_of_work,
    places,
    priced_work,
    threshold,
    us,
)

MICRO_BATCHES = (1, 2)  # for each GPU: low and expected


class GpusInTurn(Rule):
    """Measures when each GPU of a process computes, and for how long two of them compute at the same time.

    Why it costs: layers on different GPUs (`self.first.to("cuda:0")`, `self.second.to("cuda:1")`,
    `device_map="auto"`) need each other's results. One GPU works, and the others wait for it. The step takes as long as
    on a single GPU, plus the copies between them.

    How to fix: if the model fits on one GPU, do not split it. Train a copy of it on each GPU.

        torchrun --nproc-per-node 2 train.py

        model = DistributedDataParallel(model.to(device))

    A model that is too large for one GPU can be sharded with FSDP (`fully_shard`), so that all GPUs work on each layer.
    Or use pipeline parallelism (`torch.distributed.pipelining`): a batch is cut into micro-batches, and one GPU works
    on the next one while the other has the last one. For inference load the model on one GPU
    (`device_map={"": 0}`), or use tensor parallelism.

    The saving is that of a pipeline, because it leaves the batch of a step as it is. With m micro-batches, n GPUs that
    take t1 to tn take (t1 + ... + tn + (m - 1) * the largest of them) / m. Expected are two micro-batches for each GPU,
    the low end has one. At best, as with data parallelism, no GPU ever waits. Inference has no saving: a single
    sequence cannot be cut.

    When it is wrong: the GPUs run two independent programs of one process, which should overlap. Micro-batches make
    kernels smaller, and batch norm computes its statistics over each. Nothing changes if the memory of one GPU is too
    small for the batch that FSDP or data parallelism gives it.

    Sources: Huang et al., "GPipe" (2019); PyTorch documentation, "Pipeline Parallelism"; Hugging Face documentation of
    big model inference (`device_map`: "one GPU works at a time").
    """

    code = "PH003"
    name = "gpus-in-turn"
    title = "Let the GPUs work at the same time"
    family = "phases"
    effort = Effort.REFACTORING
    risk = Risk.CORRECTNESS
    risk_note = "Micro-batches change batch norm; with more processes, the batch is per GPU"
    confidence = "medium"
    requires = ("gpu",)

    min_part: float = threshold(0.10, "smallest part of the compute for a GPU to count")
    max_together: float = threshold(0.10, "longest compute of two GPUs at the same time, as a share of the compute")

    def applies(self, facts: Facts) -> str | None:
        if facts.gpu.device_count < 2:
            return "The process uses one GPU."
        return "nn.DataParallel uses all GPUs at the same time." if len(facts.data_parallel_calls) else None

    def check(self, facts: Facts) -> Findings:
        busy = self._busy(facts)
        if len(busy) < 2 or _together(facts, busy) > self.max_together:
            return
        times = {device: area.total / facts.steps.count for device, area in busy.items()}
        evidence = [
            Evidence(
                f"Compute of GPU {device}",
                us(ns),
                detail=f"{percent(ns / facts.step_ns)} of the step",
                location=place_of_work(facts, _longest(facts, device)),
            )
            for device, ns in times.items()
        ]
        yield self.finding(
            why=(
                f"One of {len(busy)} GPUs works at a time. In {each_step(facts)} they compute for "
                f"{' and '.join(ms(ns) for ns in times.values())}, and at the same time for "
                f"{percent(_together(facts, busy))} of it."
            ),
            saving=_price(facts, list(times.values())) if facts.trains else None,
            evidence=evidence,
            locations=places(evidence),
            fix=TRAINING if facts.trains else INFERENCE,
        )

    def passed(self, facts: Facts) -> str:
        busy = self._busy(facts)
        if len(busy) < 2:
            return "One GPU does almost all of the work."
        return f"{len(busy)} GPUs compute at the same time for {percent(_together(facts, busy))} of their compute."

    def _busy(self, facts: Facts) -> dict[int, Intervals]:
        least = self.min_part * facts.gpu.compute.total
        return {device: area for device, area in facts.gpu.compute_by_device.items() if area.total >= least}


TRAINING = Fix(
    "If the model fits on one GPU, train a copy on each with DistributedDataParallel. Otherwise shard it with FSDP, or "
    "cut the batch into micro-batches for pipeline parallelism (torch.distributed.pipelining).",
    "torchrun --nproc-per-node auto train.py\nmodel = DistributedDataParallel(model.to(device))",
)
INFERENCE = Fix(
    "If the model fits on one GPU, load it there. Otherwise use tensor parallelism: all GPUs work on each layer.",
    'model = AutoModelForCausalLM.from_pretrained(name, device_map={"": 0})',
)


def _together(facts: Facts, busy: dict[int, Intervals]) -> float:
    """The share of the compute in which more than one GPU computes; two at the same time count once."""
    return sum(area.total for area in busy.values()) / max(1, facts.gpu.compute.total) - 1


def _longest(facts: Facts, device: int) -> int:
    """The longest kernel of a GPU."""
    work = facts.gpu.work
    mine = facts.gpu.is_compute & (work.device == device)
    return int((facts.gpu.in_window * mine).argmax())


def _price(facts: Facts, times_ns: list[float]) -> Price:
    now, count, total = facts.gpu.compute.total / facts.steps.count, len(times_ns), sum(times_ns)
    low, expected = (
        max(0.0, now - (total + (each * count - 1) * max(times_ns)) / (each * count)) for each in MICRO_BATCHES
    )
    basis = "A pipeline with one or two micro-batches for each GPU; at best, all GPUs compute all the time."
    return priced_work(facts, facts.gpu.is_compute, (low, expected, max(expected, now - total / count)), basis)
