"""What the typical step consists of, and how well it uses the machine."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Struct

from traceopt.result.field_notes import note
from traceopt.result.finding import Location
from traceopt.result.sections.rank_rows import (
    Collective,
    CommunicationGroup,
    ExpertLayerRow,
    ExpertRow,
    GroupOverlapRow,
    PipelineRow,
    ProcessGpu,
)
from traceopt.result.sections.work_rows import CpuOperator, IdleCause, MemoryPart, MemoryPoint, StepSeries

MANY_STEPS = 10  # of fewer, p10 and p90 are the shortest and the longest


class ServedRequests(Struct, frozen=True):
    """What requests see of a serving engine's steps, as far as this trace shows it: no figures of the service."""

    first_token_us: Annotated[
        float | None,
        note(
            "at least so long to the first token, without the queue: the median step that computes a prompt; null: no "
            "such step, a single step, or speculative decoding",
            "us",
        ),
    ]
    between_tokens_us: Annotated[
        float | None,
        note("median time from a step with decodes to the next; null: one such step, or speculative decoding", "us"),
    ]
    longest_between_tokens_us: Annotated[float | None, note("the longest of these", "us")]
    prompts_between_share: Annotated[
        float | None, note("part of the time between tokens in which steps only compute prompts", "share")
    ]
    requests_per_step: Annotated[float, note("mean requests of a step, by its time", "per step")]
    most_requests: Annotated[int, note("most requests of a step")]
    idle_between_passes_share: Annotated[
        float | None,
        note(
            "part of all steps in which the GPU is idle between two forward passes, while the engine schedules and "
            "samples; null: no GPU work, or a single step",
            "share",
        ),
    ]
    queue_gaps: Annotated[int, note("pauses in which the engine waited for requests: far longer than a step, or idle")]
    queue_gap_share: Annotated[float, note("these pauses as a part of all steps", "share")]


class Step(Struct, frozen=True):
    """The measured steps, each from completion to completion of the work that was launched before."""

    source: Annotated[
        Literal[
            "profiler_step", "annotation", "data_loader", "optimizer", "compiled_region", "backward", "window", "none"
        ],
        note(
            "what marks the steps: the profiler, or what repeats in the loop; window: nothing, so the whole recording "
            "counts as one step; none: there is no trace"
        ),
    ]
    count: Annotated[int, note("measured steps", "steps")]
    skipped: Annotated[int, note("step marks left out, because they hold no work or no whole step", "steps")]
    typical_us: Annotated[
        float | None, note("mean of the typical steps; all times per step in this document are such means", "us")
    ]
    typical_steps: Annotated[
        list[int], note("indices into per_step_us of the typical steps: all but those that are unusual once or cut")
    ]
    median_us: Annotated[float | None, note("median of all recorded steps", "us")]
    p10_us: Annotated[float | None, note("10th percentile of typical steps, or the shortest of fewer than 10", "us")]
    p90_us: Annotated[float | None, note("90th percentile of typical steps, or the longest of fewer than 10", "us")]
    per_step_us: Annotated[list[float], note("every step, in order", "us")]
    stretch: Annotated[
        float | None,
        note("recorded steps as a multiple of the steps without a profiler, waiting for data aside; null: not known"),
    ] = None
    series: Annotated[
        StepSeries | None,
        note("the recorded steps in parts, at most 10,000 around the shown one; null for a single step"),
    ] = None
    profiler_us: Annotated[
        float | None,
        note(
            "the profiler's own time in the typical step, which no saving includes; null on a GPU, whose work hides "
            "some of it, and if not known",
            "us",
        ),
    ] = None
    mean_us: Annotated[float | None, note("mean of all recorded steps", "us")] = None
    recorded_us: Annotated[
        float | None,
        note(
            "the typical step as it was recorded, if all times are corrected for what recording cost the host; null: "
            "they are as recorded",
            "us",
        ),
    ] = None


class Gpu(Struct, frozen=True):
    """The device over the measured window; several GPUs of a process are busy while any of them works. All fields are
    None when the trace holds no GPU work.
    """

    window_us: Annotated[float | None, note("length of the measured window", "us")]
    busy_us: Annotated[float | None, note("time in which kernels, copies or memsets run", "us")]
    busy_share: Annotated[float | None, note("busy part of the window", "share")]
    compute_share: Annotated[float | None, note("part of the window in which compute kernels run", "share")]
    idle_share: Annotated[float | None, note("1 - busy_share", "share")]
    idle_by_cause: Annotated[list[IdleCause], note("idle time by its cause, largest first")]
    graph_share: Annotated[float | None, note("part of the GPU's work, by time, that CUDA graphs launch", "share")] = (
        None
    )
    graph_known_share: Annotated[
        float | None, note("part of that with an operator from the capture or an annotation; null: no graphs", "share")
    ] = None
    devices: Annotated[
        list[ProcessGpu], note("each GPU of a process that works on several, by number; empty for one GPU")
    ] = []


class Sync(Struct, frozen=True):
    """Calls that block the host on the GPU."""

    calls_per_step: Annotated[float | None, note("calls", "per step")]
    us_per_step: Annotated[float | None, note("time per step in these calls", "us")]
    stall_us_per_step: Annotated[float | None, note("sync time with the GPU idle, plus the refill after it", "us")]


class DataLoader(Struct, frozen=True):
    """Waiting for the next batch."""

    us_per_step: Annotated[float | None, note("time per step in the data loader", "us")]
    stall_us_per_step: Annotated[float | None, note("of it with the GPU idle", "us")]


class Communication(Struct, frozen=True):
    """All collectives."""

    us_per_step: Annotated[float | None, note("time per step", "us")]
    exposed_us_per_step: Annotated[float | None, note("time per step that no compute overlaps", "us")]
    overlap_share: Annotated[float | None, note("part of the communication that compute overlaps", "share")]
    collectives: Annotated[list[Collective], note("collectives by name, longest first")]
    groups: Annotated[
        list[CommunicationGroup],
        note("collectives by process group, most exposed first; at most 100; empty: not recorded"),
    ] = []
    overlaps: Annotated[
        list[GroupOverlapRow],
        note("what runs while each process group communicates; at most 200 rows; empty: no groups recorded"),
    ] = []
    pipeline: Annotated[
        list[PipelineRow],
        note("stages of the pipeline of the shown rank, as far as recorded; empty: no pipeline, or schedule unknown"),
    ] = []
    experts: Annotated[
        list[ExpertRow], note("experts by rank; empty: the sizes of the parts of all-to-alls are not recorded")
    ] = []
    expert_capacity: Annotated[
        str | None,
        note("Python frame that limits the tokens of an expert, by a capacity factor; null: none is recorded"),
    ] = None
    expert_layers: Annotated[
        list[ExpertLayerRow],
        note("experts by layer, in the order of the calls; empty: one rank, or modules are not recorded"),
    ] = []


class TensorCores(Struct, frozen=True):
    """Use of Tensor Cores, as shares of kernel time."""

    eligible_share: Annotated[float | None, note("kernels that could use Tensor Cores", "share")]
    used_share: Annotated[float | None, note("kernels that do", "share")]
    unknown_share: Annotated[float | None, note("kernels of which it is not known", "share")]


class Efficiency(Struct, frozen=True):
    """Arithmetic per step against the peak of the device."""

    flops_per_step: Annotated[float | None, note("floating-point operations per step that ran", "FLOP")]
    achieved_tflops: Annotated[float | None, note("achieved rate", "TFLOP/s")]
    peak_tflops: Annotated[float | None, note("peak rate of the device for peak_dtype", "TFLOP/s")]
    peak_dtype: Annotated[str | None, note("type that the peak is for")]
    mfu: Annotated[
        float | None, note("model FLOP utilization: without what activation checkpointing recomputes", "share")
    ]
    hfu: Annotated[float | None, note("hardware FLOP utilization: all that ran", "share")]
    peak_source: Annotated[
        str | None, note('document of the vendor that states the peak, or "your settings"; null where none is known')
    ] = None
    peak_verified: Annotated[
        bool | None, note("whether a public text confirms the peak; null where it is yours or none is known")
    ] = None


class Throughput(Struct, frozen=True):
    """Of one GPU over the typical step, from what the user says that a step processes."""

    tokens_per_s: Annotated[float | None, note("tokens", "per second")]
    samples_per_s: Annotated[float | None, note("samples", "per second")]
    reference_per_s: Annotated[float | None, note("the user's reference: in tokens where they are given", "per second")]
    reference_share: Annotated[float | None, note("throughput as a part of the reference", "share")]


class ServingPhase(Struct, frozen=True):
    """The steps of a serving engine that do the same: figures are medians over them."""

    phase: Annotated[
        Literal["prefill", "decode", "mixed", "idle"],
        note('"prefill": prompts; "decode": the next token of each request; "mixed": both; "idle": no request'),
    ]
    count: Annotated[int, note("measured steps of this phase", "steps")]
    step_us: Annotated[float, note("median step of this phase", "us")]
    time_share: Annotated[float, note("time of these steps as a part of all steps", "share")]
    tokens_per_step: Annotated[
        float | None, note("tokens that a step computes; null: the annotation does not say", "per step")
    ]
    tokens_per_s: Annotated[
        float | None,
        note("the same per second; null: only one step, or speculative decoding rejects some", "per second"),
    ]


class Serving(Struct, frozen=True):
    """Steps of a serving engine, from its annotations."""

    engine: Annotated[str, note('"vLLM", "SGLang"')]
    phases: Annotated[list[ServingPhase], note("steps by phase, most time first")]
    requests: Annotated[ServedRequests | None, note("what requests see of these steps; null: an older document")] = None


class RlPhaseRow(Struct, frozen=True):
    """A phase of a reinforcement-learning step: the time between its marks, in one process or in any of several."""

    name: Annotated[
        Literal["rollout", "reward", "experience", "weight sync", "train"],
        note('"experience": log-probabilities, values and advantages of the rollout'),
    ]
    us_per_step: Annotated[float, note("time per step, without phases inside it", "us")]
    share: Annotated[float, note("the same as a part of the step", "share")]
    idle_us_per_step: Annotated[float | None, note("of it, the GPU is idle; null: no GPU work was recorded", "us")]
    location: Annotated[Location | None, note("place in the user's code; null: no stacks were recorded")]
    gpus: Annotated[
        int | None, note("GPUs of processes with different tasks, over which idle time is averaged; null: one process")
    ] = None
    processes: Annotated[
        list[str], note("processes that run the phase; empty: one process, or all the same phases")
    ] = []


class Memory(Struct, frozen=True):
    """Device memory over the shown step."""

    peak_allocated_bytes: Annotated[int | None, note("peak of the memory in tensors", "bytes")]
    peak_reserved_bytes: Annotated[int | None, note("peak of the memory held by the caching allocator", "bytes")]
    capacity_bytes: Annotated[int | None, note("memory of the device", "bytes")]
    composition: Annotated[list[MemoryPart], note("what the memory holds at its peak")]
    curve: Annotated[list[MemoryPoint], note("memory over the shown step, thinned to minima and maxima")]
    curve_us: Annotated[
        float | None, note("length of the curve: the step on the host, which allocates before the GPU works", "us")
    ] = None


class CpuRate(Struct, frozen=True):
    """A rate that the CPU reached when `traceopt run` measured it after the run, with the run's threads."""

    figure: Annotated[
        str, note('"fp32 matmul", "bf16 matmul", "contiguous convolution", "channels_last convolution", "copy", ...')
    ]
    rate: Annotated[float, note("the rate in `unit`")]
    unit: Annotated[Literal["GFLOP/s", "GB/s"], note("unit of the rate")]


class Cpu(Struct, frozen=True):
    """The matmuls, convolutions and attention of a CPU-only run, against what the CPU reaches."""

    name: Annotated[str | None, note("model of the CPU; null: not recorded")]
    operators: Annotated[list[CpuOperator], note("operators with known FLOP, longest first")]
    rates: Annotated[list[CpuRate], note("what the CPU reaches; empty where it was not measured")]
    threads: Annotated[int | None, note("threads of each operator; null: not recorded")] = None
