"""The summary of a result or of a comparison in a notebook, as one static piece of HTML.

It becomes part of somebody else's page, so it has no script, link or id, and every style rule begins with its own
class. If a viewer drops the styles, as GitHub does, a heading, sentences and tables remain.
"""

from __future__ import annotations

from markupsafe import Markup

from traceopt.reports.figures import palette
from traceopt.reports.html.page import environment
from traceopt.reports.html.page_scripts import asset_text
from traceopt.reports.words import rank_words, run_words, safe_text, step_words
from traceopt.reports.words.comparing import comparison_tables, comparison_words
from traceopt.reports.words.display import for_display
from traceopt.reports.words.fixes import fix_cards, headline
from traceopt.result.comparison import Comparison
from traceopt.result.document import Result

SCOPE = ".traceopt-summary"
FIXES_SHOWN = 5
KERNELS_SHOWN = FINDINGS_SHOWN = 5  # of a comparison
PARTS_SHOWN = 6  # by name; the smaller ones share one row

# How pages are marked: JupyterLab, VS Code, Colab. Without a mark, the browser's setting counts.
_LIGHT_PAGES = ("[data-jp-theme-light=true]", ".vscode-light", "[theme=light]")
_DARK_PAGES = ("[data-jp-theme-light=false]", ".vscode-dark", "[theme=dark]")


def render_notebook(result: Result) -> str:
    """The HTML of `Result._repr_html_`."""
    document = for_display(result)
    groups = fix_cards.groups(document)
    fixes = [*groups.above, *groups.plan, *groups.rest]
    largest = sorted(document.breakdown, key=lambda part: -part.us_per_step)[:PARTS_SHOWN]
    named = [part for part in document.breakdown if part in largest and part.us_per_step > 0]
    facts = [
        run_words.identity(document),
        rank_words.rank_phrase(document),
        run_words.device_phrase(document),
        step_words.steps_phrase(document),
    ]
    return (
        environment()
        .get_template("notebook.html.j2")
        .render(
            css=Markup(_style()),  # noqa: S704 (our own file)
            result=document,
            facts=[fact for fact in facts if fact],
            verdict=run_words.verdict(document),
            quality_heading=run_words.quality_heading(document),
            lead=headline.lead(document),
            words=step_words.sides(document),
            scope=step_words.scope(document),
            named=named,
            step_us=sum(part.us_per_step for part in document.breakdown),
            after=document.combined.breakdown_after if document.combined is not None else [],
            smaller=[part for part in document.breakdown if part not in named and part.us_per_step > 0],
            fixes=fixes[:FIXES_SHOWN],
            fixes_total=len(fixes),
            placed=any(fix_cards.place(card.finding) for card in fixes[:FIXES_SHOWN]),
            notes_total=len(groups.noted),
            checks_line=run_words.checks_line(document),
        )
    )


def render_comparison_notebook(comparison: Comparison) -> str:
    """The HTML of a comparison."""
    document = safe_text.cleaned(comparison)
    groups: tuple[comparison_words.Group, ...] = ("fixed", "new")
    changed = [finding for group in groups for finding in comparison_words.of_group(document, group)]
    return (
        environment()
        .get_template("notebook_comparison.html.j2")
        .render(
            css=Markup(_style()),  # noqa: S704 (our own file)
            comparison=document,
            sides=[comparison_words.side_name(side) for side in (document.base, document.head)],
            change_line=comparison_words.change_line(document),
            basis=comparison_words.basis(document),
            parts=comparison_tables.changed_parts(document, comparison_words.shown_parts(document)),
            kernels=comparison_tables.changed_kernels(document.kernels, most=KERNELS_SHOWN, units=True),
            findings=comparison_tables.compared_findings(document, changed[:FINDINGS_SHOWN]),
            whole_us=max(sum(getattr(part, side) for part in document.breakdown) for side in ("base_us", "head_us")),
            findings_line=comparison_words.findings_line(document),
        )
    )


def _style() -> str:
    """notebook.css with the report's colors and patterns."""
    light, dark = palette.declarations(dark=False), palette.declarations(dark=True)
    on_light, on_dark = (", ".join(f"{page} {SCOPE}" for page in pages) for pages in (_LIGHT_PAGES, _DARK_PAGES))
    return "\n".join(
        [
            f"{SCOPE}, {on_light} {{{light}}}",
            f"@media (prefers-color-scheme: dark) {{ {SCOPE} {{{dark}}} }}",
            f"{on_dark} {{{dark}}}",
            asset_text("notebook.css"),
            asset_text("style/patterns.css").replace(".p-", f"{SCOPE} i.p-"),
        ]
    )
