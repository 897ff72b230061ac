"""`traceopt bisect`: finds the commit, or the version of a package, that changed the step time."""

from __future__ import annotations

from pathlib import Path

import click

from traceopt.cli.shared.help import ExplainedCommand
from traceopt.cli.shared.options import (
    budget_option,
    color_option,
    command_argument,
    config_option,
    debug_option,
    json_option,
    module_option,
    quiet_option,
    timing_options,
)
from traceopt.cli.shared.results import analysis_with, check_all_writable, configuration, terminal, write_output
from traceopt.output import emit

EXIT_NOT_FOUND = 1


@click.command(cls=ExplainedCommand, context_settings={"allow_interspersed_args": False})
@click.argument("good", metavar="GOOD")
@click.argument("bad", metavar="BAD")
@command_argument
@module_option
@click.option("--package", metavar="NAME", help="Search versions of this package: GOOD and BAD are two of them.")
@click.option(
    "--python",
    "pythons",
    multiple=True,
    metavar="PATH",
    help="With --package: an environment with a version, or its Python, the oldest first. Repeat for each.",
)
@budget_option(30, "runs")
@timing_options
@json_option("bisection document")
@config_option
@color_option
@quiet_option
@debug_option
@click.pass_context
def bisect(
    context: click.Context,
    /,
    good: str,
    bad: str,
    command: tuple[str, ...],
    module: bool,
    package: str | None,
    pythons: tuple[str, ...],
    budget: float,
    time_limit: float,
    steps: int | None,
    logdir: Path | None,
    step_on: str | None,
    json_path: str | None,
    config_path: Path | None,
    color: bool | None,
    quiet: bool,
) -> None:
    """Find the commit, or the version of a package, that changed the step time.

    GOOD is an ancestor of BAD. Commits between them are timed against GOOD, in pairs of runs that take turns, without
    a profiler and in copies of the source. Then the commit that is found and the one before it are recorded and
    compared. Exit code 1: no commit was found.

    With --package, the source stays as it is, and the script runs in environments that have versions of the package.
    """
    from traceopt import run_script
    from traceopt.reports.text.bisection_terminal import render_bisection
    from traceopt.try_script import bisection as searching
    from traceopt.try_script.two_sides import Timing
    from traceopt.try_script.versions import versions_between
    from traceopt.trying.workspace import Command

    if (package is None) != (not pythons):
        raise click.UsageError("--package and --python belong together")
    versions = versions_between(package, pythons, good, bad) if package is not None else None
    config = configuration(config_path)
    check_all_writable(json_path if json_path != "-" else None)
    searched = Command(command, module, Path.cwd(), step_on)
    bisection, exit_code = searching.bisect(
        searched,
        good,
        bad,
        versions,
        run_script.trial_settings(searched, logdir),
        Timing(steps, 60 * budget, time_limit),
        analysis_with(config, debug=context.obj["debug"]),
        quiet=quiet,
    )
    if bisection is None:
        context.exit(exit_code)
    if json_path is not None:
        emit(bisection.to_json()) if json_path == "-" else write_output(json_path, bisection.to_json(), [])
    if json_path != "-":
        emit(render_bisection(bisection, **terminal(color)))
    context.exit(exit_code or (EXIT_NOT_FOUND if bisection.first is None else 0))
