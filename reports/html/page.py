"""The HTML report: one file without network requests, complete without JavaScript.

A trace is untrusted input. Every string is cleaned, the templates escape everything they print, and a
Content-Security-Policy allows only the scripts whose hashes it lists.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup
from msgspec.structs import replace

from traceopt.reports.agent import prompt
from traceopt.reports.figures.figure import FigureDict
from traceopt.reports.figures.way import kept_one_by_one
from traceopt.reports.html import evidence_links, flame_view, part_answers, span_view, table_rows
from traceopt.reports.html.charts import (
    loss_chart,
    rank_chart,
    roofline,
    run_chart,
    run_ranks_chart,
    snapshot_chart,
    step_strip,
    timeline_svg,
)
from traceopt.reports.html.page_figures import page_figures
from traceopt.reports.html.page_scripts import page_scripts, plotly, style
from traceopt.reports.html.readouts import readouts
from traceopt.reports.html.template_cache import TemplateCache
from traceopt.reports.html.work_tables import evidence_table, work_tables
from traceopt.reports.words import (
    memory_parts,
    method_words,
    names,
    not_recorded,
    part_styles,
    rank_words,
    run_words,
    safe_text,
    step_words,
    table_captions,
)
from traceopt.reports.words.companions.sections import companion_sections
from traceopt.reports.words.comparing import trial_words
from traceopt.reports.words.display import for_display
from traceopt.reports.words.fixes import card_lookup, fix_cards, headline, plan_numbers
from traceopt.reports.words.viewer_command import in_trace_folder, viewer_command
from traceopt.result.document import Result
from traceopt.result.encoding import packing
from traceopt.result.encoding.packing import RESULT_ID
from traceopt.result.encoding.serialization import to_json
from traceopt.result.tables.columns import CODE_TYPES
from traceopt.result.tables.step_tables import EVIDENCE, GEMMS
from traceopt.result.words import quantities

TEMPLATES = Path(__file__).parent / "templates"
TIMELINE_SCRIPTS = [  # each uses those before it
    f"timeline/{name}.js"
    for name in (
        "spans",
        "relations",
        "layout",
        "view",
        "bars",
        "marks",
        "painting",
        "sums",
        "details",
        "search",
        "pointer",
        "timeline",
    )
]
FOLDED_ROWS = 15  # rows visible at first, and in print; a click shows the rest


def render_html(result: Result, *, static: bool = False) -> str:
    """The report as one HTML page. `static` leaves the spans out, so that the timeline does not zoom, but the page is
    small.
    """
    if static:
        result = without_spans(result)
    document = for_display(result)
    every_step = not static and plotly() is not None  # its figures have room for them
    view = _view(document, every_step=every_step)
    spans = [span_view.span_view(one, view["all_cards"], view["idle_word"]) for one in view["rank_documents"]]
    flame = flame_view.flame_view(document)
    scripts: list[str] = []
    data: dict[str, Any] = {}
    under_pointer = readouts(
        view["rank_documents"],
        view["strips"],
        view["rank_drawing"],
        view["memory"],
        view["roofline"],
        every_step=every_step,
    )
    if under_pointer:
        data["readouts"] = under_pointer
    if spans[0] is not None or flame is not None:
        scripts.append("units.js")
    if spans[0] is not None:
        scripts += TIMELINE_SCRIPTS
    tables = [None if result.timeline is None else result.timeline.table, *(one.table for one in result.rank_views)]
    for number, (of_rank, table) in enumerate(zip(spans, tables, strict=True)):
        if of_rank is not None and table is not None:
            name = f"spans-{number}" if number else "spans"
            data[name] = span_view.beside_the_document(of_rank, table)
    if view["all_cards"] and not static:
        data["prompts"] = {card.anchor: prompt.prompt(card.finding, document) for card in view["all_cards"]}
    if flame is not None:
        scripts.append("flame.js")
        data["flame"] = flame
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            css=style(),
            scripts=page_scripts(scripts, data, _figures(document, view) if every_step else {}),
            interactive=spans[0] is not None,
            prompts=not static,
            span_key=[] if spans[0] is None else spans[0]["key"],
            has_python=spans[0] is not None and ("python", "Python") in spans[0]["categories"],
            result_id=RESULT_ID,
            result_script=_embedded(to_json(result)),
            **view,
        )
    )


def _figures(document: Result, view: dict[str, Any]) -> dict[str, FigureDict]:
    """Those that take the place of a drawing of the page."""
    drawn = {f"steps-{number}" if number else "steps" for number, strip in enumerate(view["strips"]) if strip}
    names = {"ranks": "rank_drawing", "roofline": "roofline", "memory": "memory", "way": "way"}
    names |= {"run": "run_chart", "run-memory": "run_memory", "run-ranks": "run_ranks"}
    drawn |= {name for name, drawing in names.items() if view[drawing]}
    return page_figures(document, view["rank_documents"], drawn)


def without_spans(result: Result) -> Result:
    """The document without the tables of spans, which are most of a large one."""
    if result.timeline is None or result.timeline.table is None:
        return result
    return replace(result, timeline=replace(result.timeline, table=None), rank_views=[])


def _view(document: Result, *, every_step: bool) -> dict[str, Any]:
    """What the templates print: the cleaned document, and sentences and drawings made from it. `every_step`: the page
    has a figure of the steps, with all of them.
    """
    words = step_words.sides(document)
    idle_word = words.idle if step_words.has_gpu_sides(document) else None
    timeline = None if document.timeline is None else timeline_svg.draw_timeline(document.timeline, idle_word)
    memory = timeline_svg.draw_memory(document.memory, document.timeline)
    all_cards, groups = fix_cards.cards(document), fix_cards.groups(document)
    first_card = fix_cards.first_card(document) if headline.worth_fixing(document) else None
    by_shape = ["shaped", "gemms"] if table_rows.convolutions_take_longer(document) else ["gemms", "shaped"]
    rank_documents = [document, *(span_view.of_rank(document, one) for one in document.rank_views)]
    view: dict[str, Any] = {
        "all_cards": all_cards,
        "idle_word": idle_word,
        "timeline_keys": span_view.key_help(document),
        "timeline_answer": span_view.answer(document, idle_word),
        "timeline_about": span_view.about(document, idle_word),
        "result": document,
        "has_trace": document.step.source != "none",
        "companions": companion_sections(document),
        "words": words,
        "on_cpu": step_words.on_cpu(document),
        "gpu_measured": idle_word is not None,
        "identity": run_words.identity(document),
        "rank": rank_words.rank_phrase(document),
        "scope": step_words.scope(document),
        "typical": step_words.typical_step(document),
        "step_noun": step_words.step_noun(document),
        "partly_hidden": step_words.partly_hidden(document),
        "environment": run_words.environment(document),
        "verdict": run_words.verdict(document),
        "headline": headline.without_fix(run_words.verdict(document), first_card),
        "lead": headline.lead(document),
        "first_card": first_card,
        "first_saving": first_card and headline.first_saving(first_card, document),
        "ranks_missing": rank_words.ranks_missing(document),
        "shown_codes": {finding.code for finding in document.findings},
        "tiles": headline.tiles(document),
        "facts": step_words.measured_facts(document),
        "quality_heading": run_words.quality_heading(document),
        "combined_fixes": fix_cards.combined_fixes(document),
        "fix_cards": [card for card in all_cards if card.number is not None],
        "above_cards": groups.above,
        "plan_cards": groups.plan,
        "alone_cards": groups.rest,
        "minor_cards": groups.minor,
        "info_cards": groups.noted,
        "across_ranks": fix_cards.ACROSS_RANKS,
        "fixes_heading": fix_cards.fixes_heading(document),
        "plan_heading": fix_cards.plan_heading(document),
        "unplanned": fix_cards.unplanned(document),
        "rank_documents": rank_documents,
        "rank_choices": span_view.rank_choices(document),
        "strips": [step_strip.draw_steps(one) for one in rank_documents],
        "run_chart": run_chart.draw_run(document),
        "run_memory": run_chart.draw_memory(document),
        "strip_captions": [step_strip.caption(one, every_step=every_step) for one in rank_documents],
        "timeline": timeline,
        "memory": memory,
        "memory_caption": table_captions.memory_caption(
            document, None if memory is None else memory.peak_us, memory is not None and memory.reserved is not None
        ),
        "memory_cards": [card for card in all_cards if card.finding.code.startswith(memory_parts.RULE_FAMILY)],
        "roofline": roofline.draw_roofline(document, GEMMS.most),
        "rank_drawing": rank_chart.draw_ranks(document),
        "run_ranks": run_ranks_chart.draw_run_ranks(document),
        "slow_ranks": rank_words.slow_ranks(document, "The table"),
        "rank_caption": rank_chart.caption(document),
        "checks_line": run_words.checks_line(document),
        "method": method_words.method(document),
        "command": run_words.command(document),
        "part_answers": part_answers.part_answers(document, all_cards, gpu_measured=idle_word is not None),
        "flame_caption": flame_view.caption(document),
        "flame_threads": flame_view.threads(document),
        "by_shape": by_shape,
        "copies_are_most": table_rows.copies_take_longest(document),
        "tables": work_tables(document),
        "tried": trial_words.trial_table(document.tried),
        "way": every_step and kept_one_by_one(document.tried),
        "module_caption": table_captions.module_caption(document),
        "fix_filters": table_rows.fix_filters(all_cards),
        "left_out_sections": not_recorded.left_out_sections(document),
        "evidence_links": evidence_links.EvidenceLinks(document),
        "viewer_command": document.timeline and viewer_command(document, document.timeline.step),
        "in_trace_folder": in_trace_folder(document),
        "timeline_caption": table_captions.timeline_caption(
            document, timeline is not None and timeline.band is not None
        ),
    }
    return {**view, "links": list(_links(document, view))}


def _links(document: Result, view: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Anchor and name of the sections that the page has, in their order. Names are the headings, or words of them."""
    tables = view["tables"]
    by_shape = [(name, tables[name]) for name in view["by_shape"]]
    sections = [
        ("time", "Time", view["has_trace"]),
        ("fixes", "Fixes", True),
        ("tried", "Tried", document.tried),
        ("steps", "Every step", view["has_trace"] and view["strips"][0]),
        ("timeline", "Timeline", view["has_trace"]),
        ("ranks", "Ranks", view["has_trace"] and tables["ranks"]),
        ("flame", "Flame", view["has_trace"] and document.flame),
        *((section.anchor, section.title, True) for section in view["companions"]),
        ("memory", "Memory", view["has_trace"] and (view["memory"] or document.memory.composition)),
        ("roofline", "Roofline", view["roofline"]),
        *((name, shown.table.title.split(" and ")[0], shown) for name, shown in by_shape if shown),
        ("kernels", "Kernels", tables["kernels"]),
        ("modules", "Modules", tables["modules"]),
        ("counters", "Counters", tables["counters"]),
        ("ops", "Operators", tables["ops"]),
        ("checks", "Checks", view["has_trace"]),
        ("how", "Method", view["has_trace"]),
    ]
    return ((anchor, name) for anchor, name, is_shown in sections if is_shown)


@lru_cache(maxsize=1)
def environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        bytecode_cache=TemplateCache(),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        as_size=quantities.size_text,
        size_like=quantities.size_like,
        breakable=table_rows.breakable,
        breakable_name=table_rows.breakable_name,
        counted=quantities.counted,
        estimate=quantities.estimate,
        by_reason=not_recorded.by_reason,
        first_sentence=safe_text.first_sentence,
        in_sentence=quantities.in_sentence,
        look=table_rows.look,
        pieces=names.pieces,
        ms=quantities.ms_of_us,
        number=quantities.count,
        percent=quantities.percent,
        seconds=quantities.seconds_of_us,
        short_path=names.short_path,
        where=names.where,
        with_whole_line_number=table_rows.with_whole_line_number,
    )
    environment.globals.update(
        CONFIDENCE_WORDS=fix_cards.CONFIDENCE_WORDS,
        HOW_SURE=fix_cards.HOW_SURE,
        IMPACT_WORDS=fix_cards.IMPACT_WORDS,
        PLAN_ORDER=fix_cards.PLAN_ORDER,
        FOLDED_ROWS=FOLDED_ROWS,
        PRINTED_ROWS=table_rows.PRINTED_ROWS,
        FEWEST_ROWS=table_rows.FEWEST_ROWS,
        CODE_TYPES=CODE_TYPES,
        EVIDENCE_ROWS=EVIDENCE.most,
        NOT_RECORDED=quantities.NOT_RECORDED,
        MOST_ROWS=rank_chart.MOST_ROWS,
        MOST_COLUMN_PIXELS=step_strip.MOST_COLUMN_PIXELS,
        LEAST_PART_US=part_answers.LEAST_PART_US,
        BAR_PIXELS=part_answers.BAR_PIXELS,
        beyond_measured=plan_numbers.beyond_measured,
        cards_of_part=card_lookup.cards_of_part,
        evidence_table=evidence_table,
        step_before=plan_numbers.step_before,
        plan_time=plan_numbers.plan_time,
        saved_us=plan_numbers.saved_us,
        row_numbers=plan_numbers.row_numbers,
        row_range=plan_numbers.row_range,
        step_after=plan_numbers.step_after,
        estimated=quantities.estimated,
        estimate_range=quantities.estimate_range,
        memory_look=memory_parts.memory_look,
        has_room=part_answers.has_room,
        part_style=part_styles.part_style,
        needs=fix_cards.needs,
        MINOR=fix_cards.MINOR,
        finding_name=fix_cards.name,
        only_on=fix_cards.only_on,
        title=fix_cards.title,
        place=fix_cards.place,
        recording=not_recorded,
        seen_on=fix_cards.seen_on,
        trial=trial_words,
        draw_losses=loss_chart.draw_losses,
        draw_snapshot=snapshot_chart.draw_snapshot,
        holder_colors=snapshot_chart.holder_colors,
    )
    return environment


def _embedded(document: bytes) -> Markup:
    """The document inside a JSON script: packed, because a long timeline alone would be larger than the page.

    JSON in a script must not hold `<`, `>` or `&`; the packed text and the fixed keys never do.
    """
    envelope = {"encoding": packing.ENCODING, "document": packing.pack(document)}
    return Markup(json.dumps(envelope))  # noqa: S704
