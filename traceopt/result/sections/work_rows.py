"""Rows about the work of a step: its parts, kernels, operators, matmuls, modules and memory."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Struct

from traceopt.result.field_notes import note
from traceopt.result.finding import Location
from traceopt.result.sections.rank_rows import RankSteps

ViaGraph = Literal["capture", "annotation", "compile_log", "launch_stack", "replay"]


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


class StepSeries(Struct, frozen=True):
    """Consecutive recorded steps, each divided into the parts of the breakdown."""

    first: Annotated[int, note("index into per_step_us of the first of these steps")]
    shown: Annotated[int, note("index into per_step_us of the step that timeline and memory show")]
    names: Annotated[list[str], note("names of the steps")]
    parts: Annotated[list[StepPart], note("exclusive parts, which add up to each step; busy parts first")]
    ranks: Annotated[
        list[RankSteps], note("the same steps on the first ranks that recorded them; empty for a single rank")
    ] = []
    peak_memory_bytes: Annotated[
        list[int | None],
        note("peak of the device memory in tensors; null: none in this step; empty: memory was not recorded", "bytes"),
    ] = []
    evaluated: Annotated[
        list[int], note("indices into names of the steps with an evaluation, as traceopt run recorded them")
    ] = []
    saved: Annotated[list[int], note("the same of the steps that save a checkpoint (torch.save)")] = []


class IdleCause(Struct, frozen=True):
    """Idle time of the GPU with one cause."""

    cause: Annotated[str, note("key of the cause")]
    label: Annotated[str, note("the cause in words")]
    us_per_step: Annotated[float, note("idle time per step", "us")]
    share: Annotated[float, note("part of the step window", "share")]


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
    location: Annotated[Location | None, note("line of the user's code with most of its GPU time, or else CPU time")]
    launches_per_step: Annotated[
        float | None, note("GPU work that it launched, per step; null: no GPU, or an older version")
    ] = None
    other_lines: Annotated[int, note("other lines that call it", "lines")] = 0


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
