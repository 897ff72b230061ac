"""A comparison as a pull-request comment: verdict, one bold line, gates and findings; the rest is folded."""

from __future__ import annotations

from collections.abc import Sequence

from traceopt.reports.text import step_bars
from traceopt.reports.text.markdown import tag
from traceopt.reports.text.markdown_escaping import code, columns_table, folded, prose, table
from traceopt.reports.words import safe_text
from traceopt.reports.words.comparing import comparison_tables, comparison_words
from traceopt.result.comparison import Comparison, GateOutcome

LIMIT = 60_000  # characters; GitHub refuses comments over 65,536
ROWS = 15  # kernels, and operators
FINDINGS = 20  # of each group
NOTES = 10
LABEL = "traceopt-compare"

_GATE_WORDS = {"passed": "passed", "failed": "**failed**", "not_checked": "**not checked**"}


def render_comparison_markdown(comparison: Comparison, *, label: str = LABEL) -> str:
    """The comment. `label` tells the comments of several jobs apart."""
    document = safe_text.cleaned(comparison)
    first, rest = safe_text.first_sentence(document.verdict)
    blocks = [
        tag(label),
        f"### traceopt: {prose(first)}",
        prose(rest),
        prose(comparison_words.unusual_steps(document)),
        _bold_line(document),
        prose(comparison_words.basis(document)),
        prose(comparison_words.got_worse(document)),
        step_bars.base_and_head(document),
        _explanation(document.explanation),
        _gates(document.gates),
        _findings(document),
        *_sections(document),
        _about(document),
    ]
    return "\n\n".join(_fitting([block for block in blocks if block])) + "\n"


def _fitting(blocks: list[str]) -> list[str]:
    """The blocks, or as many of them as fit into a comment."""
    fitting: list[str] = []
    left = LIMIT
    for block in blocks:
        left -= len(block) + 2
        if left < 0:
            return [*fitting, "Cut to fit into a comment."]
        fitting.append(block)
    return fitting


def _bold_line(comparison: Comparison) -> str:
    share = comparison_words.interval(comparison.step)
    step = "step" if comparison.all_steps is None else "typical step"
    sides = f"{code(comparison_words.side_name(comparison.base))} → {code(comparison_words.side_name(comparison.head))}"
    return f"**{sides}: {step} {share}.**" if share is not None else f"**{sides}**"


def _explanation(sentences: Sequence[str]) -> str:
    return "\n".join(["What runs differently:", "", *(f"- {prose(text)}" for text in sentences)]) if sentences else ""


def _gates(outcomes: Sequence[GateOutcome]) -> str:
    rows = [[_GATE_WORDS[o.status], code(f"--{o.level}-on {o.gate}"), prose(o.text)] for o in outcomes]
    return table(["Gate", "", ""], "lll", rows) if rows else ""


def _findings(comparison: Comparison) -> str:
    line = f"Findings: {comparison_words.findings_line(comparison)}."
    shown = [
        finding
        for group in comparison_words.GROUP_WORDS
        if group != "kept"
        for finding in comparison_words.of_group(comparison, group)[:FINDINGS]
    ]
    return "\n\n".join(filter(None, (line, columns_table(comparison_tables.compared_findings(comparison, shown)))))


def _sections(comparison: Comparison) -> list[str]:
    kernels = comparison_tables.changed_kernels(comparison.kernels, most=ROWS, units=True)
    operators = comparison_tables.changed_operators(comparison.ops, most=ROWS, units=True)
    typical = " (typical step)" if comparison.step.base_us is not None else ""
    sections = [
        (f"Where the time goes{typical}", _parts(comparison)),
        *(
            (table.table.title, "\n\n".join(filter(None, (columns_table(table), table.caption))))
            for table in (
                comparison_tables.changed_metrics(comparison),
                kernels,
                operators,
                comparison_tables.changed_counts(comparison, most=ROWS),
                comparison_tables.changed_settings(comparison),
            )
        ),
        ("Keep in mind", "\n".join(f"- {prose(note)}" for note in comparison.notes[:NOTES])),
    ]
    return [folded(summary, body) for summary, body in sections if body]


def _parts(comparison: Comparison) -> str:
    parts, rest = comparison_words.shown_parts(comparison), ""
    if comparison.comparable:
        parts, rest = comparison_words.apart_from_noise(parts)
    changed = columns_table(comparison_tables.changed_parts(comparison, parts))
    return "\n\n".join(filter(None, (changed, prose(rest))))


def _about(comparison: Comparison) -> str:
    sides = ", ".join(
        f"{name} {comparison_words.steps_phrase(s)}"
        for name, s in (("base", comparison.base), ("head", comparison.head))
    )
    tool = prose(f"traceopt {comparison.tool.version}")
    items = [sides, *map(prose, comparison_words.environment(comparison)), tool]
    return " · ".join(items)
