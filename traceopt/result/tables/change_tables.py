"""The tables of a comparison and of tried changes: which columns each has, in their order."""

from __future__ import annotations

from traceopt.result.tables.columns import Column, Table

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
    "The same change by kernel",
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
    "The same change by operator",
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
    (Column("name", "Setting", "word"), Column("base_value", "Base", "word"), Column("head_value", "Head", "word")),
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
