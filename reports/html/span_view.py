"""What timeline.js needs to draw the spans, in words: names, colors, lines, and the fix that concerns each."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from msgspec.structs import replace

from traceopt.analyzer.vocabulary.causes.table import CAUSE_OF_KEY
from traceopt.analyzer.vocabulary.python_frames import is_library, is_python
from traceopt.reports.words.fixes import card_lookup
from traceopt.reports.words.fixes.fix_cards import Card
from traceopt.reports.words.part_styles import is_idle, part_style, span_look
from traceopt.reports.words.rank_words import rank_phrase
from traceopt.reports.words.step_words import step_noun
from traceopt.reports.words.viewer_command import viewer_command
from traceopt.result.document import RankView, Result
from traceopt.result.sections.timeline_rows import COLUMNS, STREAM_COLUMNS, SpanTable
from traceopt.result.words import quantities

US_PER_MS = 1_000
STALL = "Stall"


def span_view(document: Result, cards: list[Card], idle_word: str | None) -> dict[str, Any] | None:
    """None if the document has no spans. Times are ms since the table's zero; the columns stay in the document."""
    table = None if document.timeline is None else document.timeline.table
    if table is None or not table.lanes or not table.steps:
        return None
    labels = [label or name for label, name in zip(table.labels, table.names, strict=True)]
    marks = {step.name for step in table.steps}
    series = document.step.series
    return {
        "answer": answer(document, idle_word),
        "about": about(document, idle_word),
        "rank": rank_phrase(document),
        "cut": cut_command(document),
        "columns": COLUMNS,
        "streamColumns": STREAM_COLUMNS,
        "names": table.names,
        "labels": labels,
        "nameKinds": [_name_kind(name, marks) for name in table.names],
        "places": [
            f"{place} in {place.function}" if place.function and not place.begins else place.shown
            for place in table.places
        ],
        "details": table.details,
        "categories": [span_look(category) for category in table.categories],
        "key": list(dict.fromkeys(_in_key(category, idle_word) for category in table.categories)),
        "lanes": [
            {"kind": lane.kind, "name": lane.name, "detail": lane.detail, "count": lane.count} for lane in table.lanes
        ],
        "steps": [
            {
                "step": step.step,
                "name": step.name,
                "start": step.start_us / US_PER_MS,
                "end": (step.start_us + step.duration_us) / US_PER_MS,
                "command": viewer_command(document, step.name),
            }
            for step in table.steps
        ],
        "shown": next((at for at, step in enumerate(table.steps) if series and step.step == series.shown), 0),
        "stalls": [
            {
                "start": stall.start_us / US_PER_MS,
                "end": (stall.start_us + stall.duration_us) / US_PER_MS,
                "label": stall.label,
                "color": part_style(stall.cause, busy=False).color,
                "place": "" if stall.location is None else stall.location.shown,
                "fix": card_lookup.card_of_stall(cards, stall),
            }
            for stall in table.stalls
        ],
        "idle": idle_word or STALL,
        "fixes": [{"text": _fix(card), "anchor": card.anchor} for card in cards],
        "causeFixes": [card_lookup.card_of_cause(cards, category) for category in table.categories],
        "placeFixes": [card_lookup.cards_of_place(cards, place) for place in table.places],
        "nameFixes": [card_lookup.cards_of_name(cards, *pair) for pair in zip(table.names, labels, strict=True)],
    }


def _in_key(category: str, idle_word: str | None) -> tuple[str, str]:
    """Color and words. Idle gaps have the colors of their causes."""
    if not is_idle(category):
        return span_look(category)
    cause = CAUSE_OF_KEY[category]
    return cause.look.color, f"{idle_word or STALL}: {quantities.in_sentence(cause.label)}"


def beside_the_document(view: dict[str, Any], recorded: SpanTable) -> dict[str, Any]:
    """The view as a page holds it: of the texts that the page's document has, only those that are shown in another way,
    by place. `recorded`: the table in that document.
    """
    texts = {
        "names": recorded.names,
        "labels": [label or name for label, name in zip(recorded.labels, recorded.names, strict=True)],
        "details": recorded.details,
    }
    return view | {
        key: {str(at): shown for at, (shown, text) in enumerate(zip(view[key], known, strict=True)) if shown != text}
        for key, known in texts.items()
    }


def of_rank(document: Result, view: RankView) -> Result:
    """The document with the steps and spans of another rank."""
    timeline = None if document.timeline is None else replace(document.timeline, table=view.table)
    return replace(document, run=replace(document.run, shown_rank=view.rank), step=view.step, timeline=timeline)


def rank_choices(document: Result) -> list[str]:
    """The ranks whose steps and spans the page has, the shown one first; empty if it is the only one."""
    if not document.rank_views:
        return []
    others = [f"{view.rank}{': the others wait for it' if view.late else ''}" for view in document.rank_views]
    return [str(document.run.shown_rank), *others]


def answer(document: Result, idle_word: str | None) -> str:
    """ "Longest gap in GPU work: 187.0 ms in ProfilerStep#9, waiting for data."; "" without a gap."""
    table = None if document.timeline is None else document.timeline.table
    if table is None or not table.stalls:
        return ""
    gap = max(table.stalls, key=lambda stall: stall.duration_us)
    steps = [one.name for one in table.steps if 0 <= gap.start_us - one.start_us < one.duration_us]
    where = f" in {steps[0]}" if steps else ""
    long, cause = quantities.ms_of_us(gap.duration_us), quantities.in_sentence(gap.label)
    return f"Longest gap in {'GPU' if idle_word else 'model'} work: {long}{where}, {cause}."


def about(document: Result, idle_word: str | None) -> str:
    """The sentences above the timeline."""
    table = None if document.timeline is None else document.timeline.table
    if table is None:
        return ""
    whole = "the recording" if document.step.source == "window" else "the chosen step"
    rank = rank_phrase(document)
    shaded = f"Shaded: the longest times without {'GPU' if idle_word else 'model'} work. " if table.stalls else ""
    return f"Every span of {whole}{f', {rank}' if rank else ''}. {shaded}{left_out(document)}".strip()


def cut_command(document: Result) -> list[str] | None:
    """What opens a step in Perfetto, before and after the step's number; None if nothing does."""
    command = None if document.step.source == "window" else viewer_command(document, "0")
    return None if command is None else command.split(" 0 ", 1)


def _name_kind(name: str, marks: Set[str]) -> str:
    """What flame.js does with a call of this name: "user" and "library" are Python, a "mark" is left out, "" tells
    nothing.
    """
    if is_python(name):
        return "library" if is_library(name) else "user"
    return "mark" if name in marks else ""


def _fix(card: Card) -> str:
    """ "1. Load data in worker processes", as in the list of fixes."""
    return card.finding.title if card.number is None else f"{card.number}. {card.finding.title}"


def key_help(document: Result) -> list[tuple[list[str], str]]:
    """The keys of the timeline and what they do, as timeline.js reads them."""
    table = None if document.timeline is None else document.timeline.table
    several = table is not None and len(table.steps) > 1
    return [
        (["W", "S"], "Zoom in and out. So do + and −, and Ctrl with the wheel"),
        (["A", "D"], "Move left and right. So does a drag"),
        (["←", "→"], "Previous and next span of the row"),
        (["↑", "↓"], "Row above and below"),
        (["Enter"], "Choose a span, then go to its details"),
        (["L"], "Go to the call that launched the chosen work, or to what the chosen call launched"),
        (["F"], "Fit the view to the chosen span. So does a double click"),
        (
            ["M"],
            "Sum up the chosen span, or everything in view. To sum up a range, drag along the axis or with Shift",
        ),
        (["Home"], f"Show the whole {step_noun(document)}"),
        *([(["Page Up", "Page Down"], "Previous and next step")] if several else []),
        (["/"], "Find spans by name"),
        (["N", "Shift N"], "Next and previous match"),
        (["Esc"], "Clear the choice and the search"),
        (["?"], "Show these keys"),
    ]


def left_out(document: Result) -> str:
    """Which steps and spans the timeline does not have, and why; "" if it has them all."""
    table = None if document.timeline is None else document.timeline.table
    if table is None:
        return ""
    sentences = []
    missing = sum(lane.left_out for lane in table.lanes)
    if missing:
        count = sum(lane.count for lane in table.lanes)
        sentences.append(f"The report holds the {count:,} longest of {count + missing:,} spans, to keep it small.")
    if len(table.steps) < document.step.count:
        first, last = table.steps[0], table.steps[-1]
        held = first.name if first is last else f"{first.name} to {last.name}"
        sentences.append(f"It holds the spans of {held}; all {document.step.count:,} steps would make it too large.")
    return " ".join(sentences)
