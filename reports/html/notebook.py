"""The summary that a notebook shows of a result: verdict, step bar, top fixes, in one static piece of HTML.

It stands in somebody else's page: no script, no link, no id, and every style rule begins with its own class. Where a
viewer drops the styles (GitHub does), what is left is a heading, sentences and tables.
"""

from __future__ import annotations

import re

from markupsafe import Markup

from traceopt.reports.html.page import environment, template_text
from traceopt.reports.words import headline, sentences
from traceopt.reports.words.shown_document import shown as shown_form
from traceopt.result.document import Result

SCOPE = ".traceopt-summary"
FIXES_SHOWN = 5
PARTS_SHOWN = 6  # by name; the smaller ones are one row

# How a page says that it is dark: JupyterLab, VS Code, Colab.
_DARK_PAGES = ("[data-jp-theme-light=false]", ".vscode-dark", "[theme=dark]")
_LIGHT_TOKENS = re.compile(r":root \{(.*?)\}", re.DOTALL)
_DARK_TOKENS = re.compile(r":root\[data-theme=dark\] \{(.*?)\}", re.DOTALL)


def render_notebook(result: Result) -> str:
    """What `Result._repr_html_` returns."""
    shown = shown_form(result)
    numbered = [card for card in sentences.cards(shown.findings) if card.number is not None]
    largest = sorted(shown.breakdown, key=lambda part: -part.us_per_step)[:PARTS_SHOWN]
    named = [part for part in shown.breakdown if part in largest and part.us_per_step > 0]
    facts = [
        sentences.identity(shown),
        sentences.rank_phrase(shown),
        sentences.device_phrase(shown),
        sentences.steps_phrase(shown),
    ]
    return (
        environment()
        .get_template("notebook.html.j2")
        .render(
            css=Markup(_style()),  # noqa: S704 (our own file)
            result=shown,
            facts=[fact for fact in facts if fact],
            verdict=sentences.verdict(shown),
            quality_heading=sentences.quality_heading(shown),
            lead=headline.lead(shown),
            words=sentences.sides(shown),
            scope=sentences.scope(shown),
            named=named,
            smaller=[part for part in shown.breakdown if part not in named and part.us_per_step > 0],
            fixes=numbered[:FIXES_SHOWN],
            fixes_total=len(numbered),
            notes_total=len(shown.findings) - len(numbered),
            checks_line=sentences.checks_line(shown),
        )
    )


def _style() -> str:
    """notebook.css with the report's colours."""
    report = template_text("report.css")
    [light], [dark] = _LIGHT_TOKENS.findall(report), _DARK_TOKENS.findall(report)
    on_dark = ", ".join(f"{page} {SCOPE}" for page in _DARK_PAGES)
    return f"{SCOPE} {{{light}}}\n{on_dark} {{{dark}}}\n{template_text('notebook.css')}"
