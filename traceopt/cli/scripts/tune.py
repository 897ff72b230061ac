"""`traceopt tune` makes a script faster in rounds, and keeps only what it has measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceopt.cli.scripts.try_ import keep_changes, own_changes, print_outcome
from traceopt.cli.shared.help import ExplainedCommand
from traceopt.cli.shared.options import (
    FILE,
    config_option,
    debug_option,
    json_option,
    quiet_option,
    trial_options,
    workload_options,
)
from traceopt.cli.shared.results import analyzed, check_all_writable, configuration, write_html, write_output
from traceopt.output import emit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from traceopt.result.document import Result


@click.command(cls=ExplainedCommand, context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, metavar="SCRIPT [ARGS]...")
@click.option("-m", "module", is_flag=True, help="SCRIPT is a module, as in python -m.")
@click.option(
    "--allow",
    type=click.Choice(["numerics", "batch-size"]),
    multiple=True,
    help="Also try changes of numerics, such as mixed precision, or of the batch size.",
)
@click.option("--patch", "patches", type=FILE, multiple=True, metavar="FILE", help="Also try this diff.")
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="Also try an environment variable.")
@click.option("--args", "arguments", multiple=True, metavar="ARGS", help='Also try more arguments: "--workers 8".')
@click.option(
    "--budget",
    type=click.FloatRange(0, min_open=True),
    default=30,
    show_default=True,
    metavar="MINUTES",
    help="Begin no more runs after this time.",
)
@click.option(
    "--run-steps",
    type=click.IntRange(1),
    metavar="N",
    help="Steps of a whole run: they must win back what compiling takes.  [default: those recorded, if it ended]",
)
@trial_options
@click.option(
    "--name", metavar="NAME", help="Name of this tuning's folder in the log folder.  [default: script and time]"
)
@click.option(
    "--preset",
    type=click.Choice(["standard", "quick", "long", "timing"]),
    help="What to record in each round, as in traceopt run.  [default: standard]",
)
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
    from traceopt.try_script import one_plan, tuning
    from traceopt.trying import outcome as trying_outcome
    from traceopt.trying.workspace import Command

    tuned = Command(command, module, Path.cwd(), step_on)
    own = own_changes(patches, (), variables, arguments)
    wanted = tuning.Wanted(own, allow, steps, 60 * budget, time_limit, run_steps)
    config = configuration(config_path, **workload)
    check_all_writable(html, json_path if json_path != "-" else None, patch_out)
    debug = context.obj["debug"]
    if apply_:
        trying_outcome.check_clean(tuned)
    settings = run_script.settings(
        command, module, logdir, name, step_on=step_on, stop_after=True, time_limit=120.0, preset=preset
    )

    def analyze(paths: Sequence[str], source: Sequence[Path]) -> Result:
        return analyzed(paths, config, source, debug=debug, quiet=True)

    outcome = tuning.tune_script(tuned, settings, wanted, analyze, quiet=quiet)
    html_path = None
    if outcome.result is not None and not no_html and config.html is not False:
        html_path = html or str(settings.folder / "report.html")
        write_html(html_path, outcome.result, outcome.result.run.paths)
    if json_path is not None:
        data = one_plan.document_of(outcome).to_json()
        emit(data) if json_path == "-" else write_output(json_path, data, [])
    if json_path != "-":
        print_outcome(outcome, html_path)
    keep_changes(outcome, tuned, apply_ and not outcome.signal_exit_code, patch_out, quiet=quiet)
    context.exit(outcome.signal_exit_code)
