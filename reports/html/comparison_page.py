"""A comparison as one HTML page with the style, scripts and security policy of the report."""

from __future__ import annotations

from collections import Counter

from traceopt.reports.html import page as report
from traceopt.reports.html.page_figures import comparison_figures
from traceopt.reports.html.page_scripts import page_scripts, plotly, style
from traceopt.reports.words import safe_text
from traceopt.reports.words.comparing import comparison_tables, comparison_words
from traceopt.reports.words.fixes.headline import Tile
from traceopt.result.comparison import Comparison, GateOutcome, GateStatus, Side
from traceopt.result.words import quantities

RUN_ROWS = 50  # per side


def render_comparison_html(comparison: Comparison) -> str:
    """The page; it makes no network request and is complete without JavaScript."""
    document = safe_text.cleaned(comparison)
    heading, more = safe_text.first_sentence(document.verdict)
    parts = comparison_words.shown_parts(document)
    figures = comparison_figures(document) if document.comparable and plotly() is not None else {}
    scripts = page_scripts([], {}, figures)
    return (
        report.environment()
        .get_template("compare.html.j2")
        .render(
            css=style(),
            scripts=scripts,
            figures=figures,
            comparison=document,
            heading=heading.replace(" → ", f"{quantities.NO_BREAK_SPACE}→{quantities.NO_BREAK_SPACE}"),
            more=more,
            parts=parts,
            changed_parts=comparison_tables.changed_parts(document, parts),
            metrics=comparison_tables.changed_metrics(document),
            kernels=comparison_tables.changed_kernels(document.kernels),
            operators=comparison_tables.changed_operators(document.ops),
            counts=comparison_tables.changed_counts(document),
            findings_of_group=comparison_tables.findings_of_group,
            runs=comparison_tables.compared_runs(document, RUN_ROWS),
            settings=comparison_tables.changed_settings(document),
            method=_method(document),
            gate_word=_gate_word,
            change_line=comparison_words.change_line(document),
            basis=comparison_words.basis(document),
            tiles=_tiles(document),
            steps_compared=document.step.verdict != "not_measured",
            gates_line=_gates_line(document),
            words=comparison_words,
        )
    )


def _tiles(comparison: Comparison) -> list[Tile]:
    step, every = comparison.step, comparison.all_steps
    tiles = [
        _side_tile("Base", comparison.base, step.base_us, every.base_unusual if every else 0),
        _side_tile("Head", comparison.head, step.head_us, every.head_unusual if every else 0),
    ]
    if not comparison.comparable:
        return tiles
    noise = {
        "within_noise": "within noise",
        "unclear": "not enough steps to tell",
        "slower": "beyond noise",
        "faster": "beyond noise",
        "not_measured": "steps not comparable",
    }[step.verdict]
    share = quantities.signed_percent(step.change_share)
    known = step.change_share is not None
    if every is not None:
        noise += f"; mean of all steps {quantities.signed_percent(every.change_share)}"
    tiles.append(Tile("Change", share.rstrip("%"), "%" if known else None, noise))
    new = len(comparison_words.of_group(comparison, "new"))
    return [*tiles, Tile("New findings", str(new), "", comparison_words.findings_line(comparison, without="new"))]


def _side_tile(name: str, side: Side, step_us: float | None, unusual: int) -> Tile:
    """`step_us`: of the compared steps; without it, the side's own typical step or recording. `unusual`: steps that it
    leaves out.
    """
    us = comparison_words.shown_step_us(side) if step_us is None else step_us
    what = "step time" if any(run.steps for run in side.runs) else "recording"
    number, unit = (quantities.NOT_RECORDED, None) if us is None else quantities.time_parts(us)
    return Tile(
        f"{name}: {what}",
        number,
        unit,
        comparison_words.steps_phrase(side) + (f", {unusual:,} left out" if unusual else ""),
    )


def _gates_line(comparison: Comparison) -> str:
    """ "3 passed, 1 failed, 1 not checked"."""
    counts = Counter(gate.status for gate in comparison.gates)
    kinds: dict[GateStatus, str] = {"failed": "failed", "not_checked": "not checked", "passed": "passed"}
    return ", ".join(f"{counts[status]} {words}" for status, words in kinds.items() if counts[status]) + "."


def _gate_word(gate: GateOutcome) -> str:
    failed = "Failed" if gate.level == "fail" else "Warning"
    return {"passed": "Passed", "failed": failed, "not_checked": "Not checked"}[gate.status]


def _method(comparison: Comparison) -> list[tuple[str, str]]:
    """How the sides were compared: terms and what they mean."""
    same_work = (
        "FLOP, tokens or samples are not known on both sides. So kernels with the same name and number of calls are "
        "compared: most of their time is in kernels whose grids (thread blocks per launch) changed by the same factor, "
        "as with a larger batch. Work that does not grow with the batch, such as the optimizer, makes the time per "
        "unit look better for the larger batch."
    )
    by_unit = "The step time divided by the work of a step."
    work = comparison.work
    return [
        (
            "Step time",
            "The typical step of a run (the mean without steps that are unusual once), or the geometric mean of "
            "several runs. Each run counts as one observation, because two runs of the same code differ more than the "
            "steps of one run suggest. This run-to-run noise is estimated from the runs, together with an assumption "
            "(1.0% on top of the spread of the steps) that weighs as much as four runs. With one run per side, only "
            "the assumption is left.",
        ),
        (
            "Interval",
            "A 99% Student's t interval of the logarithms. Steps count less if they resemble the steps before them.",
        ),
        (
            "Kernels, operators",
            "Matched by name. Listed if they change by 0.5% of the step, or appear or vanish with 0.1% of it. A change "
            "must also exceed run-to-run noise, with one run per side the assumed one. Outlier: only a few steps "
            "changed, and the median step did not.",
        ),
        *([("Unit of work", same_work if work.unit == "unit" else by_unit)] if work is not None else []),
        (
            "Findings",
            "Matched by rule, file and function, never by line or time. Maybe not new: the cost is so small beside the "
            "step of BASE that BASE may not report it. Only in BASE or HEAD: the other side could not check the rule, "
            "or the sides are not like for like.",
        ),
    ]
