"""The tables of the work of a step: which columns each has, in their order."""

from __future__ import annotations

from traceopt.result.tables.columns import Column, Table
from traceopt.result.tables.shared_columns import CALLER, CALLS, EXPOSED, MOVED, MS, MS_WITH_BAR

_TFLOPS = Column("tflops", "TFLOP/s", "rate")
_GB_PER_S = Column("gb_per_s", "GB/s", "rate")

COPIES = Table(
    "copies",
    "Copies",
    (Column("kind", "Direction", "word"), MS, EXPOSED, CALLS, MOVED, Column("gb_per_s", "GB/s", "rate")),
    noun="kinds of copies",
    closed=True,
    most=50,
    linked=True,
)

KERNELS = Table(
    "kernels",
    "GPU kernels",
    (
        Column("short_name", "Kernel", "kernel"),
        Column(
            "us_per_step",
            "ms{per_step}",
            "ms",
            about="Streams overlap, so the times can add up to more than the {step}.",
            bar=True,
        ),
        Column("share", "Of GPU", "share"),
        Column("peak_share", "Of peak", "share"),
        Column("dram_share", "DRAM (measured)", "share"),
        Column("tensor_share", "{matrix_units} (measured)", "share"),
        CALLS,
        Column("mean_us", "Mean µs", "us"),
        _TFLOPS,
        _GB_PER_S,
        Column("bound_words", "Bound", "word"),
        Column("kind", "Kind", "word"),
        Column("tensor_core", "{matrix_units}", "yes_no"),
        Column("op", "Operator", "name", beside="via_graph_words"),
        Column("location", "Launched from", "place"),
    ),
    noun="kernels",
    filter="Filter by name, kind or file",
    linked=True,
)

LAUNCHES = Table(
    "launches",
    "Launches of kernels",
    (
        Column("short_name", "Kernel", "name"),
        CALLS,
        Column("shortest_us", "Shortest µs", "us"),
        Column("median_us", "Median µs", "us"),
        Column("longest_us", "Longest µs", "us"),
        Column("least_us_per_step", "Least ms{per_step}", "ms"),
        Column("most_us_per_step", "Most ms{per_step}", "ms"),
        Column(
            "queued_us",
            "Queued µs",
            "us",
            about="Queued: median time from the start of the launching call to the start of the kernel, including the "
            "kernels before it.",
        ),
        Column(
            "occupancy",
            "Occupancy (est.)",
            "share",
            about="Occupancy: as the profiler estimates it from the launch, not measured.",
        ),
        Column("blocks_per_call", "Blocks (mean)", "rate"),
        Column("threads_per_block", "Threads", "count"),
        Column(
            "registers_per_thread",
            "Registers",
            "count",
            about="Threads, registers and shared memory: of the longest call.",
        ),
        Column("shared_bytes_per_block", "Shared KiB", "KiB"),
        Column("streams", "Stream", "text"),
    ),
    filter="Filter by name",
    closed=True,
)

OPERATORS = Table(
    "ops",
    "Operators",
    (
        Column("name", "Operator", "name"),
        Column(
            "gpu_us_per_step",
            "GPU ms{per_step}",
            "ms",
            about="GPU time: the kernels that the operator launched.",
            usual=0,
        ),
        Column(
            "cpu_self_us_per_step", "CPU ms{per_step}", "ms", about="CPU time excludes the operators that it calls."
        ),
        CALLS,
        Column(
            "location",
            "Called from",
            "place",
            about="Called from: the line with most of that time.",
            beside="other_lines_words",
        ),
    ),
    noun="operators",
    most=100,
    filter="Filter by name or file",
    closed=True,
    linked=True,
)

CPU_OPERATORS = Table(
    "gemms",
    "Matmuls, convolutions and attention",
    (
        Column("name", "Operator", "name"),
        MS_WITH_BAR,
        Column("share", "Of {step}", "share"),
        Column("gflops_per_s", "GFLOP/s", "rate"),
        Column("peak_share", "Of compute peak", "share"),
        CALLS,
        Column("dtype", "Type", "word"),
        CALLER,
    ),
    about="By operator and dtype, with the operators that they call.",
    narrow=True,
)

_OF_ROOFLINE = Column("roof_share", "Of roofline", "share", beside="roof")
_OF_PEAK = Column("peak_share", "Of compute peak", "share", instead_of="roof_share")
_INTENSITY = Column("intensity", "FLOP/byte", "rate")
_TENSOR_CORE = Column("tensor_core", "{matrix_units}", "yes_no")

GEMMS = Table(
    "gemms",
    "Matmuls",
    (
        Column("op", "Operator", "name"),
        MS_WITH_BAR,
        _OF_ROOFLINE,
        _OF_PEAK,
        _TFLOPS,
        _GB_PER_S,
        _INTENSITY,
        Column("m", "M", "count"),
        Column("n", "N", "count", warning="n_misaligned"),
        Column("k", "K", "count", warning="k_misaligned"),
        Column("batch", "Batch", "count", usual=1),
        Column("calls", "Calls", "count"),
        Column("dtype", "Type", "word"),
        _TENSOR_CORE,
        CALLER,
    ),
    about="Grouped by shape.",
    noun="shapes",
    most=100,
    narrow=True,
    linked=True,
)

SHAPED_OPERATORS = Table(
    "shaped",
    "Convolutions and attention",
    (
        Column("name", "Operator", "name"),
        MS_WITH_BAR,
        _OF_ROOFLINE,
        _OF_PEAK,
        _TFLOPS,
        _GB_PER_S,
        _INTENSITY,
        CALLS,
        Column("sizes", "Shape", "text"),
        Column("dtype", "Type", "word"),
        _TENSOR_CORE,
        CALLER,
    ),
    about="Grouped by shape, with all kernels that the operator launched.",
    noun="shapes",
    most=100,
    narrow=True,
    linked=True,
)

_FORWARD = Column("forward_us_per_step", "Forward {device}ms", "ms")
_BACKWARD = Column("backward_us_per_step", "Backward {device}ms", "ms", usual=0)

MODULES = Table(
    "modules",
    "Modules",
    (
        Column("name", "Module", "name"),
        _FORWARD,
        _BACKWARD,
        Column("own_us_per_step", "Own {device}ms", "ms"),
        Column("host_us_per_step", "Host ms", "ms"),
        CALLS,
    ),
    most=300,
    filter="Filter by module",
    sortable=False,  # a tree
)

MODULE_CLASSES = Table(
    "module-classes",
    "Modules by class",
    (
        Column("name", "Class", "name"),
        _FORWARD,
        _BACKWARD,
        Column("share", "Of all modules", "share"),
        Column("modules", "Modules", "count"),
        CALLS,
    ),
    most=20,
    filter="Filter by class",
    narrow=True,
)

COUNTERS = Table(
    "counters",
    "Hardware counters of kernels",
    (
        Column("metric", "Metric", "name"),
        Column("total", "Sum", "count"),
        Column("mean", "Mean of a run", "count"),
        Column("ranges", "Runs", "count"),
        Column("short_name", "Kernel", "name"),
    ),
    about="Measured by CUPTI's range profiler, which runs each kernel alone. The values are real. PyTorch divides the "
    "time of the recording equally among the kernels, so their times are not shown.",
    filter="Filter by kernel or metric",
)

RL_PHASES = Table(
    "phases",
    "Phases of the step",
    (
        Column("title", "Phase", "word"),
        MS_WITH_BAR,
        Column("share", "Of {step}", "share"),
        Column("idle_us_per_step", "GPU idle, ms", "ms"),
        Column("idle_share", "GPU idle, of phase", "share"),
        Column("process_names", "Processes", "word"),
        Column("location", "Line", "place"),
    ),
    sortable=False,
)

FILES = Table(
    "files",
    "Files read",
    (
        Column("path", "File", "name"),
        Column("rank", "Rank", "count"),
        Column("bytes", "MiB", "MiB"),
        Column("events", "Events", "count"),
        Column("lost_events", "Lost events", "count"),
        Column("repaired_events", "Repaired events", "count"),
        Column("sha256", "SHA-256", "hash"),
    ),
    noun="files",
    most=16,
    order="",
    sortable=False,
)

EVIDENCE = Table(
    "evidence",
    "Evidence",
    (
        Column("what", "{what}", "special"),
        MS,
        Column("calls_per_step", "Calls{per_step}", "count"),
        Column("location", "Source line", "place", on_phone=False),
    ),
    most=20,
    sortable=False,
    linked=True,
)
