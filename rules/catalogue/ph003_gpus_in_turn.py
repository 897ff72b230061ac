"""PH003: one process drives several GPUs, and only one of them works at a time."""

from __future__ import annotations

from traceopt.rules import (
    DeviceTimes,
    Effort,
    Facts,
    Findings,
    Fix,
    Price,
    Risk,
    Rule,
    each_step,
    gpu_evidence,
    ms,
    passes_area,
    percent,
    priced_work,
    size,
    threshold,
)

MICRO_BATCHES = (1, 2)  # for each GPU: low and expected


class GpusInTurn(Rule):
    """Measures when each GPU of a process computes, for how long two of them compute at the same time, and for which
    other GPU each waits: after a copy between them, behind a stream wait, or while the host waits for the other one.

    Why it costs: layers on different GPUs (`self.first.to("cuda:0")`, `self.second.to("cuda:1")`,
    `device_map="auto"`) need each other's results. One GPU works, and the others wait for it. The step takes as long as
    on a single GPU, plus the copies between them.

    How to fix: if the model fits on one GPU, do not split it. Train a copy of it on each GPU.

        torchrun --nproc-per-node 2 train.py

        model = DistributedDataParallel(model.to(device))

    A model that is too large for one GPU can be sharded with FSDP (`fully_shard`), so that all GPUs work on each layer.
    Or use pipeline parallelism (`torch.distributed.pipelining`): a batch is cut into micro-batches, and one GPU works
    on the next one while the other has the last one. For inference load the model on one GPU
    (`device_map={"": 0}`), or use tensor parallelism. If the trace has the memory of all GPUs, the fix says which of
    these is possible.

    The saving is that of a pipeline, because it leaves the batch of a step as it is. With m micro-batches, n GPUs that
    take t1 to tn take (t1 + ... + tn + (m - 1) * the largest of them) / m, and the host launches m times as much.
    Expected are two micro-batches for each GPU, the low end has one. At best, as with data parallelism, no GPU ever
    waits. There is no saving if the host is too slow for that, nor for inference, because a single sequence cannot be
    cut.

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
    usable: float = threshold(0.9, "part of the memory of one GPU that the tensors of all may take to fit there")

    def applies(self, facts: Facts) -> str | None:
        if len(facts.gpu.computing) < 2:
            return "The process computes on one GPU."
        return "nn.DataParallel uses all GPUs at the same time (CM008)." if len(facts.data_parallel_calls) else None

    def check(self, facts: Facts) -> Findings:
        gpus = self._gpus(facts)
        if len(gpus) < 2 or _together(facts, gpus) > self.max_together:
            return
        count, evidence = facts.steps.count, [gpu_evidence(facts, gpu) for gpu in gpus]
        host_ns = facts.steps.host_mean_ns(passes_area(facts))
        price = _price(facts, gpus, host_ns) if facts.trains else None
        slow_host = price is not None and price.est_ns <= 0
        yield self.finding(
            why=(
                f"One of {len(gpus)} GPUs works at a time. They compute for {ms(facts.gpu.compute.total / count)} of "
                f"{each_step(facts)}, and at the same time for {percent(_together(facts, gpus))} of it."
                + (f" Micro-batches would wait for the host, which takes {ms(host_ns)} for each." if slow_host else "")
            ),
            saving=None if slow_host else price,
            evidence=evidence,
            fix=self._fix(facts),
            risk=None if facts.trains else Risk.MEMORY,
        )

    def passed(self, facts: Facts) -> str:
        gpus = self._gpus(facts)
        if len(gpus) < 2:
            return "One GPU does almost all of the work."
        return f"{len(gpus)} GPUs compute at the same time for {percent(_together(facts, gpus))} of their compute."

    def _gpus(self, facts: Facts) -> list[DeviceTimes]:
        least = self.min_part * facts.gpu.compute.total
        return [device for device in facts.device_times if device.compute.total >= least]

    def _fix(self, facts: Facts) -> Fix:
        """The fix by whether the tensors of all GPUs fit on one."""
        known, one_gpu = facts.peak_by_gpu, facts.device.memory_bytes
        if not one_gpu or not known.keys() >= set(facts.gpu.computing):
            return TRAINING if facts.trains else INFERENCE
        whole = sum(known.values())
        held = f" Together the GPUs hold {size(whole)}, and one has {size(one_gpu)}."
        if whole <= self.usable * one_gpu:
            small = TRAIN_COPIES if facts.trains else LOAD_ON_ONE
            return Fix(small.text + held, small.code)
        large = SHARD if facts.trains else SPLIT_LAYERS
        return Fix(large.text + held, large.code)


TRAIN_COPIES = Fix(
    "The model fits on one GPU: train a copy on each with DistributedDataParallel.",
    "torchrun --nproc-per-node auto train.py\nmodel = DistributedDataParallel(model.to(device))",
)
SHARD = Fix(
    "Shard the model with FSDP, so that all GPUs work on each layer. Or cut the batch into micro-batches for pipeline "
    "parallelism (torch.distributed.pipelining).",
    "torchrun --nproc-per-node auto train.py\nfor layer in model.layers:\n    fully_shard(layer)\nfully_shard(model)",
)
LOAD_ON_ONE = Fix(
    "The model fits on one GPU: load it there. The other GPUs can run copies of it in processes of their own.",
    'model = AutoModelForCausalLM.from_pretrained(name, device_map={"": 0})',
)
SPLIT_LAYERS = Fix(
    "Use tensor parallelism, so that all GPUs work on each layer.",
    'torchrun --nproc-per-node auto generate.py\nmodel = AutoModelForCausalLM.from_pretrained(name, tp_plan="auto")',
)
TRAINING = Fix(
    "If the model fits on one GPU, train a copy on each with DistributedDataParallel. Otherwise shard it with FSDP, or "
    "cut the batch into micro-batches for pipeline parallelism (torch.distributed.pipelining).",
    TRAIN_COPIES.code,
)
INFERENCE = Fix(
    "If the model fits on one GPU, load it there. Otherwise use tensor parallelism: all GPUs work on each layer.",
    LOAD_ON_ONE.code,
)


def _together(facts: Facts, gpus: list[DeviceTimes]) -> float:
    """The share of the compute in which more than one GPU computes; two at the same time count once."""
    return sum(gpu.compute.total for gpu in gpus) / max(1, facts.gpu.compute.total) - 1


def _price(facts: Facts, gpus: list[DeviceTimes], host_ns: float) -> Price:
    """`host_ns`: what the host takes to launch all kernels of a step, which every micro-batch launches again."""
    times_ns = [gpu.compute.total / facts.steps.count for gpu in gpus]
    now, total, longest = facts.gpu.compute.total / facts.steps.count, sum(times_ns), max(times_ns)

    def gain(batches: int) -> float:
        return max(0.0, now - max((total + (batches - 1) * longest) / batches, batches * host_ns))

    low, more = (gain(each * len(gpus)) for each in MICRO_BATCHES)
    expected = max(low, more)
    basis = "A pipeline with one or two micro-batches for each GPU; at best, all GPUs compute all the time."
    return priced_work(facts, facts.gpu.is_compute, (low, expected, max(expected, now - total / len(gpus))), basis)
