"""The HTML report: one file without a network request, complete without JavaScript, Plotly unpacked on demand.

A trace is untrusted input: every string is cleaned, the templates escape everything they print, and a
Content-Security-Policy lets only the scripts run whose hashes it lists.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import re
import shlex
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2
import orjson
from markupsafe import Markup

from traceopt.reports import drawing, figures, parts, recording, text, wording
from traceopt.result import Result

TEMPLATES = Path(__file__).parent / "templates"
TABLE_ROWS = 200  # rows of the kernel, operator and GEMM tables; the caption says how many there are
SHORT_TABLE_ROWS = 50  # rows of the collective and copy tables, and of the list of files
RANK_ROWS = 256
EVIDENCE_ROWS = 20
RESULT_ID = "traceopt-result"

GZIP_LEVEL = 6  # of plotly.js: 0.13 s for 1.47 MB; level 9 takes half as long again to save 3 kB
_GZIP_WINDOW = 31  # zlib's code for a gzip header, which then holds no time


def render_html(result: Result, *, static: bool = False) -> str:
    """The report as one HTML page. `static` leaves Plotly out: a tenth of the size, no zoom."""
    shown = text.cleaned(result)
    head_script, main_script = _template_text("head.js"), _template_text("main.js")
    scripts = [head_script, main_script]
    packed: dict[str, str] = {}
    step_figures = {} if static else _figures(shown)
    if step_figures:
        plotly = plotly_source()
        scripts.append(plotly.decode("utf-8"))
        packed = {"plotly": _packed_plotly(plotly), "figures": _packed(orjson.dumps(step_figures))}
    return _environment().get_template("report.html.j2").render(
        csp=_content_security_policy(scripts),
        css=Markup(_template_text("report.css")),
        head_script=Markup(head_script),
        main_script=Markup(main_script),
        result_id=RESULT_ID,
        result_script=_embedded(orjson.dumps(result)),
        packed=packed,
        **_view(shown),
    )


def embedded_result(page: str) -> bytes:
    """The result document (JSON) out of a rendered report. Raises ValueError when the page holds none."""
    found = re.search(rf'<script type="application/json" id="{RESULT_ID}">(.*?)</script>', page, re.DOTALL)
    if found is None:
        raise ValueError("this file is not a traceopt report: it embeds no result document")
    try:
        envelope = json.loads(found[1])
        return zlib.decompress(base64.b64decode(envelope["document"]), _GZIP_WINDOW)
    except (ValueError, KeyError, TypeError, zlib.error) as error:
        raise ValueError(f"the result document in this report is damaged: {error}") from error


def plotly_source() -> bytes:
    """plotly.min.js as the installed plotly package ships it, found without importing that package."""
    spec = importlib.util.find_spec("plotly")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("plotly is not installed; render the report with --static or install plotly")
    return (Path(spec.submodule_search_locations[0]) / "package_data" / "plotly.min.js").read_bytes()


def _view(shown: Result) -> dict[str, Any]:
    """What the templates print: the cleaned document and the sentences and drawings made from it."""
    words = wording.sides(shown)
    idle_word = words.idle if shown.gpu.busy_share is not None and not wording.on_cpu(shown) else None
    all_cards = wording.cards(shown.findings)
    return {
        "result": shown,
        "words": words,
        "on_cpu": wording.on_cpu(shown),
        "identity": wording.identity(shown),
        "rank": wording.rank_phrase(shown),
        "scope": wording.scope(shown),
        "environment": wording.environment(shown),
        "lead": wording.lead(shown),
        "tiles": wording.tiles(shown),
        "facts": wording.measured_facts(shown),
        "quality_heading": wording.quality_heading(shown),
        "combined_fixes": wording.combined_fixes(shown),
        "fix_cards": [card for card in all_cards if card.number is not None],
        "info_cards": [card for card in all_cards if card.number is None],
        "timeline": None if shown.timeline is None else drawing.draw_timeline(shown.timeline, idle_word),
        "memory": drawing.draw_memory(shown.memory, shown.timeline),
        "checks_line": wording.checks_line(shown),
        "command": "traceopt analyze " + " ".join(shlex.quote(path) for path in shown.run.paths),
    }


def _figures(shown: Result) -> dict[str, figures.Figure]:
    drawn = {}
    idle_word = None if wording.on_cpu(shown) or shown.gpu.busy_share is None else wording.sides(shown).idle
    if shown.timeline is not None and shown.timeline.duration_us > 0:
        drawn["timeline"] = figures.timeline_figure(shown.timeline, idle_word)
    if shown.memory.curve:
        drawn["memory"] = figures.memory_figure(shown.memory, shown.timeline)
    return drawn


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        as_bytes=text.bytes_text,
        counted=text.counted,
        estimate=text.estimate,
        measured=text.measured,
        mib_number=text.mib_number,
        ms=text.ms,
        ms_number=text.ms_number,
        number=text.count,
        percent=text.percent,
        short_kernel_name=text.short_kernel_name,
        where=text.where,
        yes_no=text.yes_no,
    )
    environment.globals.update(
        IMPACT_WORDS=wording.IMPACT_WORDS,
        SHORT_TABLE_ROWS=SHORT_TABLE_ROWS,
        EVIDENCE_ROWS=EVIDENCE_ROWS,
        NOT_RECORDED=text.NOT_RECORDED,
        RANK_ROWS=RANK_ROWS,
        TABLE_ROWS=TABLE_ROWS,
        ZOOM_SPANS=figures.ZOOM_SPANS,
        BINS=drawing.BINS,
        as_precise_as=text.as_precise_as,
        estimate_number=text.estimate_number,
        estimate_range=text.estimate_range,
        part_style=parts.part_style,
        place=wording.place,
        recording=recording,
    )
    return environment


@lru_cache(maxsize=8)
def _template_text(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8").strip()


def _content_security_policy(scripts: list[str]) -> str:
    hashes = " ".join(f"'sha256-{_sha256(script)}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _packed(data: bytes, level: int = 9) -> str:
    """gzip + base64, the same text for the same data."""
    packer = zlib.compressobj(level, zlib.DEFLATED, _GZIP_WINDOW)
    return base64.b64encode(packer.compress(data) + packer.flush()).decode()


@lru_cache(maxsize=1)
def _packed_plotly(source: bytes) -> str:
    return _packed(source, GZIP_LEVEL)


def _embedded(document: bytes) -> Markup:
    """The document inside a JSON script: packed, because a long timeline alone would be larger than the page.

    JSON in a script must not hold `<`, `>` or `&`; base64 and the fixed keys never do.
    """
    envelope = {"encoding": "gzip+base64", "document": _packed(document)}
    return Markup(json.dumps(envelope))
