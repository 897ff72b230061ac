"""The typical step in its parts, now and after the fixes of the plan."""

from __future__ import annotations

from collections.abc import Sequence

from traceopt.analyzer.vocabulary.causes.cause import Look
from traceopt.reports.figures.figure import (
    FigureDict,
    Trace,
    color,
    figure,
    label,
    lines,
    marker,
    nothing,
    plain,
    scaled,
    time_unit,
)
from traceopt.reports.words.fixes import fix_cards
from traceopt.reports.words.fixes.card_lookup import cards_of_part
from traceopt.reports.words.fixes.fix_cards import Card
from traceopt.reports.words.not_recorded import no_breakdown
from traceopt.reports.words.part_styles import part_style
from traceopt.reports.words.step_words import per_step, scope, sides, typical_step
from traceopt.result.document import Result
from traceopt.result.sections.work_rows import BreakdownPart
from traceopt.result.words import quantities

TITLE = "Where the time goes"
NOW, AFTER = "Now", "After the plan"


def draw(document: Result) -> FigureDict:
    """One bar, and a second one if the parts after the plan are known."""
    now = [part for part in document.breakdown if part.us_per_step > 0]
    if not now:
        return nothing(TITLE, no_breakdown(document))
    bars = {NOW: now}
    if document.combined is not None and document.combined.breakdown_after:
        bars[AFTER] = document.combined.breakdown_after
    top_us = max(sum(part.us_per_step for part in parts) for parts in bars.values())
    unit = time_unit(top_us)
    known = {part.name: part for parts in reversed(bars.values()) for part in parts}
    cards = fix_cards.cards(document)
    ordered = sorted(known.values(), key=lambda part: (part.busy, -part.us_per_step))
    return figure(
        TITLE,
        [_trace(document, part, bars, unit, cards) for part in ordered],
        subtitle=f"{scope(document)}{typical_step(document)}. {sides(document).pattern_hint}",
        barmode="stack",
        legend={"traceorder": "normal"},
        height=max(220 + 70 * len(bars), 180 + 21 * len(ordered)),  # room for the legend
        uniformtext={"minsize": 11, "mode": "hide"},
        xaxis={"title": f"{unit}{per_step(document)}"},
        yaxis={"autorange": "reversed", "type": "category"},
    )


def _trace(
    document: Result, part: BreakdownPart, bars: dict[str, list[BreakdownPart]], unit: str, cards: Sequence[Card]
) -> Trace:
    """The part in each of the bars."""
    look = part_style(part.name, part.busy)
    fixes = cards_of_part(cards, part)
    there = {bar: next((one for one in parts if one.name == part.name), None) for bar, parts in bars.items()}
    return {
        "type": "bar",
        "orientation": "h",
        "name": label(part.label),
        "y": list(bars),
        "x": scaled((None if one is None else one.us_per_step for one in there.values()), unit),
        "text": [plain(quantities.percent(one.share)) if one is not None else "" for one in there.values()],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "insidetextfont": {"color": color("bg")},
        "hovertext": [
            _hover(document, bar, one, look, fixes if bar == NOW else []) if one is not None else ""
            for bar, one in there.items()
        ],
        "hoverinfo": "text",
        "marker": marker(look),
    }


def _hover(document: Result, bar: str, part: BreakdownPart, look: Look, fixes: Sequence[Card]) -> str:
    words = sides(document)
    time, share = quantities.ms_of_us(part.us_per_step), quantities.percent(part.share)
    return lines(
        f"{part.label} ({words.busy if part.busy else words.idle})",
        f"{bar}: {time}, {share} of the step",
        look.detail,
        *(f"Fix {card.number}: {fix_cards.title(card, document)} ({card.finding.code})" for card in fixes),
    )
