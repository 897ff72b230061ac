"""The HTML report: one file, no network request, complete without JavaScript, Plotly unpacked on demand.

A trace is untrusted input: every string is cleaned, the templates escape everything they print, and a
Content-Security-Policy lets only the scripts run whose hashes it lists.
"""

from __future__ import annotations

import base64
import importlib.util
import json
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import jinja2
import orjson
from markupsafe import Markup

from traceopt.reports.html import plotly_figures, rank_chart, timeline_svg
from traceopt.reports.html.compiled_assets import CompiledTemplates, kept
from traceopt.reports.words import headline, memory_parts, not_recorded, part_styles, quantities, sentences
from traceopt.reports.words.shown_document import shown as shown_form
from traceopt.result import packing
from traceopt.result.document import Result
from traceopt.result.packing import RESULT_ID
from traceopt.result.serialization import to_json

TEMPLATES = Path(__file__).parent / "templates"
# Rows shown of each table; its caption says how many there are. The document in the page holds them all.
TABLE_ROWS = 200  # kernels
GEMM_ROWS = 100
FULL_NAMES = 30  # kernels whose whole name can be opened; the rest show the short one
OPERATOR_ROWS = 100
SHORT_TABLE_ROWS = 50  # collectives and copies
RANK_ROWS = 64
FOLDED_ROWS = 15  # rows open to the eye, and on paper; a click shows the rest
FILE_ROWS = 16
EVIDENCE_ROWS = 20

PLOTLY_GZIP_LEVEL = 6  # 0.13 s for 1.47 MB; level 9 takes half as long again to save 3 kB


def render_html(result: Result, *, static: bool = False) -> str:
    """The report as one HTML page. `static` leaves Plotly out: a tenth of the size, no zoom."""
    shown = shown_form(result)
    head_script, main_script = template_text("head.js"), template_text("main.js")
    scripts = [head_script.encode(), main_script.encode()]
    packed: dict[str, str] = {}
    step_figures = {} if static else _figures(shown)
    if step_figures:
        plotly = plotly_source()
        scripts.append(plotly)
        packed = {"plotly": _packed_plotly(plotly), "figures": packing.pack(orjson.dumps(step_figures))}
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            csp=content_security_policy(scripts),
            css=Markup(template_text("report.css")),  # noqa: S704 (our own file)
            head_script=Markup(head_script),  # noqa: S704
            main_script=Markup(main_script),  # noqa: S704
            result_id=RESULT_ID,
            result_script=_embedded(to_json(result)),
            packed=packed,
            **_view(shown),
        )
    )


def plotly_source() -> bytes:
    """plotly.min.js as the installed plotly package ships it, found without importing that package."""
    spec = importlib.util.find_spec("plotly")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("plotly is not installed; render the report with --static or install plotly")
    return (Path(spec.submodule_search_locations[0]) / "package_data" / "plotly.min.js").read_bytes()


def _view(shown: Result) -> dict[str, Any]:
    """What the templates print: the cleaned document and the sentences and drawings made from it."""
    words = sentences.sides(shown)
    idle_word = words.idle if shown.gpu.busy_share is not None and not sentences.on_cpu(shown) else None
    timeline = None if shown.timeline is None else timeline_svg.draw_timeline(shown.timeline, idle_word)
    all_cards = sentences.cards(shown.findings)
    return {
        "result": shown,
        "words": words,
        "on_cpu": sentences.on_cpu(shown),
        "gpu_measured": idle_word is not None,
        "identity": sentences.identity(shown),
        "rank": sentences.rank_phrase(shown),
        "scope": sentences.scope(shown),
        "typical": sentences.typical_step(shown),
        "partly_hidden": sentences.partly_hidden(shown),
        "environment": sentences.environment(shown),
        "verdict": sentences.verdict(shown),
        "headline": quantities.sentences(sentences.verdict(shown)),
        "lead": headline.lead(shown),
        "first_card": next((card for card in all_cards if card.number == 1), None),
        "tiles": headline.tiles(shown),
        "facts": sentences.measured_facts(shown),
        "quality_heading": sentences.quality_heading(shown),
        "combined_fixes": sentences.combined_fixes(shown),
        "fix_cards": [card for card in all_cards if card.number is not None],
        "info_cards": [card for card in all_cards if card.number is None],
        "timeline": timeline,
        "memory": timeline_svg.draw_memory(shown.memory, shown.timeline),
        "memory_cards": [card for card in all_cards if card.finding.code.startswith(memory_parts.RULE_FAMILY)],
        "rank_drawing": rank_chart.draw_ranks(shown),
        "rank_caption": rank_chart.caption(shown),
        "checks_line": sentences.checks_line(shown),
        "command": sentences.command(shown),
        "gemm_caption": sentences.gemm_caption(shown),
        "timeline_caption": sentences.timeline_caption(shown, timeline is not None and timeline.band is not None),
    }


def _figures(shown: Result) -> dict[str, plotly_figures.Figure]:
    drawn = {}
    idle_word = None if sentences.on_cpu(shown) or shown.gpu.busy_share is None else sentences.sides(shown).idle
    if shown.timeline is not None and shown.timeline.duration_us > 0:
        drawn["timeline"] = plotly_figures.timeline_figure(shown.timeline, idle_word)
    if shown.memory.curve:
        drawn["memory"] = plotly_figures.memory_figure(shown.memory, shown.timeline)
    if rank_chart.draw_ranks(shown) is not None:
        drawn["ranks"] = plotly_figures.ranks_figure(shown.ranks)
    return drawn


@lru_cache(maxsize=1)
def environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        bytecode_cache=CompiledTemplates(),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        as_bytes=quantities.bytes_text,
        counted=quantities.counted,
        estimate=quantities.estimate,
        first_sentence=quantities.first_sentence,
        is_name=quantities.is_name,
        measured=quantities.measured,
        mib_number=quantities.mib_number,
        ms=quantities.ms,
        ms_number=quantities.ms_number,
        number=quantities.count,
        percent=quantities.percent,
        short_kernel_name=quantities.short_kernel_name,
        short_path=quantities.short_path,
        signed_ms_number=quantities.signed_ms_number,
        where=quantities.where,
        yes_no=quantities.yes_no,
    )
    environment.globals.update(
        IMPACT_WORDS=sentences.IMPACT_WORDS,
        TABLE_ROWS=TABLE_ROWS,
        GEMM_ROWS=GEMM_ROWS,
        FULL_NAMES=FULL_NAMES,
        OPERATOR_ROWS=OPERATOR_ROWS,
        SHORT_TABLE_ROWS=SHORT_TABLE_ROWS,
        RANK_ROWS=RANK_ROWS,
        FOLDED_ROWS=FOLDED_ROWS,
        FILE_ROWS=FILE_ROWS,
        EVIDENCE_ROWS=EVIDENCE_ROWS,
        NOT_RECORDED=quantities.NOT_RECORDED,
        ZOOM_SPANS=plotly_figures.ZOOM_SPANS,
        BINS=timeline_svg.BINS,
        MOST_ROWS=rank_chart.MOST_ROWS,
        as_precise_as=quantities.as_precise_as,
        estimate_number=quantities.estimate_number,
        estimate_range=quantities.estimate_range,
        memory_look=memory_parts.memory_look,
        part_style=part_styles.part_style,
        misaligned=sentences.misaligned,
        only_on=sentences.only_on,
        ranks_phrase=sentences.ranks_phrase,
        place=sentences.place,
        recording=not_recorded,
    )
    return environment


@lru_cache(maxsize=8)
def template_text(name: str) -> str:
    """A style sheet or script without its indentation (3 kB of each page)."""
    lines = (TEMPLATES / name).read_text(encoding="utf-8").splitlines()
    return "\n".join(line.strip() for line in lines if line.strip())


def content_security_policy(scripts: list[bytes]) -> str:
    hashes = " ".join(f"'sha256-{base64.b64encode(sha256(script).digest()).decode()}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


@lru_cache(maxsize=1)
def _packed_plotly(source: bytes) -> str:
    key = f"{packing.ENCODING} {PLOTLY_GZIP_LEVEL} {sha256(source).hexdigest()}\n".encode()
    return kept("plotly", key, lambda: packing.pack(source, PLOTLY_GZIP_LEVEL).encode()).decode()


def _embedded(document: bytes) -> Markup:
    """The document inside a JSON script: packed, because a long timeline alone would be larger than the page.

    JSON in a script must not hold `<`, `>` or `&`; the packed text and the fixed keys never do.
    """
    envelope = {"encoding": packing.ENCODING, "document": packing.pack(document)}
    return Markup(json.dumps(envelope))  # noqa: S704
