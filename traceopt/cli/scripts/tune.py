"""`traceopt tune` makes a script faster in rounds, and keeps only what it has measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from traceopt.cli.scripts.try_ import keep_changes, own_changes, print_outcome, write_report
from traceopt.cli.shared.help import ExplainedCommand
from traceopt.cli.shared.options import (
    FILE,
    budget_option,
    command_argument,
    config_option,
    debug_option,
    json_option,
    module_option,
    name_option,
    preset_option,
    quiet_option,
    trial_options,
    workload_options,
)
from traceopt.cli.shared.results import analysis_with, check_all_writable, configuration


@click.command(cls=ExplainedCommand, context_settings={"allow_interspersed_args": False})
@command_argument
@module_option
@click.option(
    "--allow",
    type=click.Choice(["numerics", "batch-size"]),
    multiple=True,
    help="Also try changes of numerics, such as mixed precision, or of the batch size.",
)
@click.option("--patch", "patches", type=FILE, multiple=True, metavar="FILE", help="Also try this diff.")
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="Also try an environment variable.")
@click.option("--args", "arguments", multiple=True, metavar="ARGS", help='Also try more arguments: "--workers 8".')
@budget_option(30, "runs")
@click.option(
    "--run-steps",
    type=click.IntRange(1),
    metavar="N",
    help="Steps of a whole run: they must win back what compiling takes.  [default: those recorded, if it ended]",
)
@trial_options
@name_option("tuning")
@preset_option("What to record in each round, as in traceopt run.")
@json_option("result document")
@workload_options
@config_option
@quiet_option
@debug_option
@click.pass_context
def tune(
    context: click.Context,
    /,
    command: tuple[str, ...],
    module: bool,
    allow: tuple[str, ...],
    patches: tuple[Path, ...],
    variables: tuple[str, ...],
    arguments: tuple[str, ...],
    budget: float,
    run_steps: int | None,
    time_limit: float,
    steps: int | None,
    apply_: bool,
    patch_out: str | None,
    logdir: Path | None,
    name: str | None,
    preset: str | None,
    step_on: str | None,
    json_path: str | None,
    html: str | None,
    no_html: bool,
    config_path: Path | None,
    quiet: bool,
    **workload: Any,
) -> None:
    """Make a script faster, round by round, and keep only what is proven.

    A round records the script, tries the fixes of the plan as traceopt try does, searches values of settings, and keeps
    what is faster and trains the same. The next round records the script with all that was kept. It ends when a round
    keeps nothing or the budget is spent, and then measures the original against the result. Ctrl-C ends it earlier,
    with what was proven. Your source stays as it is without --apply.
    """
    from traceopt import run_script
    from traceopt.try_script import tuning
    from traceopt.trying import outcome as trying_outcome
    from traceopt.trying.workspace import Command

    tuned = Command(command, module, Path.cwd(), step_on)
    own = own_changes(patches, (), variables, arguments)
    wanted = tuning.Wanted(own, allow, steps, 60 * budget, time_limit, run_steps)
    config = configuration(config_path, **workload)
    check_all_writable(html, json_path if json_path != "-" else None, patch_out)
    if apply_:
        trying_outcome.check_clean(tuned)
    settings = run_script.trial_settings(tuned, logdir, name, preset)
    outcome = tuning.tune_script(
        tuned, settings, wanted, analysis_with(config, debug=context.obj["debug"]), quiet=quiet
    )
    html_path = None
    if outcome.result is not None:
        html_path = write_report(outcome.result, config, html or str(settings.folder / "report.html"), no_html)
    print_outcome(outcome, html_path, json_path)
    keep_changes(outcome, tuned, apply_ and not outcome.signal_exit_code, patch_out, quiet=quiet)
    context.exit(outcome.signal_exit_code)
