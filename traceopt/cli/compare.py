"""`traceopt compare`: compares two sides of a change, and checks the gates that it must pass."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from traceopt.cli.shared.gating import EXIT_GATE, failed, gate_options, parsed_gates
from traceopt.cli.shared.help import GroupedCommand
from traceopt.cli.shared.options import format_option, json_option, markdown_option, reading_options
from traceopt.cli.shared.results import check_all_writable, configuration, terminal, write_output
from traceopt.output import StderrProgress, emit


@click.command(cls=GroupedCommand)
@click.argument("base", metavar="BASE")
@click.argument("head", metavar="HEAD")
@click.option("--base", "more_base", multiple=True, metavar="PATH", help="Add a run to BASE.")
@click.option("--head", "more_head", multiple=True, metavar="PATH", help="Add a run to HEAD.")
@click.option(
    "--in-turn", is_flag=True, help="The runs alternated (BASE, HEAD, BASE, HEAD, ...): compare them in pairs."
)
@click.option("--html", "html_path", metavar="PATH", help="Also write the comparison as HTML.")
@markdown_option
@json_option("comparison document")
@format_option("text", "markdown", "json")
@gate_options
@reading_options
@click.pass_context
def compare(
    context: click.Context,
    /,
    base: str,
    head: str,
    more_base: tuple[str, ...],
    more_head: tuple[str, ...],
    in_turn: bool,
    html_path: str | None,
    markdown_path: str | None,
    json_path: str | None,
    format_: str,
    fail_on: tuple[str, ...],
    warn_on: tuple[str, ...],
    exit_zero: bool,
    config_path: Path | None,
    color: bool | None,
    quiet: bool,
    **settings: Any,
) -> None:
    """Find out if HEAD is slower than BASE, and why.

    \b
    traceopt compare logs/main logs/branch
    traceopt compare 'logs/main-*' 'logs/branch-*'

    Each side is a trace, a folder of one run, a result document or a report. A quoted glob is one run per match:
    only several runs per side show how much runs of the same code differ.
    """
    config = configuration(config_path, **settings)
    if json_path == "-":
        json_path, format_ = None, "json"
    check_all_writable(html_path, markdown_path, json_path)
    gates = parsed_gates(fail_on, warn_on, config)

    from traceopt.comparison.compare import compare_runs
    from traceopt.run_comparison import runs_of

    with StderrProgress(enabled=sys.stderr.isatty() and not quiet) as progress:
        sides = [
            runs_of(
                paths,
                rules_dir=config.rules_dir,
                thresholds=config.rules,
                devices=config.devices,
                jobs=config.jobs,
                scheduler=config.scheduler,
                cache=config.cache,
                debug=context.obj["debug"],
                progress=progress,
            )
            for paths in ((base, *more_base), (head, *more_head))
        ]
    comparison = compare_runs(sides[0], sides[1], gates, in_turn=in_turn)
    inputs = [*(base, head, *more_base, *more_head), *(path for side in sides for run in side for path in run.paths)]
    if html_path is not None:
        from traceopt.reports.html.comparison_page import render_comparison_html

        write_output(html_path, render_comparison_html(comparison).encode("utf-8", "backslashreplace"), inputs)
    if markdown_path is not None or format_ == "markdown":
        from traceopt.reports.text.comparison_markdown import render_comparison_markdown

        markdown = render_comparison_markdown(comparison)
    if markdown_path is not None:
        write_output(markdown_path, markdown.encode("utf-8", "backslashreplace"), inputs)
    if json_path is not None:
        write_output(json_path, comparison.to_json(), inputs)
    from traceopt.reports.text.comparison_terminal import render_comparison, render_gates

    style = terminal(color)
    if format_ == "text":
        emit(render_comparison(comparison, **style))
    else:
        emit(comparison.to_json() if format_ == "json" else markdown)
        click.echo(render_gates(comparison.gates, **style), nl=False, err=True)
    if failed(comparison.gates) and not exit_zero:
        context.exit(EXIT_GATE)
