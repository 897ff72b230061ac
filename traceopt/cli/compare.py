"""`traceopt compare`: compares two sides of a change, and checks the gates that it must pass."""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceopt.cli.shared.gating import EXIT_GATE, failed, gate_options, parsed_gates
from traceopt.cli.shared.help import ExplainedCommand
from traceopt.cli.shared.options import (
    budget_option,
    format_option,
    json_option,
    markdown_option,
    module_option,
    reading_options,
    timing_options,
)
from traceopt.cli.shared.results import analysis_with, check_all_writable, configuration, terminal, write_output
from traceopt.output import StderrProgress, emit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from traceopt.comparison.gates import Gate
    from traceopt.comparison.runs import RunOfSide
    from traceopt.config import Config
    from traceopt.result.comparison import Comparison
    from traceopt.trying.workspace import Command


@click.command(cls=ExplainedCommand)
@click.argument("sides", nargs=-1, required=True, metavar="BASE HEAD")
@click.option("--base", "more_base", multiple=True, metavar="PATH", help="Add a run to BASE.")
@click.option("--head", "more_head", multiple=True, metavar="PATH", help="Add a run to HEAD.")
@click.option(
    "--in-turn", is_flag=True, help="The runs alternated (BASE, HEAD, BASE, HEAD, ...): compare them in pairs."
)
@click.option("--against", metavar="REV", help="Run SCRIPT [ARGS]... as it is in this commit, and as it is now.")
@module_option
@budget_option(10, "runs")
@timing_options
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
    sides: tuple[str, ...],
    more_base: tuple[str, ...],
    more_head: tuple[str, ...],
    in_turn: bool,
    against: str | None,
    module: bool,
    budget: float,
    time_limit: float,
    steps: int | None,
    logdir: Path | None,
    step_on: str | None,
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

    Each side is a trace, a folder of one run, a result document or a report. A quoted glob is one run per match:
    only several runs per side show how much runs of the same code differ.

    With --against, traceopt runs the script itself, in copies of the source: it records BASE, the commit, and HEAD, the
    source as it is now, and times both in turn until the answer is certain or the budget is spent.
    """
    config = configuration(config_path, **settings)
    if json_path == "-":
        json_path, format_ = None, "json"
    check_all_writable(html_path, markdown_path, json_path)
    gates, debug = parsed_gates(fail_on, warn_on, config), context.obj["debug"]
    exit_code, inputs = 0, list[str]()
    if against is not None:
        if more_base or more_head or in_turn:
            raise click.UsageError("--against runs both sides itself: leave out --base, --head and --in-turn")
        from traceopt.trying.workspace import Command

        comparison, exit_code = _of_script(
            Command(sides, module, Path.cwd(), step_on), against, logdir, config, gates,
            steps=steps, budget_s=60 * budget, time_limit_s=time_limit, debug=debug, quiet=quiet,
        )  # fmt: skip
    elif len(sides) == 2:
        given = [(sides[0], *more_base), (sides[1], *more_head)]
        from traceopt.comparison.compare import compare_runs

        runs = _read(given, config, debug=debug, quiet=quiet)
        comparison = compare_runs(runs[0], runs[1], gates, in_turn=in_turn)
        inputs = [*chain(*given), *(path for side in runs for run in side for path in run.paths)]
    else:
        raise click.UsageError("expected BASE and HEAD; to compare with a commit: --against REV -- SCRIPT [ARGS]...")
    if comparison is None:
        click.echo("traceopt: interrupted before both sides were timed twice", err=True)
    else:
        _write(comparison, inputs, html_path, markdown_path, json_path, format_, color)
        exit_code = exit_code or (EXIT_GATE if failed(comparison.gates) and not exit_zero else 0)
    context.exit(exit_code)


def _read(given: Sequence[Sequence[str]], config: Config, *, debug: bool, quiet: bool) -> list[list[RunOfSide]]:
    """The runs of both sides."""
    from traceopt.run_comparison import runs_of

    with StderrProgress(enabled=sys.stderr.isatty() and not quiet) as progress:
        return [
            runs_of(
                paths,
                rules_dir=config.rules_dir,
                thresholds=config.rules,
                devices=config.devices,
                jobs=config.jobs,
                scheduler=config.scheduler,
                cache=config.cache,
                debug=debug,
                progress=progress,
            )
            for paths in given
        ]


def _of_script(
    command: Command,
    revision: str,
    logdir: Path | None,
    config: Config,
    gates: Sequence[Gate],
    *,
    steps: int | None,
    budget_s: float,
    time_limit_s: float,
    debug: bool,
    quiet: bool,
) -> tuple[Comparison | None, int]:
    """The comparison of a script with the same script of another commit, and the exit code of a signal."""
    from traceopt import run_script
    from traceopt.try_script.against import compare_with
    from traceopt.try_script.two_sides import Timing

    settings = run_script.trial_settings(command, logdir)
    timing = Timing(steps, budget_s, time_limit_s)
    return compare_with(command, revision, settings, timing, gates, analysis_with(config, debug=debug), quiet=quiet)


def _write(
    comparison: Comparison,
    inputs: Sequence[str],
    html_path: str | None,
    markdown_path: str | None,
    json_path: str | None,
    format_: str,
    color: bool | None,
) -> None:
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
