"""The tables of a comparison, which all formats share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from traceopt.reports.words import names
from traceopt.reports.words.comparing import comparison_words
from traceopt.reports.words.tables import Derived, ShownTable, shown_table
from traceopt.result.comparison import Comparison, FindingChange, MetricChange, PartChange, RowChange
from traceopt.result.tables import change_tables
from traceopt.result.words import quantities

ROWS = 100  # kernels and operators of the page

_ROW: Derived = {
    "counted_calls": lambda row: comparison_words.calls(row) or _same_calls(row),
    "status_word": lambda row: comparison_words.ROW_WORDS[row.status],
}
_FINDING: Derived = {
    "group_word": lambda finding: comparison_words.GROUP_WORDS[comparison_words.group_of(finding)],
    "titled": lambda finding: f"{finding.title} ({finding.code})",
    "impact_word": lambda finding: comparison_words.impact(finding).removesuffix(" impact") or "Info",
    "saved": comparison_words.saving,
    "short_place": lambda finding: finding.place and names.short_path(finding.place),
    "elsewhere": comparison_words.other_place,
}
_RUN: Derived = {  # of the name of a side and its run
    "label": lambda row: row[1].label,
    "side": lambda row: row[0],
    "steps_words": lambda row: quantities.count(row[1].steps) if row[1].steps else "no marks",
    "typical": lambda row: quantities.ms_of_us(row[1].typical_us) if row[1].steps else None,
    "quality_words": lambda row: f"{row[1].quality}{', at times no free core' if row[1].crowded else ''}",
}


def changed_parts(comparison: Comparison, parts: Sequence[PartChange]) -> ShownTable:
    """The parts of the step. Those of sides that cannot be compared are shares of their own side."""
    sides = partial(comparison_words.part_of_sides, comparison)
    derived: Derived = {
        "noise": _noise,
        "base": lambda part: quantities.ms_of_us(part.base_us) if comparison.comparable else sides(part)[0],
        "head": lambda part: quantities.ms_of_us(part.head_us) if comparison.comparable else sides(part)[1],
        "change": lambda part: comparison_words.part_change(part) if comparison.comparable else None,
    }
    return shown_table(change_tables.CHANGED_PARTS, parts, derived=derived)


def changed_metrics(comparison: Comparison) -> ShownTable:
    derived: Derived = {
        "noise": _noise if comparison.comparable else lambda _: "",
        "base_value": lambda metric: comparison_words.metric_value(metric, metric.base),
        "head_value": lambda metric: comparison_words.metric_value(metric, metric.head),
        "change": lambda metric: comparison_words.metric_change(metric) if comparison.comparable else None,
    }
    return shown_table(change_tables.CHANGED_METRICS, comparison.metrics, derived=derived)


def changed_kernels(rows: Sequence[RowChange], *, most: int = ROWS, units: bool = False) -> ShownTable:
    short = names.short_kernels(row.name for row in rows)
    derived: Derived = {**_ROW, "short_name": lambda row: short[row.name]}
    return shown_table(replace(change_tables.CHANGED_KERNELS, most=most), rows, derived=derived, units=units)


def changed_operators(rows: Sequence[RowChange], *, most: int = ROWS, units: bool = False) -> ShownTable:
    return shown_table(replace(change_tables.CHANGED_OPERATORS, most=most), rows, derived=_ROW, units=units)


def compared_findings(comparison: Comparison, findings: Sequence[FindingChange]) -> ShownTable:
    words = {"saves": comparison_words.saves_heading(comparison)}
    return shown_table(change_tables.COMPARED_FINDINGS, findings, words, derived=_FINDING)


def findings_of_group(comparison: Comparison, group: comparison_words.Group) -> ShownTable:
    """The findings of a group, below a heading that says which it is."""
    title = f"Findings: {comparison_words.GROUP_WORDS[group].lower()}"
    _, *columns = change_tables.COMPARED_FINDINGS.columns
    table = replace(change_tables.COMPARED_FINDINGS, name=f"findings-{group}", title=title, columns=tuple(columns))
    words = {"saves": comparison_words.saves_heading(comparison)}
    return shown_table(table, comparison_words.of_group(comparison, group), words, derived=_FINDING)


def changed_counts(comparison: Comparison, *, most: int = ROWS) -> ShownTable:
    derived: Derived = {
        "base_count": lambda one: comparison_words.count_of(one, one.base),
        "head_count": lambda one: comparison_words.count_of(one, one.head),
        "count_change": comparison_words.count_change,
    }
    return shown_table(replace(change_tables.CHANGED_COUNTS, most=most), comparison.counts, derived=derived)


def changed_settings(comparison: Comparison) -> ShownTable:
    derived: Derived = {
        "base_value": lambda setting: setting.base or quantities.NOT_RECORDED,
        "head_value": lambda setting: setting.head or quantities.NOT_RECORDED,
    }
    return shown_table(change_tables.CHANGED_SETTINGS, comparison.settings, derived=derived)


def compared_runs(comparison: Comparison, most: int) -> ShownTable:
    """The first runs of each side."""
    sides = {"base": comparison.base, "head": comparison.head}
    runs = [(name, run) for name, side in sides.items() for run in side.runs[:most]]
    return shown_table(replace(change_tables.COMPARED_RUNS, most=2 * most), runs, derived=_RUN)


def _noise(change: PartChange | MetricChange) -> str:
    return "within noise" if change.beyond_noise is False else ""


def _same_calls(row: RowChange) -> str | None:
    """The calls of both sides, or of the only one."""
    calls = row.head_calls if row.base_calls is None else row.base_calls
    return None if calls is None else quantities.count(calls)
