"""The parts of the result document that come from files beside the trace, or that `traceopt run` records in it."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Struct

from traceopt.result.field_notes import note
from traceopt.result.finding import Location

CompilePhaseName = Literal[  # in the order in which they run
    "dynamo",
    "aot_autograd",
    "inductor",
    "code_generation",
    "kernel_compilation",
    "autotuning",
    "cuda_graph_recording",
]
CompileSource = Literal["log", "run"]
StartUpPartName = Literal[
    "imports",
    "downloads",
    "data",
    "model",
    "checkpoint",
    "device",
    "process_group",
    "compilation",
    "first_batch",
    "first_step",
    "other",
    "python",
    "unsampled",
]


class MemoryHolder(Struct, frozen=True):
    """The memory that one line of code holds at the peak."""

    name: Annotated[str, note("file, line and function, or why there is no line")]
    bytes: Annotated[int, note("memory held at the peak", "bytes")]
    blocks: Annotated[int, note("allocations held at the peak", "count")]
    location: Annotated[Location | None, note("the user's or a model's line; null: none is in the stack")]
    layer: Annotated[str | None, note("module of torch.nn that allocates; null: none is in the stack")]
    stack: Annotated[list[str], note("the stack with most bytes, innermost frame first; at most 30 frames")]


class SnapshotCurve(Struct, frozen=True):
    """Memory over the recorded history. All lists have one value for each time."""

    us: Annotated[list[float], note("time since the history began", "us")]
    allocated_bytes: Annotated[list[int], note("memory in tensors", "bytes")]
    reserved_bytes: Annotated[list[int], note("memory held by the caching allocator", "bytes")]
    by_holder: Annotated[
        list[list[int]], note("memory of each of the first holders; what is missing is all others'", "bytes")
    ]


class SnapshotGrowth(Struct, frozen=True):
    """Memory at the end of each step after the first."""

    steps: Annotated[int, note("steps that were compared with the one before", "count")]
    bytes_per_step: Annotated[float, note("median change from step to step", "bytes")]
    grows: Annotated[bool, note("whether most steps left more memory than the one before")]
    kept: Annotated[list[MemoryHolder], note("lines that keep memory in most steps; bytes are per step")]


class SnapshotFragmentation(Struct, frozen=True):
    """The allocator's memory when the snapshot was taken."""

    reserved_bytes: Annotated[int, note("memory held by the caching allocator", "bytes")]
    active_bytes: Annotated[int, note("blocks in use", "bytes")]
    cached_bytes: Annotated[int, note("segments without a block in use, which can be given back", "bytes")]
    unusable_bytes: Annotated[int, note("free memory between blocks in use", "bytes")]
    largest_free_bytes: Annotated[int, note("largest piece of it", "bytes")]


class FailedAllocation(Struct, frozen=True):
    """The last allocation that failed."""

    requested_bytes: Annotated[int, note("size of the request", "bytes")]
    device_free_bytes: Annotated[int, note("free memory of the device then", "bytes")]
    allocated_bytes: Annotated[int, note("memory in tensors then", "bytes")]
    reserved_bytes: Annotated[int, note("memory held by the caching allocator then", "bytes")]
    largest_fit_bytes: Annotated[int | None, note("largest request that would have fitted; null: not known", "bytes")]
    fragmented: Annotated[bool, note("whether it would have fitted, had the free memory been in one piece")]
    caught: Annotated[bool, note("whether the program went on")]
    count: Annotated[int, note("failed allocations in the history", "count")]
    location: Annotated[Location | None, note("the line that asked for it; null: none is in the stack")]
    stack: Annotated[list[str], note("its stack, innermost frame first; at most 30 frames")]


class MemorySnapshotSection(Struct, frozen=True):
    """A memory snapshot of PyTorch's CUDA allocator."""

    file: Annotated[str, note("label of the file")]
    device: Annotated[int, note("index of the device")]
    events: Annotated[int, note("entries of the history; 0: it was not recorded", "count")]
    peak_allocated_bytes: Annotated[int, note("peak of the memory in tensors", "bytes")]
    peak_reserved_bytes: Annotated[int, note("peak of the memory held by the caching allocator", "bytes")]
    peak_us: Annotated[float | None, note("time of the peak since the history began; null: not recorded", "us")]
    holders: Annotated[list[MemoryHolder], note("who holds the peak, most memory first; at most 50 lines")]
    curve: Annotated[SnapshotCurve | None, note("memory over the history; null: no history with times")]
    growth: Annotated[SnapshotGrowth | None, note("growth from step to step; null: too few steps were recorded")]
    fragmentation: Annotated[SnapshotFragmentation, note("the allocator's memory when the snapshot was taken")]
    retries: Annotated[int, note("allocations that first had to give the cache back to the driver", "count")]
    failure: Annotated[FailedAllocation | None, note("the last allocation that failed; null: none did")]


class CompilePhase(Struct, frozen=True):
    """A part of the compiler, without the parts that it calls."""

    name: Annotated[CompilePhaseName, note("key of the phase")]
    us: Annotated[float, note("time over the whole run", "us")]


class CompileBreak(Struct, frozen=True):
    """A place where torch.compile split the graph."""

    reason: Annotated[str, note("why Dynamo cannot trace the line")]
    explanation: Annotated[str | None, note("PyTorch's explanation of the reason")]
    hint: Annotated[str | None, note("PyTorch's first hint on how to avoid it")]
    page: Annotated[str | None, note("PyTorch's page about the reason")]
    location: Annotated[Location | None, note("line that breaks the graph")]
    count: Annotated[int, note("graph breaks at this line in the whole run")]
    in_steps: Annotated[bool | None, note("whether the recorded steps run this code; null if no trace says")]


class CompileAgain(Struct, frozen=True):
    """Recompilations of a function because of one guard."""

    function: Annotated[str | None, note("compiled function")]
    guard: Annotated[str, note("guard that failed the first time")]
    other_values: Annotated[list[str], note("the same guard with other values that failed later; at most 5")]
    kind: Annotated[str | None, note("what the guard checks: shape, stride, dtype, number, object, ...")]
    location: Annotated[Location | None, note("line of the guard, else of the function")]
    count: Annotated[int, note("recompilations in the whole run")]
    us: Annotated[float | None, note("time that they took; null if it was not recorded", "us")]


class CompileFallback(Struct, frozen=True):
    """A function that torch.compile gave up on: it runs in eager mode."""

    function: Annotated[str | None, note("function")]
    reason: Annotated[str, note("why it is not compiled")]
    location: Annotated[Location | None, note("line of the guard that failed last, else of the function")]


class CompileGraphSkip(Struct, frozen=True):
    """Compiled code that is not replayed as a CUDA graph."""

    reason: Annotated[str, note("Inductor's reason")]
    location: Annotated[Location | None, note("line of the cause, else of the function")]
    count: Annotated[int, note("compilations that it concerns")]


class TorchCompile(Struct, frozen=True):
    """What torch.compile did in the whole run."""

    source: Annotated[CompileSource, note("log: a TORCH_TRACE folder; run: traceopt run asked Dynamo")]
    processes: Annotated[int, note("processes whose logs were read")]
    compilations: Annotated[int, note("compiled frames: functions, and the rest of them after graph breaks")]
    unknown: Annotated[int, note("compilations of which only the number is known")]
    us: Annotated[float | None, note("time in the compiler; null if it was not recorded", "us")]
    phases: Annotated[list[CompilePhase], note("that time by part of the compiler, in the order in which they run")]
    breaks: Annotated[list[CompileBreak], note("graph breaks by line, most frequent first; at most 50")]
    recompilations: Annotated[list[CompileAgain], note("by function and guard, longest first; at most 50")]
    fallbacks: Annotated[list[CompileFallback], note("functions that run in eager mode; at most 50")]
    graph_skips: Annotated[list[CompileGraphSkip], note("CUDA graphs that were skipped; at most 50")]
    graph_recordings: Annotated[int | None, note("CUDA graphs that Inductor recorded; null if unknown")]
    graph_rerecordings: Annotated[int | None, note("of these, for code that had a graph; null if unknown")]
    pieces_per_step: Annotated[
        float | None, note("calls of compiled code in a step; null without a trace that names them", "per step")
    ]


class StuckCallRow(Struct, frozen=True):
    """A call that ranks wait in: the first of its process group that has not ended."""

    group: Annotated[str, note("process group")]
    operation: Annotated[str, note("collective operation, send or recv")]
    sequence: Annotated[int, note("number of the call in its group")]
    waiting: Annotated[list[int], note("ranks that have called it and wait")]
    missing: Annotated[list[int], note("ranks of the group that have not called it")]
    without_dump: Annotated[list[int], note("ranks of the group that wrote no dump, so that nothing is known of them")]
    timed_out: Annotated[bool, note("a rank has given up waiting")]
    location: Annotated[Location | None, note("where the waiting ranks call it; null: no stacks were recorded")]


class GroupRow(Struct, frozen=True):
    """A process group."""

    name: Annotated[str, note("process group")]
    ranks: Annotated[int, note("members")]
    members_known: Annotated[bool, note("false: the members are those that made calls, others may be missing")]
    first_sequence: Annotated[int | None, note("number of the oldest recorded collective; null: only sends, recvs")]
    last_sequence: Annotated[int | None, note("number of the newest recorded collective; null: only sends, recvs")]


class LateRankRow(Struct, frozen=True):
    """A rank that joined collectives last."""

    rank: Annotated[int, note("rank")]
    measured: Annotated[bool, note("true: by durations on the GPU; false: by the clocks of the hosts")]
    collectives: Annotated[int, note("collectives that the rank joined last")]
    compared: Annotated[int, note("collectives that were compared")]
    waited_us: Annotated[float, note("time that a typical other rank waited for it in all of them", "us")]
    longest_us: Annotated[float, note("longest single wait", "us")]


class FlightRecorder(Struct, frozen=True):
    """Dumps of the flight recorder."""

    dumps: Annotated[int, note("ranks with a dump")]
    calls: Annotated[int, note("recorded calls of all ranks")]
    version: Annotated[str, note("version of the format, of the lowest rank")]
    library: Annotated[str | None, note("version of the communication library; null if it is not recorded")]
    stacks: Annotated[bool, note("whether the dumps have lines of code")]
    without_dump: Annotated[list[int], note("members of process groups that wrote no dump")]
    groups: Annotated[list[GroupRow], note("process groups, largest first; at most 100")]
    stuck: Annotated[list[StuckCallRow], note("calls that ranks wait in, most waiting ranks first; at most 100")]
    late: Annotated[list[LateRankRow], note("ranks that the others waited for, longest wait first; at most 20")]


class SampledGpu(Struct, frozen=True):
    """A GPU of the run."""

    node: Annotated[int | None, note("number of its host in this run, from 1; null: there is one host")]
    index: Annotated[int, note("number of the GPU on its host, as in nvidia-smi")]
    name: Annotated[str, note("model of the GPU")]
    samples: Annotated[int, note("samples")]
    busy_samples: Annotated[int, note("samples in which the GPU was busy")]
    sm_mhz: Annotated[float | None, note("median clock while busy, MHz; null: not known")]
    max_sm_mhz: Annotated[int | None, note("highest clock, MHz; null: not known")]
    power_w: Annotated[float | None, note("median power while busy, W; null: not known")]
    power_limit_w: Annotated[float | None, note("power limit, W; null: not known")]
    celsius: Annotated[int | None, note("highest temperature, degrees Celsius; null: not known")]
    shared_samples: Annotated[int | None, note("samples with another process; null: own processes are not known")]


class GpuSamplesSection(Struct, frozen=True):
    """Samples of the GPUs that `traceopt run` took."""

    gpus: Annotated[list[SampledGpu], note("GPUs of the run; at most 64")]
    joules_per_step: Annotated[
        float | None, note("energy of a typical step on all GPUs at their mean power, J; null: power is not known")
    ] = None


class StartUpLineRow(Struct, frozen=True):
    """A line of the user's code in a part of the start-up."""

    location: Annotated[Location, note("line of the user's code")]
    us: Annotated[float, note("time of the part on this line", "us")]
    package: Annotated[str | None, note("package that the line imports; null: it imports none, or it is not known")]


class StartUpPartRow(Struct, frozen=True):
    """A part of the start-up; the parts add up to it."""

    name: Annotated[
        StartUpPartName,
        note(
            '"first_step": forward, backward and optimizer up to the end of step 0; "other": code of the user that '
            'does none of these; "python": before the script; "unsampled": not seen by the sampler'
        ),
    ]
    label: Annotated[str, note("the part in words")]
    us: Annotated[float, note("its time", "us")]
    share: Annotated[float, note("part of the start-up", "share")]
    lines: Annotated[
        list[StartUpLineRow],
        note("lines of the user's code, longest first; at most 5; below 1% of the start-up only the first"),
    ]


class StartUpSection(Struct, frozen=True):
    """From the creation of the process to the end of its first step."""

    us: Annotated[float, note("its time", "us")]
    run_share: Annotated[float | None, note("part of the run; null: the run was stopped early", "share")]
    notable: Annotated[bool, note("whether it takes more than a tenth of the recorded run")]
    rank: Annotated[
        int | None,
        note("rank that takes longest, not counting the process group, where ranks wait for each other; null: no rank"),
    ]
    interval_us: Annotated[float, note("time between two samples; parts are not more exact than this", "us")]
    parts: Annotated[list[StartUpPartRow], note("where the time goes, longest first")]
