"""Values of settings that no trace can tell exactly, so that they are searched for."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from traceopt.analyzer.vocabulary.op_names import is_convolution
from traceopt.result.document import Result
from traceopt.rules.fixes.run_time import NO_COMPILE_CACHE
from traceopt.trying.changes import Change

MOST_WORKERS = 16
PREFETCHED = (2, 8)  # batches of a worker
BUCKETS_MB = (5, 10, 50, 100, 200)  # DistributedDataParallel has 25 by itself
COMPILED_RUN = 4  # a run that compiles costs as much as so many others


class Search(Struct, frozen=True):
    """One setting, or several that depend on each other, with the values to choose from.

    `most_us` is the time of a step that it can shorten, so that it gains no more; None: not known. `run_cost`: of
    a run of a value, in usual runs.
    """

    name: str
    values: list[Change]
    most_us: float | None = None
    run_cost: int = 1

    @property
    def worth(self) -> float:
        """The highest gain for the cost, in microseconds per step and run."""
        return (self.most_us or 0.0) / (self.run_cost * len(self.values))


class StepTimes(Struct, frozen=True):
    """What a step spends, in microseconds; parts may overlap."""

    whole: float
    loading: float = 0.0
    convolutions: float = 0.0
    exposed_reductions: float = 0.0


def step_times(result: Result) -> StepTimes:
    of_cpu = (
        [(operator.name, operator.us_per_step) for operator in result.cpu.operators] if result.cpu is not None else []
    )
    operators = of_cpu or [(one.name, one.us_per_step) for one in result.shaped_ops]
    return StepTimes(
        result.step.typical_us or 0.0,
        result.dataloader.us_per_step or 0.0,
        sum(us for name, us in operators if is_convolution(name)),
        sum(
            collective.exposed_us_per_step
            for collective in result.communication.collectives
            if collective.name == "all_reduce"
        ),
    )


def searches(
    times: StepTimes, *, cores: int, gpu: bool, compiled: bool, numerics: bool, threads: int | None = None
) -> list[Search]:
    """Those with the highest gain for their cost first. `cores` that the script may use; `compiled`: whether the script
    compiles by itself; `numerics`: whether values that change rounding in each matmul are allowed; `threads` of each
    operator today.
    """
    found = []
    computing = times.whole - times.loading
    if times.loading:
        found.append(Search("the data loader", _loader_values(cores, gpu), times.loading))
    if gpu:
        found.append(Search("the allocator", [_variable("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")]))
    else:
        found.append(Search("threads", [_threads(power) for power in _powers(cores) if power != threads], computing))
    if times.convolutions:
        switch = _switch("model.to(memory_format=torch.channels_last)", channels_last=True)
        found.append(Search("the memory format", [switch], times.convolutions))
    if gpu and times.convolutions:
        switch = _switch("torch.backends.cudnn.benchmark = True", cudnn_benchmark=True)
        found.append(Search("cuDNN", [switch], times.convolutions))
    if gpu and numerics:
        found.append(Search("matmul precision", [_switch('torch.set_float32_matmul_precision("high")', tf32=True)]))
    if times.exposed_reductions:
        buckets = [_switch(f"DistributedDataParallel(bucket_cap_mb={size})", bucket_cap_mb=size) for size in BUCKETS_MB]
        found.append(Search("gradient buckets", buckets, times.exposed_reductions))
    if not compiled:
        found.append(Search("torch.compile", _compile_values(gpu), computing, COMPILED_RUN))
    return sorted((one for one in found if one.values), key=lambda search: -search.worth)


def _loader_values(cores: int, gpu: bool) -> list[Change]:
    """Without a GPU, workers and operators share the cores: each number of workers is also tried with the threads that
    it leaves.
    """
    values = []
    for count in _powers(min(cores, MOST_WORKERS)):
        values += [_workers(count, factor) for factor in PREFETCHED]
        if not gpu and cores > 1:
            values.append(_joined(_workers(count, PREFETCHED[0]), _threads(max(1, cores - count))))
    return values


def _workers(count: int, factor: int) -> Change:
    name = f"num_workers={count}, prefetch_factor={factor}"
    return _switch(name, loader_workers=count, prefetch_factor=factor, persistent_workers=True)


def _threads(count: int) -> Change:
    return _variable("OMP_NUM_THREADS", str(count))


def _compile_values(gpu: bool) -> list[Change]:
    """reduce-overhead makes CUDA graphs, so that it is only for GPUs."""
    modes = [None, "reduce-overhead", "max-autotune"] if gpu else [None, "max-autotune"]
    return [_compile({"mode": mode} if mode else {}) for mode in modes] + [_compile({"dynamic": True})]


def _compile(arguments: dict[str, Any]) -> Change:
    given = "".join(f", {name}={value!r}" for name, value in arguments.items()).replace("'", '"')
    name = f"torch.compile(model{given})"
    return Change(name, "searched", name, "runtime", switches={"compile": arguments}, environment=NO_COMPILE_CACHE)


def _switch(name: str, **switches: object) -> Change:
    return Change(name, "searched", name, "runtime", switches=dict(switches))


def _variable(name: str, value: str) -> Change:
    text = f"{name}={value}"
    return Change(text, "searched", text, "environment", environment={name: value})


def _joined(one: Change, other: Change) -> Change:
    name = f"{one.name}, {other.name}"
    environment = one.environment | other.environment
    return Change(name, "searched", name, "runtime", switches=one.switches | other.switches, environment=environment)


def _powers(most: int) -> list[int]:
    """1, 2, 4, ... and the largest itself."""
    return sorted({1 << shift for shift in range(most.bit_length())} | {most})
