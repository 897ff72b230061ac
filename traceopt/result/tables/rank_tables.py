"""The tables of ranks, devices and what they send each other: which columns each has, in their order."""

from __future__ import annotations

from traceopt.result.tables.columns import Column, Table
from traceopt.result.tables.shared_columns import CALLER, CALLS, EXPOSED, MOVED, MS, MS_WITH_BAR

COLLECTIVES = Table(
    "collectives",
    "Collectives",
    (Column("name", "Collective", "name"), MS, EXPOSED, CALLS, MOVED, Column("gb_per_s", "Bus GB/s", "rate"), CALLER),
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
        MS,
        EXPOSED,
        Column("late_us_per_step", "Late ranks ms", "ms", about="Late ranks: waiting until the last rank enters."),
        Column("latest_words", "Latest rank", "word"),
        Column(
            "beside_us_per_step",
            "Beside others ms",
            "ms",
            about="Beside others: while another group communicates.",
            usual=0,
        ),
        CALLS,
        MOVED,
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
        MS_WITH_BAR,
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
            "compute_us_per_step", "Compute ms{per_step}", "ms", about="Compute: without the optimizer's.", bar=True
        ),
        Column("bubble_us_per_step", "Bubble ms", "ms", about="Bubble: the stage waits for others."),
        Column("bubble_share", "Bubble", "share"),
        Column(
            "least_share",
            "Of schedule",
            "share",
            about="Of schedule: the bubble if all stages compute equally long and transfers take no time.",
        ),
        Column(
            "doubling_saves_us", "2x micro-batches save ms", "ms", about="2x micro-batches: of half the size.", usual=0
        ),
        Column(
            "interleaving_saves_us",
            "2x chunks save ms",
            "ms",
            about="2x chunks: of half the layers, on the same ranks.",
            usual=0,
        ),
    ),
    about="A stage waits while the pipeline fills and drains, and for stages that compute longer.",
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

EXPERT_LAYERS = Table(
    "expert-layers",
    "Experts by layer",
    (
        Column("layer", "Layer", "name"),
        Column("hottest_rank", "Hottest rank", "count"),
        Column("tokens_per_step", "Its tokens", "count"),
        Column("of_mean", "Of mean", "rate", bar=True),
    ),
    about="In the forward passes of a step: the rank whose experts get most tokens in each layer.",
    noun="layers",
    order="first",
    narrow=True,
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
        Column("dataloader_stall_us", "Waiting for data ms", "ms"),
        Column("exposed_communication_us", "{communication} ms", "ms"),
        Column(
            "waited_for_us",
            "Waited for ms",
            "ms",
            about="Waited for: how long the others wait for this rank, or for the ranks that are late with it, in the "
            "median step.",
        ),
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
