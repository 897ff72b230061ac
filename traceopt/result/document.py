"""The result document, schema 1: the one value that every report format is rendered from.

Times are microseconds with three decimals, shares are 0..1, and an unmeasured value is None, never 0. Every field
carries its meaning and its unit (`field_notes.py`); docs/result.schema.json is generated from them.
JSON is this document's serialization; `Result.from_json` reads it back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec
import orjson
from msgspec import Struct, field
from msgspec.structs import astuple

from traceopt.result.companions import (
    FlightRecorder,
    GpuSamplesSection,
    MemorySnapshotSection,
    StartUpSection,
    TorchCompile,
)
from traceopt.result.encoding.serialization import to_indented_json
from traceopt.result.field_notes import note
from traceopt.result.finding import Finding, Location
from traceopt.result.rows import (
    BreakdownPart,
    Collective,
    CommunicationGroup,
    Copy,
    CounterRangeRow,
    CpuOperator,
    ExpertRow,
    FlameGraph,
    Gemm,
    GroupOverlapRow,
    IdleCause,
    Kernel,
    MemoryPart,
    MemoryPoint,
    ModuleClass,
    ModuleRow,
    Op,
    PipelineRow,
    PlanRow,
    ProcessGpu,
    RankRow,
    RunRanks,
    ShapedOperator,
    SpanTable,
    StepSeries,
    Timeline,
)
from traceopt.result.trial import Machine, TriedChange
from traceopt.result.words.message import Spoken

if TYPE_CHECKING:
    from typing_extensions import Self

SCHEMA_VERSION = 1

RunPartName = Literal["steps", "evaluation", "checkpoints", "recompiling", "long_steps", "startup", "end"]
CheckStatus = Literal["found", "passed", "not_checked", "not_applicable", "error"]


class _Version(msgspec.Struct):
    """The one field that documents of all schemas share."""

    schema_version: int


class Tool(Struct, frozen=True):
    """The program that made the document."""

    name: Annotated[str, note("name of the program")]
    version: Annotated[str, note("version of the program")]


class PeakRate(Struct, frozen=True):
    """A peak rate of the device: dense, without sparsity."""

    figure: Annotated[str, note('type of the numbers, "bf16"; "memory": its bandwidth; "link": that to other GPUs')]
    rate: Annotated[float, note("the rate in `unit`")]
    unit: Annotated[Literal["TFLOP/s", "TOP/s", "GB/s"], note("unit of the rate")]
    source: Annotated[str, note('document of the vendor that states it, or "your settings"')]
    verified: Annotated[bool | None, note("whether a public text confirms it; null where it is yours")]


class Device(Struct, frozen=True):
    """What the step was measured on."""

    vendor: Annotated[str, note('"nvidia", "amd", ...; "cpu": no accelerator')]
    name: Annotated[str | None, note("name of the device")]
    count: Annotated[int, note("devices that the process sees")]
    memory_bytes: Annotated[int | None, note("memory of one device", "bytes")]
    compute_capability: Annotated[str | None, note('CUDA compute capability, "8.0"')]
    peaks: Annotated[
        list[PeakRate], note("peak rates that are known; empty for a device of which no peak is known")
    ] = field(default_factory=list)
    used: Annotated[int, note("devices that worked for the process while it was recorded")] = 1


class Recorded(Struct, frozen=True):
    """What the profiler was asked to record. It decides which checks can run."""

    gpu: Annotated[bool, note("GPU work")]
    shapes: Annotated[bool, note("shapes of operators")]
    stacks: Annotated[bool, note("Python stacks")]
    memory: Annotated[bool, note("allocations")]
    nsight: Annotated[bool, note("the trace is an export of Nsight Systems")] = False


class TraceFile(Struct, frozen=True):
    """One file that was read."""

    path: Annotated[str, note("path of the file")]
    rank: Annotated[int | None, note("rank; null where the file does not say")]
    bytes: Annotated[int, note("size, uncompressed", "bytes")]
    events: Annotated[int, note("events that were read")]
    lost_events: Annotated[int, note("damaged events that could not be recovered")]
    repaired_events: Annotated[int, note("damaged events that could be recovered")]
    sha256: Annotated[str | None, note("hash of the file on disk; null where it could not be read to its end")] = None


class Setting(Struct, frozen=True):
    """A setting of the run that decides its speed, as recorded or as the trace shows it: "TF32 for matmuls", "off"."""

    name: Annotated[str, note("the setting")]
    value: Annotated[str, note("its value")]


class Run(Struct, frozen=True):
    """What was analyzed."""

    paths: Annotated[list[str], note("paths of the traces")]
    world_size: Annotated[int | None, note("ranks of the job; null: not known")]
    ranks: Annotated[list[int], note("ranks that were read")]
    shown_rank: Annotated[int | None, note("rank whose step, breakdown and tables the document holds")]
    device: Annotated[Device | None, note("what the step was measured on")]
    torch_version: Annotated[str | None, note("version of PyTorch")]
    recorded: Annotated[Recorded, note("what the profiler was asked to record")]
    files: Annotated[list[TraceFile], note("files that were read")]
    hostnames_hidden: Annotated[bool, note("whether host names are left out of the document")] = True
    settings: Annotated[list[Setting], note("settings of the run; empty where they were not recorded")] = field(
        default_factory=list
    )
    gpu_runtime: Annotated[str | None, note('"CUDA 12.4"')] = None
    script: Annotated[
        str | None, note("file name of the script that `traceopt run` recorded; null for other traces")
    ] = None
    machine: Annotated[
        Machine | None, note("on the same one, earlier trials correct predictions; null: not recorded")
    ] = None


class RunPart(Struct, frozen=True):
    """A part of the whole run; the parts add up to it."""

    name: Annotated[
        RunPartName,
        note(
            '"startup": up to the end of the first step; "end": after the last one; "recompiling": functions that '
            'torch.compile had compiled before; "long_steps": what steps far longer than the usual one take beyond '
            "it, such as rollouts between updates"
        ),
    ]
    label: Annotated[str, note("the part in words")]
    us: Annotated[float, note("its time", "us")]
    share: Annotated[float, note("part of the run", "share")]
    locations: Annotated[list[Location], note("lines where it begins, longest time first; empty where not known")]


class StepHistory(Struct, frozen=True):
    """The steps of the whole run, as medians of stretches of equal length, without evaluations and saves."""

    first_steps: Annotated[list[int], note("first step of each stretch")]
    us: Annotated[list[float], note("median step of each stretch", "us")]
    change_step: Annotated[int | None, note("from this step on, the steps take longer or shorter; null: no change")]


class RunMemory(Struct, frozen=True):
    """Memory at the end of steps of the whole run, recorded or not, as the highest reading of each stretch of steps."""

    of: Annotated[
        Literal["device", "process"],
        note('"device": what tensors hold on the GPU; "process": resident memory without mapped files'),
    ]
    steps: Annotated[list[int], note("first step of each stretch that was read")]
    bytes: Annotated[list[int], note("highest reading of the stretch", "bytes")]


class Cost(Struct, frozen=True):
    """What the steps cost in dollars."""

    price_per_hour: Annotated[float, note("price of an hour of the whole job, as the user gave it, dollars")]
    per_step: Annotated[float, note("cost of the typical step, dollars")]
    of_run: Annotated[float | None, note("cost of the whole run, dollars; null: its length is not known")]
    saved_per_step: Annotated[float | None, note("what the plan saves of a step, dollars; null: there is no plan")]


class WholeRun(Struct, frozen=True):
    """The recorded process from its start on, recorded steps or not, without traceopt's own work."""

    us: Annotated[float, note("its time", "us")]
    steps: Annotated[int, note("steps", "steps")]
    parts: Annotated[list[RunPart], note("where the time goes, longest first")]
    core_wait_share: Annotated[
        float | None,
        note("part of the run in which the training thread was ready but no core was free; null: not known", "share"),
    ] = None
    history: Annotated[
        StepHistory | None, note("step times over the run; null: too few steps without a profiler to judge them")
    ] = None
    memory: Annotated[
        list[RunMemory], note("memory over the run, of the GPU and of the process; empty: read at too few steps")
    ] = field(default_factory=list)
    ranks: Annotated[
        RunRanks | None, note("the steps of all ranks over the run; null: one rank, or one without recorded step times")
    ] = None
    complete: Annotated[bool, note("whether the script ended by itself, so that it has no more steps than these")] = (
        False
    )


class Note(Spoken, frozen=True):
    """A trace-quality rule that fired."""

    messages: ClassVar = ("text",)

    code: Annotated[str, note("code of the rule")]
    name: Annotated[str, note("name of the rule")]
    text: Annotated[str, note("what it means for the numbers")]
    aspect: Annotated[str | None, note("which of the things that the rule looks at; null where it is one")] = None


NOT_JUDGED = "This trace cannot be judged."  # the verdict on an unusable trace, before the reason


class Quality(Spoken, frozen=True):
    """How far the trace can be trusted."""

    messages: ClassVar = ("caveat",)

    verdict: Annotated[Literal["good", "limited", "unusable"], note("how far the trace can be trusted")]
    notes: Annotated[list[Note], note("why")]
    unusable_by: Annotated[str | None, note("code of the note that says why it cannot be judged")] = None
    record_again: Annotated[bool, note("another recording comes before any fix: this one shows no steady step")] = False
    sampled_share: Annotated[
        float | None, note("events that a sampled file kept; null where no events were left out on purpose", "share")
    ] = None
    caveat: Annotated[
        str | None,
        note(
            "why the times are not those of the run, or may not be; the verdict begins with it; null: nothing says so"
        ),
    ] = None


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
    p10_us: Annotated[float | None, note("10th percentile", "us")]
    p90_us: Annotated[float | None, note("90th percentile", "us")]
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
    ] = field(default_factory=list)


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
    ] = field(default_factory=list)
    overlaps: Annotated[
        list[GroupOverlapRow],
        note("what runs while each process group communicates; at most 200 rows; empty: no groups recorded"),
    ] = field(default_factory=list)
    pipeline: Annotated[
        list[PipelineRow],
        note("stages of the pipeline of the shown rank, as far as recorded; empty: no pipeline, or schedule unknown"),
    ] = field(default_factory=list)
    experts: Annotated[
        list[ExpertRow],
        note("experts by rank; empty: the sizes of the parts of all-to-alls are not recorded"),
    ] = field(default_factory=list)


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


class BeforeAndAfter(Struct, frozen=True):
    """A step without and with the top fixes."""

    step_us: Annotated[float, note("step without the fixes", "us")]
    step_us_after: Annotated[float, note("step after the fixes", "us")]


class Combined(Struct, frozen=True):
    """The top fixes together."""

    codes: Annotated[list[str], note("one entry per finding: a code listed twice means its first two findings")]
    saving_us: Annotated[float, note("saving per step", "us")]
    share: Annotated[float, note("saving as a part of the step", "share")]
    step_us_after: Annotated[float, note("step after the fixes", "us")]
    replay_error_share: Annotated[
        float | None,
        note(
            "largest error of a replay without changes, or of the step time that it cannot explain; null: the fixes "
            "were not replayed",
            "share",
        ),
    ]
    limit_after: Annotated[str | None, note("part of the breakdown that limits the step after the fixes")] = None
    breakdown_after: Annotated[
        list[BreakdownPart],
        note(
            "parts of step_us_after; empty where the fixes were not replayed or the replay does not explain the saving"
        ),
    ] = field(default_factory=list)
    low_us: Annotated[float | None, note("saving per step if each fix saves the least that is likely", "us")] = None
    high_us: Annotated[float | None, note("saving per step if each fix saves the most that is likely", "us")] = None
    unrecorded: Annotated[
        BeforeAndAfter | None,
        note(
            "a step of the run without a profiler, and what the fixes leave of it; null if the recorded steps are less "
            "than 10% or more than 100% longer, or if that is not known"
        ),
    ] = None


class Check(Spoken, frozen=True):
    """What one rule answered."""

    messages: ClassVar = ("title", "reason")

    code: Annotated[str, note("code of the rule")]
    name: Annotated[str, note("name of the rule")]
    title: Annotated[str, note("what to change if it fires")]
    status: Annotated[CheckStatus, note("found, passed, not_checked, not_applicable or error")]
    reason: Annotated[str, note("what passed, what is missing, or what went wrong")]


class RankView(Struct, frozen=True):
    """Another rank than the shown one: its steps and spans."""

    rank: Annotated[int, note("rank")]
    late: Annotated[bool, note("whether the other ranks wait for it")]
    step: Annotated[Step, note("its steps")]
    table: Annotated[SpanTable, note("its spans, as in the timeline of the shown rank")]


class Result(Spoken, frozen=True, eq=False):
    """The document."""

    messages: ClassVar = ("verdict", "ending", "warnings")

    tool: Annotated[Tool, note("program that made the document")]
    verdict: Annotated[
        str, note("the headline: a fact and its cause, and before it what takes more of the run than the steps")
    ]
    run: Annotated[Run, note("what was analyzed")]
    quality: Annotated[Quality, note("how far the trace can be trusted")]
    step: Annotated[Step, note("the measured steps")]
    breakdown: Annotated[list[BreakdownPart], note("exclusive parts of the typical step, which add up to it")]
    gpu: Annotated[Gpu, note("the device over the measured window")]
    sync: Annotated[Sync, note("calls that block the host on the GPU")]
    dataloader: Annotated[DataLoader, note("waiting for the next batch")]
    communication: Annotated[Communication, note("all collectives")]
    copies: Annotated[list[Copy], note("copies by kind, longest first")]
    tensor_cores: Annotated[TensorCores, note("use of Tensor Cores")]
    efficiency: Annotated[Efficiency, note("arithmetic against the peak of the device")]
    memory: Annotated[Memory, note("device memory over the shown step")]
    kernels: Annotated[list[Kernel], note("GPU work by kernel name, longest first; at most 200 names")]
    ops: Annotated[list[Op], note("CPU operators by name, by the GPU time they launched; at most 200 names")]
    gemms: Annotated[list[Gemm], note("matmuls by shape, longest first; at most 200 shapes")]
    ranks: Annotated[list[RankRow], note("a row for each file that was read")]
    timeline: Annotated[Timeline | None, note("one typical step as lanes of bars")]
    findings: Annotated[list[Finding], note("what the rules found, most valuable first")]
    combined: Annotated[Combined | None, note("the top fixes together")]
    checks: Annotated[list[Check], note("what each rule answered")]
    ending: Annotated[str | None, note("how the script or the job ended, if not well; the verdict begins with it")] = (
        None
    )
    warnings: Annotated[list[str], note("what the reader should know: files and rules left out")] = field(
        default_factory=list
    )
    plan: Annotated[list[PlanRow], note("the fixes worth making, in order; their savings add up to `combined`")] = (
        field(default_factory=list)
    )
    throughput: Annotated[
        Throughput | None, note("throughput of one GPU; null: the user did not say what a step holds")
    ] = None
    serving: Annotated[Serving | None, note("steps of a serving engine; null: no serving engine ran the steps")] = None
    rl_phases: Annotated[
        list[RlPhaseRow], note("phases of a reinforcement-learning step, in their order; empty: the steps have none")
    ] = field(default_factory=list)
    cpu: Annotated[Cpu | None, note("operators of a CPU-only run; null: it used a GPU, or no shapes were recorded")] = (
        None
    )
    whole_run: Annotated[
        WholeRun | None,
        note("the whole run, of which the trace holds a few steps; null: traceopt run did not record it"),
    ] = None
    tried: Annotated[
        list[TriedChange], note("changes that `traceopt try` made, ran and measured, in the order in which it did")
    ] = field(default_factory=list)
    memory_snapshot: Annotated[
        MemorySnapshotSection | None, note("a memory snapshot recorded beside the trace; null: there is none")
    ] = None
    shaped_ops: Annotated[
        list[ShapedOperator], note("convolutions and attention by shape, longest first; at most 200 shapes")
    ] = field(default_factory=list)
    modules: Annotated[
        list[ModuleRow], note("the model as a tree of nn.Modules, callers first; empty if the trace does not name them")
    ] = field(default_factory=list)
    module_classes: Annotated[
        list[ModuleClass], note("the same modules by class, longest first; empty if the trace does not name them")
    ] = field(default_factory=list)
    flame: Annotated[FlameGraph | None, note("call tree of one step; null: no Python frames with times")] = None
    torch_compile: Annotated[
        TorchCompile | None, note("what torch.compile did; null: it was not used, or nothing recorded it")
    ] = None
    flight_recorder: Annotated[
        FlightRecorder | None, note("collectives of all ranks, by dumps of the flight recorder; null: no dumps")
    ] = None
    gpu_samples: Annotated[
        GpuSamplesSection | None, note("samples of the GPUs while the command ran; null: none were taken")
    ] = None
    start_up: Annotated[
        StartUpSection | None, note("the run before its first step had ended; null: traceopt run did not record it")
    ] = None
    gemm_known_share: Annotated[
        float | None,
        note(
            "part of the time of matmul kernels that `gemms` holds, convolutions aside; null: no such kernels", "share"
        ),
    ] = None
    counter_ranges: Annotated[
        list[CounterRangeRow],
        note("hardware counters by kernel and metric, of CUPTI's range profiler; at most 200 rows; empty: not used"),
    ] = field(default_factory=list)
    cost: Annotated[Cost | None, note("what the steps cost; null: the user gave no price")] = None
    rank_views: Annotated[
        list[RankView],
        note(
            "other ranks with their steps and spans: first those that findings name, as many as a report has room for"
        ),
    ] = field(default_factory=list)
    created: Annotated[str | None, note("when the document was made; null by default, so that documents compare")] = (
        None
    )
    schema_version: Annotated[int, note("version of this schema")] = SCHEMA_VERSION

    @property
    def planned(self) -> list[tuple[PlanRow, Finding]]:
        """The rows of the plan, each with its finding."""
        of_id = {finding.id: finding for finding in self.findings}
        return [(row, of_id[row.finding]) for row in self.plan if row.finding in of_id]

    def __eq__(self, other: object) -> bool:
        """Whether the documents are the same, whichever subclass holds them."""
        return isinstance(other, Result) and astuple(self) == astuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Short: a notebook keeps it beside each summary."""
        return f"<Result {self.verdict!r}>"

    def to_json(self) -> bytes:
        """Indented JSON, byte for byte the same for the same input and version."""
        return to_indented_json(self)

    @staticmethod
    def json_schema() -> bytes:
        """JSON Schema 2020-12, indented. `unit` says what a number counts; a share is 0..1."""
        import inspect

        schema: dict[str, Any] = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": f"traceopt result document, schema {SCHEMA_VERSION}",
        } | msgspec.json.schema(Result)
        for definition in schema["$defs"].values():  # descriptions are docstrings, which Python 3.13 no longer indents
            definition["description"] = inspect.cleandoc(definition["description"])
        return to_indented_json(schema)

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Raises msgspec.DecodeError, a ValueError, when `data` is not a result document of this schema."""
        try:
            version = msgspec.json.decode(data, type=_Version).schema_version
            if version == SCHEMA_VERSION:
                return msgspec.convert(orjson.loads(data), cls)  # orjson refuses what it could not write again
        except (ValueError, RecursionError) as error:
            raise msgspec.DecodeError(f"not a result document: {error}") from error
        raise msgspec.DecodeError(f"a result document of schema {version}; this traceopt reads schema {SCHEMA_VERSION}")
