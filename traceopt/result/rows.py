"""Rows of the tables in the result document: parts of the step, kernels, matmuls, collectives, ranks, timeline."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Struct, field

from traceopt.result.field_notes import note
from traceopt.result.finding import Location

COLUMNS = (
    "start",  # ticks since the span before on the same lane started; of the first, since the table's zero
    "duration",  # ticks
    "name",  # code
    "category",  # code
    "place",  # code + 1; 0: not known
    "detail",  # code + 1; 0: none
)
STREAM_COLUMNS = (
    "operator",  # code of its name + 1; 0: not known
    "operator_detail",  # code + 1; 0: none
    "launch_thread",  # index of the lane + 1; 0: not known, or not shown
    "launch_delay",  # ticks from the start of the launch call to the start of the work, + 1; 0: not known
)


ViaGraph = Literal["capture", "annotation", "compile_log", "launch_stack", "replay"]
LaneKind = Literal["activity", "thread", "idle", "stream"]


class BreakdownPart(Struct, frozen=True):
    """An exclusive part of the typical step; the parts add up to it."""

    name: Annotated[str, note("key of the part")]
    label: Annotated[str, note("the part in words")]
    busy: Annotated[bool, note("whether the GPU works; in a CPU-only run, whether the model does")]
    us_per_step: Annotated[float, note("time per step", "us")]
    share: Annotated[float, note("part of the step", "share")]
    raw_us_per_step: Annotated[
        float | None,
        note("time per step with overlapped time; of idle parts, what the host did between the step's marks", "us"),
    ]


class StepPart(Struct, frozen=True):
    """A part of the breakdown, in each of several steps."""

    name: Annotated[str, note("key of the part")]
    label: Annotated[str, note("the part in words")]
    busy: Annotated[bool, note("whether the GPU works; in a CPU-only run, whether the model does")]
    us: Annotated[list[float], note("time in each step, with five digits", "us")]


class RankSteps(Struct, frozen=True):
    """The steps of one rank."""

    rank: Annotated[int | None, note("rank; null where the file does not say")]
    us: Annotated[list[float], note("duration of each step", "us")]


class StepSeries(Struct, frozen=True):
    """Consecutive recorded steps, each divided into the parts of the breakdown."""

    first: Annotated[int, note("index into per_step_us of the first of these steps")]
    shown: Annotated[int, note("index into per_step_us of the step that timeline and memory show")]
    names: Annotated[list[str], note("names of the steps")]
    parts: Annotated[list[StepPart], note("exclusive parts, which add up to each step; busy parts first")]
    ranks: Annotated[
        list[RankSteps], note("the same steps on the first ranks that recorded them; empty for a single rank")
    ] = field(default_factory=list)
    peak_memory_bytes: Annotated[
        list[int | None],
        note("peak of the device memory in tensors; null: none in this step; empty: memory was not recorded", "bytes"),
    ] = field(default_factory=list)
    evaluated: Annotated[
        list[int], note("indices into names of the steps with an evaluation, as traceopt run recorded them")
    ] = field(default_factory=list)
    saved: Annotated[list[int], note("the same of the steps that save a checkpoint (torch.save)")] = field(
        default_factory=list
    )


class IdleCause(Struct, frozen=True):
    """Idle time of the GPU with one cause."""

    cause: Annotated[str, note("key of the cause")]
    label: Annotated[str, note("the cause in words")]
    us_per_step: Annotated[float, note("idle time per step", "us")]
    share: Annotated[float, note("part of the step window", "share")]


class ProcessGpu(Struct, frozen=True):
    """One of several GPUs of a process. Its times are exclusive and add up to the step."""

    gpu: Annotated[int, note("number of the GPU")]
    name: Annotated[str | None, note("its model; null: not recorded")]
    busy_share: Annotated[float, note("part of the step in which it works", "share")]
    compute_us_per_step: Annotated[float, note("compute per step", "us")]
    communication_us_per_step: Annotated[float, note("collectives per step that its compute does not overlap", "us")]
    copies_us_per_step: Annotated[float, note("copies and fills per step that nothing of it overlaps", "us")]
    waits_us_per_step: Annotated[
        float, note("idle per step while others work, with its next work launched or the host waiting as well", "us")
    ]
    waits_for: Annotated[list[int], note("GPUs whose work comes before its next work, longest wait first")]
    idle_us_per_step: Annotated[float, note("other idle time per step", "us")]
    peak_memory_bytes: Annotated[int | None, note("peak of the memory in tensors; null: not recorded", "bytes")]


class Collective(Struct, frozen=True):
    """Collectives of one name."""

    name: Annotated[str, note("name of the collective")]
    calls_per_step: Annotated[float, note("calls", "per step")]
    us_per_step: Annotated[float, note("time per step", "us")]
    exposed_us_per_step: Annotated[float, note("time per step that no compute overlaps", "us")]
    bytes_per_step: Annotated[float | None, note("data moved per step", "bytes")]
    gb_per_s: Annotated[float | None, note("rate while it runs", "GB/s")]
    location: Annotated[Location | None, note("line of the user's code that calls it")]


class CommunicationGroup(Struct, frozen=True):
    """Collectives of one process group."""

    name: Annotated[str, note("name of the process group")]
    description: Annotated[str, note('what the framework calls it: "mesh_tp"; empty: nothing')]
    parallelism: Annotated[
        str | None,
        note("what it is for: data, tensor, pipeline, context, expert, or several of these; null: not known"),
    ]
    size: Annotated[int | None, note("its number of ranks; null: not recorded")]
    ranks: Annotated[list[int], note("its ranks; empty: not recorded")]
    collectives: Annotated[list[str], note("kinds of its collectives, longest first")]
    calls_per_step: Annotated[float, note("calls", "per step")]
    us_per_step: Annotated[float, note("time per step", "us")]
    exposed_us_per_step: Annotated[float, note("time per step that no compute overlaps", "us")]
    beside_us_per_step: Annotated[float, note("time per step while a collective of another group runs", "us")]
    bytes_per_step: Annotated[float | None, note("data that a rank puts in per step", "bytes")]
    algorithm_gb_per_s: Annotated[float | None, note("that data by the time", "GB/s")]
    gb_per_s: Annotated[float | None, note("bytes over the link by the time: the bus bandwidth", "GB/s")]
    link_share: Annotated[
        float | None, note("bus bandwidth as a part of the rate of a GPU's link; null: not known", "share")
    ]
    late_us_per_step: Annotated[
        float | None, note("exposed time per step until the last rank enters; null: other ranks not known", "us")
    ] = None
    latest_rank: Annotated[int | None, note("rank for which this one waits longest in the group")] = None


class GroupOverlapRow(Struct, frozen=True):
    """Something that runs while a process group communicates."""

    group: Annotated[str, note("name of the process group, or what the framework calls it")]
    beside: Annotated[str, note("kind of kernel, copy, or another process group")]
    is_group: Annotated[bool, note("whether that is another process group")]
    us_per_step: Annotated[float, note("time per step of both", "us")]
    share: Annotated[float, note("the same as a part of the group's time", "share")]


class PipelineRow(Struct, frozen=True):
    """A rank as a stage of a pipeline."""

    rank: Annotated[int | None, note("number of the rank; null: not recorded")]
    schedule: Annotated[
        str, note('"GPipe", "1F1B", "GPipe or 1F1B" (alike with so few micro-batches), "interleaved" or "zero bubble"')
    ]
    stages: Annotated[int, note("ranks of the pipeline")]
    micro_batches: Annotated[int, note("micro-batches of a step")]
    chunks: Annotated[int, note("parts of the model that the rank holds")]
    compute_us_per_step: Annotated[float, note("compute time per step, without the optimizer's", "us")]
    bubble_us_per_step: Annotated[float, note("time per step in which the GPU waits for other stages", "us")]
    bubble_share: Annotated[float, note("bubble as a part of bubble and compute", "share")]
    least_share: Annotated[float, note("the same of the schedule if all stages compute equally long", "share")]
    doubling_saves_us: Annotated[
        float, note("saved per step by twice as many micro-batches of half the size; 0 if the bubble is smaller", "us")
    ]
    interleaving_saves_us: Annotated[
        float, note("saved per step by twice as many chunks of half the layers; 0 if the bubble is smaller", "us")
    ]


class ExpertRow(Struct, frozen=True):
    """The experts of a rank. A pass is a layer's forward or backward."""

    rank: Annotated[int | None, note("number of the rank; null: not recorded")]
    passes: Annotated[int, note("passes of layers with experts per step")]
    tokens_per_step: Annotated[float, note("tokens that its experts get", "per step")]
    of_mean: Annotated[float, note("the same, by the mean of the recorded ranks")]
    hottest_pass: Annotated[int, note("the pass in which they get most tokens, counted from 0 in each step")]
    compute_us_per_step: Annotated[float, note("compute time per step between dispatch and combine", "us")]
    exchange_us_per_step: Annotated[float, note("exposed time per step of the all-to-alls", "us")]


class Copy(Struct, frozen=True):
    """Copies of one kind."""

    kind: Annotated[str, note('as the profiler names it: "HtoD pageable", "DtoH pinned", "DtoD", ...')]
    calls_per_step: Annotated[float, note("calls", "per step")]
    us_per_step: Annotated[float, note("time per step", "us")]
    exposed_us_per_step: Annotated[float, note("time per step that no compute overlaps", "us")]
    bytes_per_step: Annotated[float | None, note("data copied per step", "bytes")]
    gb_per_s: Annotated[float | None, note("rate while it runs", "GB/s")]


class MemoryPoint(Struct, frozen=True):
    """Device memory at one time."""

    us: Annotated[float, note("time since the shown step began on the host", "us")]
    allocated_bytes: Annotated[int, note("memory in tensors", "bytes")]
    reserved_bytes: Annotated[int | None, note("memory held by the caching allocator", "bytes")]


class MemoryPart(Struct, frozen=True):
    """A part of the memory at its peak."""

    name: Annotated[str, note("name of the part")]
    bytes: Annotated[int, note("size", "bytes")]


KernelBound = Literal["memory", "compute", "neither"]
Roof = Literal["compute", "memory"]


class Kernel(Struct, frozen=True):
    """GPU work of one kernel name."""

    name: Annotated[str, note("as the profiler recorded it")]
    kind: Annotated[str, note("gemm, attention, elementwise, memcpy, ... (analyzer/vocabulary/kernels)")]
    calls_per_step: Annotated[float, note("calls", "per step")]
    us_per_step: Annotated[float, note("time per step", "us")]
    mean_us: Annotated[float, note("mean time of a call", "us")]
    share: Annotated[float, note("part of the GPU's busy time", "share")]
    tensor_core: Annotated[bool | None, note("runs on Tensor Cores; null: unknown, or no work for them")]
    op: Annotated[str | None, note("operator that launched the longest call")]
    location: Annotated[Location | None, note("line of the user's code that launched the longest call")]
    via_graph: Annotated[
        ViaGraph | None,
        note(
            "how `op` and the line are known if a CUDA graph launched the longest call. capture: they captured it; "
            "annotation: PyTorch's annotation; compile_log: torch.compile's log; launch_stack: only the line is, "
            "by PyTorch's launch stacks; replay: those of the replay. null: no graph"
        ),
    ] = None
    tflops: Annotated[
        float | None,
        note("achieved rate, from the shapes of its operator; null: not known, or no arithmetic", "TFLOP/s"),
    ] = None
    gb_per_s: Annotated[
        float | None, note("achieved rate if each tensor is read or written once; null: not known", "GB/s")
    ] = None
    peak_share: Annotated[
        float | None,
        note(
            "rate as a part of the peak of `limit`, above 1 if the data came from the cache; null: not known", "share"
        ),
    ] = None
    label: Annotated[str, note("short form of the name, as in the evidence of findings")] = ""
    limit: Annotated[
        str | None,
        note(
            'the peak that it is nearer to: "compute", the rate of its type; "memory", the bandwidth; null: not known'
        ),
    ] = None
    bound: Annotated[
        KernelBound | None,
        note(
            "the peak that holds it up, because it reaches most of it; neither: it is well below both; null: not known"
        ),
    ] = None
    dram_share: Annotated[
        float | None,
        note("part of the memory's bandwidth, measured by hardware counters; null: not sampled often enough", "share"),
    ] = None
    tensor_share: Annotated[
        float | None,
        note("part of the time with Tensor Cores active, measured by hardware counters; null: as above", "share"),
    ] = None
    median_us_per_step: Annotated[
        float | None, note("time per step, as the median over the steps; null: fewer than three steps", "us")
    ] = None
    blocks_per_call: Annotated[
        float | None, note("mean thread blocks (workgroups) of a call; null: not recorded, or no kernel")
    ] = None
    threads_per_block: Annotated[int | None, note("threads of a block in the longest call; null: not recorded")] = None
    registers_per_thread: Annotated[int | None, note("registers in the longest call; null: not recorded")] = None
    shared_bytes_per_block: Annotated[
        int | None, note("shared memory of a block in the longest call; null: not recorded", "bytes")
    ] = None
    occupancy: Annotated[
        float | None,
        note("warps that run at a time, as the profiler estimates it from the launch; null: not recorded", "share"),
    ] = None
    streams: Annotated[str, note('streams on which it ran, "7, 20"; "" if not recorded')] = ""
    queued_us: Annotated[
        float | None, note("median time from the start of the launching call to its start; null: not known", "us")
    ] = None
    shortest_us: Annotated[float | None, note("shortest call", "us")] = None
    median_us: Annotated[float | None, note("median call", "us")] = None
    longest_us: Annotated[float | None, note("longest call", "us")] = None
    least_us_per_step: Annotated[
        float | None, note("time per step, in the step with least of it; null: fewer than three steps", "us")
    ] = None
    most_us_per_step: Annotated[
        float | None, note("time per step, in the step with most of it; null: as above", "us")
    ] = None


class Op(Struct, frozen=True):
    """CPU operators of one name."""

    name: Annotated[str, note("name of the operator")]
    calls_per_step: Annotated[float, note("calls", "per step")]
    gpu_us_per_step: Annotated[float | None, note("time per step of the GPU work that it launched", "us")]
    cpu_self_us_per_step: Annotated[float, note("time per step on the CPU, callees excluded", "us")]
    share: Annotated[float, note("part of the GPU's busy time; without a GPU, part of the step", "share")]
    location: Annotated[Location | None, note("line of the user's code that calls it")]
    launches_per_step: Annotated[
        float | None, note("GPU work that it launched, per step; null: no GPU, or an older version")
    ] = None


class CpuOperator(Struct, frozen=True):
    """Operators of one name and dtype in a CPU-only run."""

    name: Annotated[str, note("name of the operator")]
    dtype: Annotated[str | None, note("type of its tensors; null where it is not known")]
    calls_per_step: Annotated[float, note("calls", "per step")]
    us_per_step: Annotated[float, note("time per step, with the operators that it calls", "us")]
    share: Annotated[float, note("part of the step", "share")]
    gflops_per_s: Annotated[float | None, note("achieved rate, from the shapes", "GFLOP/s")]
    peak_share: Annotated[
        float | None, note("part of the rate that `traceopt run` measured on this CPU; null: not measured", "share")
    ]
    location: Annotated[Location | None, note("line of the user's code that calls it")]


class Gemm(Struct, frozen=True):
    """Matmuls of one shape: D[M,N] = A[M,K] B[K,N], `batch` times; 2*M*N*K*batch FLOP a call."""

    op: Annotated[str, note("operator")]
    m: Annotated[int, note("rows of the result")]
    n: Annotated[int, note("columns of the result")]
    k: Annotated[int, note("summed dimension")]
    batch: Annotated[int, note("matmuls in a call")]
    dtype: Annotated[str, note("type of the operands")]
    calls: Annotated[float, note("calls", "per step")]
    us_per_step: Annotated[float, note("time per step", "us")]
    tflops: Annotated[float | None, note("achieved rate", "TFLOP/s")]
    peak_share: Annotated[float | None, note("part of the hardware's peak for the type", "share")]
    aligned: Annotated[bool | None, note("whether N and K are the multiples that Tensor Cores need")]
    tensor_core: Annotated[bool | None, note("whether it runs on Tensor Cores; null: unknown")]
    location: Annotated[Location | None, note("line of the user's code that calls it")]
    gb_per_s: Annotated[
        float | None, note("achieved rate if each tensor is read or written once; null: not known", "GB/s")
    ] = None
    intensity: Annotated[float | None, note("arithmetic intensity with these bytes; null: not known", "FLOP/B")] = None
    roof: Annotated[
        Roof | None,
        note('the peak that is lower at this intensity: "compute" or "memory", the bandwidth; null: peaks not known'),
    ] = None
    roof_share: Annotated[
        float | None, note("achieved rate as a part of the roofline at this intensity; null: as above", "share")
    ] = None


class ShapedOperator(Struct, frozen=True):
    """Convolutions or attention of one shape, by operator."""

    name: Annotated[str, note("name of the operator")]
    sizes: Annotated[str, note('sizes of the tensors, "32x64x56x56, weight 128x64x3x3, stride 2"; "" if not known')]
    dtype: Annotated[str | None, note("type in which it computes; null where it is not known")]
    calls_per_step: Annotated[float, note("calls", "per step")]
    us_per_step: Annotated[float, note("GPU time per step of the kernels that it launched", "us")]
    tflops: Annotated[float | None, note("achieved rate", "TFLOP/s")]
    peak_share: Annotated[float | None, note("part of the hardware's peak for the type; null: peak not known", "share")]
    tensor_core: Annotated[bool | None, note("whether it runs on Tensor Cores; null: unknown")]
    location: Annotated[Location | None, note("line of the user's code that calls it")]
    gb_per_s: Annotated[
        float | None, note("achieved rate if each tensor is read or written once; null: not known", "GB/s")
    ] = None
    intensity: Annotated[float | None, note("arithmetic intensity with these bytes; null: not known", "FLOP/B")] = None
    roof: Annotated[
        Roof | None,
        note('the peak that is lower at this intensity: "compute" or "memory", the bandwidth; null: peaks not known'),
    ] = None
    roof_share: Annotated[
        float | None, note("achieved rate as a part of the roofline at this intensity; null: as above", "share")
    ] = None


class ModuleRow(Struct, frozen=True):
    """Calls of one nn.Module by its place in the model."""

    name: Annotated[str, note('class and number of the module, "Linear_3"')]
    parent: Annotated[int, note("row of the module that calls it; -1: none")]
    calls_per_step: Annotated[float, note("calls", "per step")]
    forward_us_per_step: Annotated[
        float | None, note("GPU time per step of its forward; on a CPU, time of its operators; null: not known", "us")
    ]
    backward_us_per_step: Annotated[float | None, note("the same per step of its backward", "us")]
    own_us_per_step: Annotated[
        float | None, note("the same per step of forward and backward, without the modules that it calls", "us")
    ]
    host_us_per_step: Annotated[
        float | None, note("host time per step of its forward; null: not recorded with the times", "us")
    ]


class ModuleClass(Struct, frozen=True):
    """All nn.Modules of one class. Times are those of the device, or on a CPU of operators, without the modules that
    they call, so they add up.
    """

    name: Annotated[str, note('class, "Linear"')]
    modules: Annotated[int, note("modules of this class")]
    calls_per_step: Annotated[float, note("calls", "per step")]
    forward_us_per_step: Annotated[float, note("time per step of their forward", "us")]
    backward_us_per_step: Annotated[float, note("the same per step of their backward", "us")]
    share: Annotated[float, note("part of the time of all modules", "share")]


class CounterRangeRow(Struct, frozen=True):
    """A hardware counter of all runs of a kernel, as CUPTI's range profiler counted it."""

    kernel: Annotated[str, note('name of the kernel; "__missing__" where PyTorch did not see it')]
    metric: Annotated[str, note('name of CUPTI\'s metric, as "dram__bytes_read.sum"')]
    ranges: Annotated[int, note("number of runs of the kernel that were counted")]
    mean: Annotated[float, note("value of a run, in the unit of the metric")]
    total: Annotated[float | None, note("sum over the runs; null for metrics that are rates or shares")]


class RankRow(Struct, frozen=True):
    """The headline numbers of one file."""

    rank: Annotated[int | None, note("rank; null where the file does not say")]
    path: Annotated[str, note("path of the trace")]
    step_us: Annotated[float | None, note("typical step", "us")]
    gpu_busy_share: Annotated[float | None, note("part of the step window in which the GPU works", "share")]
    dataloader_stall_us: Annotated[float | None, note("time per step waiting for data with the GPU idle", "us")]
    exposed_communication_us: Annotated[float | None, note("communication per step that no compute overlaps", "us")]
    verdict: Annotated[str, note("how far the trace can be trusted: good, limited or unusable")]
    waited_for_us: Annotated[
        float | None, note("wait of the other ranks for this one in the median step; null: ranks not compared", "us")
    ] = None
    engine: Annotated[
        str | None, note('name of an inference engine beside a training ("engine rank 1"); null for other processes')
    ] = None

    @property
    def process(self) -> str | None:
        """ "rank 3", "engine"; None if the file says neither."""
        return f"rank {self.rank}" if self.rank is not None else self.engine


class SlowRanks(Struct, frozen=True):
    """Ranks that were slow in the same steps of the run, or that alone evaluate or save checkpoints."""

    ranks: Annotated[list[int], note("the ranks")]
    is_node: Annotated[bool, note("whether they are all ranks of one of several machines")]
    first_step: Annotated[int, note("first slow step")]
    last_step: Annotated[int, note("last slow step")]
    late_us_per_step: Annotated[
        float | None,
        note("time per step beyond the others' median, in these steps; null: they alone evaluate or save", "us"),
    ]
    ratio: Annotated[
        float | None,
        note(
            "such a step as a multiple of the others' median; null: the ranks wait for each other, so only the time "
            "until the backward pass shows who is late, or they alone evaluate or save"
        ),
    ]
    share: Annotated[float, note("what it costs, as a part of the run", "share")]
    cause: Annotated[
        Literal["data", "gc", "checkpoints", "evaluation"] | None,
        note('"data": they wait for data; "gc": garbage collection; null: not known'),
    ]


class RanksOfRun(Struct, frozen=True):
    """Neighboring ranks over the run: usually one."""

    ranks: Annotated[list[int], note("the ranks")]
    longer: Annotated[
        list[float | None],
        note(
            "what a step takes beyond the median of the other ranks, as a part of that, in each stretch, for the "
            "slowest of these ranks; null: all steps had a profiler"
        ),
    ]


class RunRanks(Struct, frozen=True):
    """The steps of all ranks over the whole run, in stretches of equal length."""

    steps: Annotated[int, note("steps that all ranks have", "steps")]
    first_steps: Annotated[list[int], note("first step of each stretch")]
    us: Annotated[
        list[float | None], note("step of the median rank, without evaluations and saves; null: as in longer", "us")
    ]
    rows: Annotated[list[RanksOfRun], note("the ranks in their order")]
    evaluation_share: Annotated[list[float], note("part of each stretch in which a rank evaluates", "share")]
    checkpoint_share: Annotated[list[float], note("part of each stretch in which a rank saves", "share")]
    slow: Annotated[list[SlowRanks], note("slow ranks, most expensive first")]


class Span(Struct, frozen=True):
    """A bar on a lane of the timeline."""

    start_us: Annotated[float, note("time since the step began", "us")]
    duration_us: Annotated[float, note("duration", "us")]
    name: Annotated[str, note("name of the event")]
    category: Annotated[
        str,
        note(
            "what it is: compute, comm, copy on a GPU; loader, input, wait, logging, checkpoint, gc, cpu on the host; "
            "forward, backward, optimizer in a CPU-only run"
        ),
    ]


class Occupancy(Struct, frozen=True):
    """How full the parts of a lane are with spans of one category."""

    category: Annotated[str, note("what the spans are, as in Span")]
    shares: Annotated[list[float], note("of each of equally long parts of the step, the time that spans fill", "share")]


class Lane(Struct, frozen=True):
    """A thread or a stream on the timeline."""

    key: Annotated[str, note("key of the lane")]
    name: Annotated[str, note("thread or stream")]
    detail: Annotated[str, note("what runs there")]
    spans: Annotated[list[Span], note("the longest spans, in order of time")]
    total: Annotated[int, note("how many spans lie in the step")]
    occupancy: Annotated[
        list[Occupancy], note("how full each part of the step is with all of these spans; empty for a few spans")
    ] = field(default_factory=list)


class StepWindow(Struct, frozen=True):
    """A step whose spans are in the table."""

    step: Annotated[int, note("index into per_step_us")]
    name: Annotated[str, note("name of the step")]
    start_us: Annotated[float, note("start since the table's zero", "us")]
    duration_us: Annotated[float, note("duration", "us")]


class SpanLane(Struct, frozen=True):
    """A row of spans: what a thread did in words, its events, gaps without GPU work, or the work of a stream."""

    kind: Annotated[
        LaneKind,
        note(
            '"activity": exclusive activities of a thread; "thread": its nested events; "idle": gaps between work of '
            'the GPU that are too short for `stalls`; "stream": work of the GPU'
        ),
    ]
    name: Annotated[str, note("thread or stream")]
    detail: Annotated[str, note("number of the thread or stream")]
    count: Annotated[int, note("spans in the table")]
    left_out: Annotated[
        int, note("shorter spans of these steps that are not in the table, because it would be too large")
    ]


class Stall(Struct, frozen=True):
    """A stretch of the shown step without GPU work."""

    start_us: Annotated[float, note("time since the step began", "us")]
    duration_us: Annotated[float, note("duration", "us")]
    cause: Annotated[str, note("key of the part in the breakdown")]
    label: Annotated[str, note("the cause in words")]
    location: Annotated[Location | None, note("line of the user's code that the host ran")] = None


class SpanTable(Struct, frozen=True):
    """Every span of consecutive steps around the shown one, as many steps as fit.

    `columns` is packed (`packing.pack_columns`): the columns of COLUMNS, then those of STREAM_COLUMNS. A column of
    COLUMNS has a value for every span, lane after lane, sorted by start; a column of STREAM_COLUMNS has one for every
    span of the lanes of kind "stream". Codes point into the lists of the table. spans.js of the report has the decoder.
    """

    steps: Annotated[list[StepWindow], note("the steps whose spans are in the table")]
    lanes: Annotated[list[SpanLane], note("threads, then streams")]
    names: Annotated[list[str], note("names of spans, as recorded")]
    labels: Annotated[list[str], note("short forms of the names of kernels; empty where the name is short")]
    categories: Annotated[list[str], note("what spans are: as in Span, and runtime, python, annotation")]
    places: Annotated[list[Location], note("lines of the user's or a model's code")]
    details: Annotated[list[str], note("shapes and types of operators, sizes of copies, launch dimensions of kernels")]
    stalls: Annotated[list[Stall], note("stretches of these steps without GPU work, since the table's zero")]
    columns: Annotated[str, note("the spans, packed: traceopt/result/rows.py describes the format")]
    tick_ns: Annotated[int, note("unit of the times in `columns`", "ns")] = 1


class Timeline(Struct, frozen=True):
    """One typical step as lanes of bars."""

    step: Annotated[str, note("name of the step")]
    duration_us: Annotated[float, note("duration of the step", "us")]
    lanes: Annotated[list[Lane], note("threads and streams")]
    stalls: Annotated[list[Stall], note("stretches without GPU work")]
    table: Annotated[
        SpanTable | None, note("every span of this step and the steps around it; null in a report that cannot zoom")
    ] = None


FlameKind = Literal["user", "library", "annotation", "operator", "runtime", "kernel"]


class FlameNode(Struct, frozen=True):
    """One frame, operator, call or kernel below another."""

    parent: Annotated[int, note("index of the caller's node; -1: none")]
    frame: Annotated[int, note("index of its name")]
    kind: Annotated[FlameKind, note("what it is; user: a Python frame of the user's code")]
    total_us: Annotated[float, note("host time, callees included", "us")]
    self_us: Annotated[float, note("host time, callees excluded", "us")]
    gpu_us: Annotated[
        float, note("time of the GPU work that it and its callees launched, in forward and backward", "us")
    ]
    category: Annotated[str, note('what the timeline calls it, if that says more than `kind`: "loader", "wait"')] = ""


class FlameGraph(Struct, frozen=True):
    """The call tree of the main thread in the shown step."""

    step: Annotated[str, note("name of the step")]
    duration_us: Annotated[float, note("duration of the step, as in the timeline", "us")]
    gpu_us: Annotated[float | None, note("time of the GPU work that the step launched; null: no GPU", "us")]
    other_gpu_us: Annotated[float | None, note("the part of it whose calling line is not known", "us")]
    left_out: Annotated[int, note("nodes that are too small to be seen")]
    frames: Annotated[list[str], note("names of frames, operators, calls and kernels")]
    nodes: Annotated[list[FlameNode], note("callers come before callees")]
    backward_gpu_us: Annotated[
        float | None,
        note("the part of gpu_us that a backward pass launched; it counts for the forward operators' lines", "us"),
    ] = None


class PlanRow(Struct, frozen=True):
    """One fix of the plan: what it saves given the fixes above it. The savings of all rows add up."""

    code: Annotated[str, note("code of the rule")]
    finding: Annotated[str, note("`id` of its finding")]
    alone_us: Annotated[float, note("saving per step without any other fix", "us")]
    saving_us: Annotated[float, note("saving per step after the fixes above", "us")]
    low_us: Annotated[float, note("saving per step, at least", "us")]
    high_us: Annotated[float, note("saving per step, at most", "us")]
    step_us_after: Annotated[float, note("step after this fix and those above", "us")]
    needs: Annotated[list[int], note("rows of the plan, from 1, without which it saves little")]
    same_edit: Annotated[int | None, note("row of the plan, from 1, whose edit also makes this fix")] = None
    capped: Annotated[bool, note("the replay saves more than the measured costs allow")] = False
