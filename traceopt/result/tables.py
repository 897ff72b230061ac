"""The tables of the reports: which columns each has, in their order. The rows are in rows.py and document.py."""

from __future__ import annotations

from traceopt.result.columns import Column, Table

_MS = Column("us_per_step", "ms{per_step}", "ms")
_MS_WITH_BAR = Column("us_per_step", "ms{per_step}", "ms", bar=True)
_CALLS = Column("calls_per_step", "Calls", "count")
_EXPOSED = Column("exposed_us_per_step", "Exposed ms", "ms", about="Exposed: not overlapped by compute.")
_MOVED = Column("bytes_per_step", "MB{per_step}", "MB")
_TFLOPS = Column("tflops", "TFLOP/s", "rate")
_GB_PER_S = Column("gb_per_s", "GB/s", "rate")
_CALLER = Column("location", "Called from", "place")

COLLECTIVES = Table(
    "collectives",
    "Collectives",
    (
        Column("name", "Collective", "name"),
        _MS,
        _EXPOSED,
        _CALLS,
        _MOVED,
        Column("gb_per_s", "Bus GB/s", "rate"),
        _CALLER,
    ),
    noun="collectives",
    most=50,
    linked=True,
)

PROCESS_GROUPS = Table(
    "process-groups",
    "Process groups",
    (
        Column("group", "Group", "name"),
        Column("parallelism", "For", "word"),
        Column("ranks_words", "Ranks", "word"),
        Column("collectives_words", "Collectives", "text"),
        _MS,
        _EXPOSED,
        Column("late_us_per_step", "Late ranks ms", "ms", about="Late ranks: waiting until the last rank enters."),
        Column("latest_words", "Latest rank", "word"),
        Column(
            "beside_us_per_step",
            "Beside others ms",
            "ms",
            about="Beside others: while another group communicates.",
            usual=0,
        ),
        _CALLS,
        _MOVED,
        Column("gb_per_s", "Bus GB/s", "rate"),
        Column("link_share", "Of link", "share"),
    ),
    noun="process groups",
    most=50,
    narrow=True,
)

GROUP_OVERLAPS = Table(
    "overlaps",
    "What overlaps each process group",
    (
        Column("group", "Group", "name"),
        Column("beside", "Beside", "name"),
        _MS_WITH_BAR,
        Column("share", "Of the group's time", "share"),
    ),
    about="What runs while a group communicates. Several can run at once, so the shares can add up to more than 100%.",
    closed=True,
)

PIPELINE = Table(
    "pipeline",
    "Pipeline stages",
    (
        Column("rank", "Rank", "count"),
        Column("schedule", "Schedule", "word"),
        Column("micro_batches", "Micro-batches", "count"),
        Column("chunks", "Chunks", "count", about="Chunks: parts of the model on the rank.", usual=1),
        Column(
            "compute_us_per_step",
            "Compute ms{per_step}",
            "ms",
            about="Compute: without the optimizer's.",
            bar=True,
        ),
        Column("bubble_us_per_step", "Bubble ms", "ms", about="Bubble: the GPU waits for other stages."),
        Column("bubble_share", "Bubble", "share"),
        Column(
            "least_share",
            "Of schedule",
            "share",
            about="Of schedule: the bubble if all stages compute equally long and transfers take no time.",
        ),
        Column(
            "doubling_saves_us",
            "2x micro-batches save ms",
            "ms",
            about="2x micro-batches: of half the size.",
            usual=0,
        ),
        Column(
            "interleaving_saves_us",
            "2x chunks save ms",
            "ms",
            about="2x chunks: of half the layers, on the same ranks.",
            usual=0,
        ),
    ),
    about="The GPU of a stage waits while the pipeline fills and drains, and for stages that compute longer.",
    noun="stages",
    order="",
    narrow=True,
)

EXPERTS = Table(
    "experts",
    "Experts by rank",
    (
        Column("rank", "Rank", "count"),
        Column("tokens_per_step", "Tokens", "count", bar=True),
        Column("of_mean", "Of mean", "rate"),
        Column("passes", "Passes", "count", about="Passes: a layer's forward or backward."),
        Column("hottest_pass", "Hottest pass", "count"),
        Column("compute_us_per_step", "Compute ms{per_step}", "ms"),
        Column(
            "exchange_us_per_step", "All-to-all ms", "ms", about="All-to-all: not overlapped, with the wait for others."
        ),
    ),
    about="What the experts of each rank get in a step, and how long the rank computes on it.",
    noun="ranks",
    order="first",
    narrow=True,
)

COPIES = Table(
    "copies",
    "Copies",
    (Column("kind", "Direction", "word"), _MS, _EXPOSED, _CALLS, _MOVED, Column("gb_per_s", "GB/s", "rate")),
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
        _CALLS,
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
        _CALLS,
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
            "cpu_self_us_per_step",
            "CPU ms{per_step}",
            "ms",
            about="CPU time excludes the operators that it calls.",
        ),
        _CALLS,
        _CALLER,
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
        _MS_WITH_BAR,
        Column("share", "Of {step}", "share"),
        Column("gflops_per_s", "GFLOP/s", "rate"),
        Column("peak_share", "Of compute peak", "share"),
        _CALLS,
        Column("dtype", "Type", "word"),
        _CALLER,
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
    "Matrix multiplications",
    (
        Column("op", "Operator", "name"),
        _MS_WITH_BAR,
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
        _CALLER,
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
        _MS_WITH_BAR,
        _OF_ROOFLINE,
        _OF_PEAK,
        _TFLOPS,
        _GB_PER_S,
        _INTENSITY,
        _CALLS,
        Column("sizes", "Shape", "text"),
        Column("dtype", "Type", "word"),
        _TENSOR_CORE,
        _CALLER,
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
        _CALLS,
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
        _CALLS,
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

GPUS = Table(
    "gpus",
    "GPUs of the process",
    (
        Column("number", "GPU", "word", beside="name"),
        Column("busy_share", "Busy", "share"),
        Column("compute_us_per_step", "Compute ms", "ms"),
        Column("communication_us_per_step", "Communication ms", "ms", usual=0),
        Column("copies_us_per_step", "Copies ms", "ms", usual=0),
        Column(
            "waits_us_per_step",
            "Waits ms",
            "ms",
            about="Waits: idle while another GPU works, with the next work launched, or the host waiting as well.",
            beside="waits_for_words",
        ),
        Column("idle_us_per_step", "Other idle ms", "ms"),
        Column("peak_memory_bytes", "Peak memory MiB", "MiB"),
    ),
    sortable=False,
)
RANKS = Table(
    "ranks",
    "Ranks",
    (
        Column("rank_words", "Rank", "word"),
        Column("step_us", "{typical} ms", "ms"),
        Column("gpu_busy_share", "GPU busy", "share"),
        Column("dataloader_stall_us", "Loader stall ms", "ms"),
        Column("exposed_communication_us", "Exposed comm. ms", "ms"),
        Column("verdict", "Trace quality", "word"),
        Column("file", "File", "name"),
    ),
    about="One row per file.",
    noun="ranks",
    most=64,
    order="",
    narrow=True,
)

SLOW_RANKS = Table(
    "slow-ranks",
    "Slow ranks over the run",
    (
        Column("who", "Ranks", "word"),
        Column("first_step", "From step", "count"),
        Column("last_step", "To step", "count"),
        Column("ratio", "Of others' median", "rate"),
        Column("late_us_per_step", "Longer ms per step", "ms"),
        Column("share", "Of the run", "share", bar=True),
        Column("why", "Because of", "word"),
    ),
    noun="rows",
    closed=True,
    narrow=True,
)

RL_PHASES = Table(
    "phases",
    "Phases of the step",
    (
        Column("title", "Phase", "word"),
        _MS_WITH_BAR,
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
        _MS,
        Column("calls_per_step", "Calls{per_step}", "count"),
        Column("location", "Source line", "place", on_phone=False),
    ),
    most=20,
    sortable=False,
    linked=True,
)

# What two runs differ in. Only what can be compared has a change.

_CHANGE = Column("change", "Change", "number")

CHANGED_PARTS = Table(
    "parts",
    "Where the time goes",
    (
        Column("label", "Part", "special", beside="noise"),
        Column("base", "Base", "number"),
        Column("head", "Head", "number"),
        _CHANGE,
    ),
)
CHANGED_METRICS = Table(
    "metrics",
    "Metrics",
    (
        Column("label", "Metric", "word", beside="noise"),
        Column("base_value", "Base", "number"),
        Column("head_value", "Head", "number"),
        _CHANGE,
        Column("name", "Gate", "name"),
    ),
    sortable=False,
)
CHANGED_KERNELS = Table(
    "kernels",
    "Kernels that changed",
    (
        Column("short_name", "Kernel", "kernel"),
        Column("base_us", "Base", "ms"),
        Column("head_us", "Head", "ms"),
        Column("change_us", "Change", "ms_change"),
        Column("counted_calls", "Calls", "number"),
        Column("status_word", "Status", "word"),
    ),
    noun="kernels that changed",
    order="largest",
)
CHANGED_OPERATORS = Table(
    "ops",
    "Operators that changed",
    (Column("name", "Operator", "name"), *CHANGED_KERNELS.columns[1:]),
    noun="operators that changed",
    order="largest",
)
COMPARED_FINDINGS = Table(
    "found",
    "Findings",
    (
        Column("group_word", "Status", "word"),
        Column("titled", "Finding", "special", beside="elsewhere"),
        Column("impact_word", "Impact", "special"),
        Column("saved", "{saves}", "word"),
        Column("short_place", "Where", "name"),
    ),
    order="",
    sortable=False,
)
CHANGED_COUNTS = Table(
    "counts",
    "What a step does",
    (
        Column("name", "Count per step", "name"),
        Column("base_count", "Base", "number"),
        Column("head_count", "Head", "number"),
        Column("count_change", "Change", "number"),
    ),
    noun="counts that changed",
    order="",
    sortable=False,
)
CHANGED_SETTINGS = Table(
    "settings",
    "Settings that differ",
    (
        Column("name", "Setting", "word"),
        Column("base_value", "Base", "word"),
        Column("head_value", "Head", "word"),
    ),
    noun="settings",
    order="",
    sortable=False,
)
COMPARED_RUNS = Table(
    "runs",
    "Runs",
    (
        Column("label", "Run", "name"),
        Column("side", "Side", "word"),
        Column("steps_words", "Steps", "number"),
        Column("typical", "Typical step", "number"),
        Column("quality_words", "Quality", "word"),
    ),
    sortable=False,
)
_TRIED_COLUMNS = (
    Column("change", "Change", "special"),
    Column("verdict_word", "Verdict", "word"),
    Column("predicted", "Predicted", "number"),
    Column("measured", "Measured", "number"),
    Column("loss_words", "Losses", "special"),
    Column("peak_memory", "Peak memory", "number"),
)
TRIED = Table("tried", "Tried on this machine", _TRIED_COLUMNS, sortable=False)
TUNED = Table("tried", TRIED.title, (*_TRIED_COLUMNS, Column("round_word", "Round", "word")), sortable=False)
