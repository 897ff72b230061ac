"""`traceopt try` makes fixes in a copy of the source, runs and measures them; `traceopt accuracy` sums it up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceopt.cli.shared.gating import Gating, baseline_options
from traceopt.cli.shared.help import ExplainedCommand
from traceopt.cli.shared.options import (
    FILE,
    budget_option,
    command_argument,
    config_option,
    debug_option,
    json_option,
    lone_json_option,
    module_option,
    name_option,
    preset_option,
    quiet_option,
    split_codes,
    trial_options,
    workload_options,
)
from traceopt.cli.shared.pull_request import PullRequest, pull_request_options
from traceopt.cli.shared.results import (
    analysis_with,
    check_all_writable,
    configuration,
    emit_with_json,
    rendered,
    terminal,
    write_html,
    write_output,
)
from traceopt.errors import visible
from traceopt.output import emit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from traceopt.config import Config
    from traceopt.result.document import Result
    from traceopt.try_script.one_plan import Outcome
    from traceopt.trying.changes import Change
    from traceopt.trying.workspace import Command

TOP = 3
HISTORY = "traceopt-logs/tried.jsonl"


@click.command(cls=ExplainedCommand, name="try", context_settings={"allow_interspersed_args": False})
@command_argument
@module_option
@click.option("--fix", "fixes", multiple=True, callback=split_codes, metavar="CODE", help="Try only these fixes.")
@click.option(
    "--top", type=click.IntRange(0), metavar="N", help=f"Try the first N fixes of the plan.  [default: {TOP}]"
)
@click.option("--each", is_flag=True, help="Try each change alone, not on top of those that were kept.")
@click.option("--patch", "patches", type=FILE, multiple=True, metavar="FILE", help="Try this diff.")
@click.option("--against", "revisions", multiple=True, metavar="REV", help="Try the source of another commit.")
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="Try an environment variable.")
@click.option("--args", "arguments", multiple=True, metavar="ARGS", help='Try more arguments: --args "--workers 8".')
@budget_option(10, "rounds")
@trial_options
@name_option("try")
@preset_option("What to record of the baseline, as in traceopt run.")
@json_option("result document")
@pull_request_options
@baseline_options
@workload_options
@config_option
@quiet_option
@debug_option
@click.pass_context
def try_(
    context: click.Context,
    /,
    command: tuple[str, ...],
    module: bool,
    fixes: tuple[str, ...],
    top: int | None,
    each: bool,
    patches: tuple[Path, ...],
    revisions: tuple[str, ...],
    variables: tuple[str, ...],
    arguments: tuple[str, ...],
    budget: float,
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
    pull_request: PullRequest,
    gating: Gating,
    config_path: Path | None,
    quiet: bool,
    **workload: Any,
) -> None:
    """Make the fixes of the plan, run them, and measure what they gain.

    Your source stays as it is: every run starts in a copy of it, with links to your data. Each fix is tried on top of
    those that proved themselves. Runs with and without a change take turns, without a profiler. With changes of your
    own, fixes of the plan are only tried if you ask for them with --fix or --top.
    """
    from traceopt import run_script
    from traceopt.try_script import one_plan
    from traceopt.trying import outcome as trying_outcome
    from traceopt.trying.workspace import Command

    tried = Command(command, module, Path.cwd(), step_on)
    own = own_changes(patches, revisions, variables, arguments)
    config = configuration(config_path, **workload)
    check_all_writable(html, json_path if json_path != "-" else None, patch_out)
    pull_request.check()
    debug = context.obj["debug"]
    gating.prepare(config, debug=debug)
    if apply_:
        trying_outcome.check_clean(tried)
    settings = run_script.trial_settings(tried, logdir, name, preset)
    wanted = one_plan.Wanted(
        own,
        fixes,
        TOP if top is None else top,
        bool(fixes) or top is not None or not own,
        each,
        steps,
        60 * budget,
        time_limit,
    )

    outcome = one_plan.try_script(tried, settings, wanted, analysis_with(config, debug=debug), quiet=quiet)
    result = outcome.result
    source = run_script.source_folders(command)
    html_path = None
    if result is not None:
        inputs = result.run.paths
        gating.judge(result, inputs)
        html_path = write_report(result, config, html or str(settings.folder / "report.html"), no_html)
        pull_request.write(result, gating, source, inputs, quiet=quiet)
    else:
        gating.not_judged("nothing was recorded")
    print_outcome(outcome, html_path, json_path)
    if not outcome.signal_exit_code:
        keep_changes(outcome, tried, apply_, patch_out, quiet=quiet)
    elif not outcome.tried:
        click.echo("traceopt: interrupted before anything was measured", err=True)
    if not (outcome.tried or outcome.signal_exit_code):
        why = "the plan has no fix" if not fixes else "the plan has none of these fixes"
        click.echo(f"traceopt: nothing was tried: {why}. Try your own change with --patch, --env or --args", err=True)
    gating.report(None, on_stdout=json_path != "-")
    context.exit(outcome.signal_exit_code or gating.exit_code)


def own_changes(
    patches: Sequence[Path], revisions: Sequence[str], variables: Sequence[str], arguments: Sequence[str]
) -> list[Change]:
    from traceopt.trying import changes

    return [
        *map(changes.patch_change, patches),
        *map(changes.environment_change, variables),
        *map(changes.arguments_change, arguments),
        *map(changes.revision_change, revisions),
    ]


def write_report(result: Result, config: Config, path: str, no_html: bool) -> str | None:
    """Writes the HTML report, unless an option or the settings file forbids it. Returns its path."""
    if no_html or config.html is False:
        return None
    write_html(path, result, result.run.paths)
    return path


def print_outcome(outcome: Outcome, html_path: str | None, json_path: str | None) -> None:
    """Writes the JSON document if it has a path, and prints the text, or the document for the path "-"."""
    from traceopt.reports.text.trial_terminal import render_trial
    from traceopt.try_script.one_plan import document_of

    if json_path is not None:
        data = document_of(outcome).to_json()
        emit(data) if json_path == "-" else write_output(json_path, data, [])
    if json_path == "-":
        return
    if outcome.result is not None:
        emit(rendered(outcome.result, "text", None, html_path))
    else:
        emit(render_trial(outcome.tried, **terminal(None)))


def keep_changes(outcome: Outcome, tried: Command, apply_: bool, patch_out: str | None, *, quiet: bool) -> None:
    """Writes the patch of what was kept, and says which changes it does not have."""
    from traceopt.trying.outcome import apply_patch

    if not (apply_ or patch_out):
        return
    without = [change.name for change in outcome.kept if change.switches or change.environment or change.arguments]
    if not outcome.patch:
        done = "nothing that was kept has a patch" if without else "nothing was kept"
        text = f"{done}, so no file was changed"
    elif apply_:
        files = apply_patch(tried, outcome.patch)
        text = f"changed {', '.join(map(visible, files))}"
    if patch_out is not None and outcome.patch:
        write_output(patch_out, outcome.patch.encode(), [])
        text = f"{visible(patch_out)} has all that was kept" if not apply_ else text
    if not quiet:
        click.echo(f"traceopt: {text}", err=True)
        if without:
            click.echo(f"traceopt: without a patch, for you to make: {', '.join(map(visible, without))}", err=True)


@click.command(cls=ExplainedCommand)
@click.argument("files", nargs=-1, type=FILE, metavar="[FILE]...")
@lone_json_option
@debug_option
def accuracy(files: tuple[Path, ...], json_path: str | None) -> None:
    """Compare predicted with measured gains of the fixes that traceopt try has measured.

    FILE is where traceopt try remembers them.  [default: traceopt-logs/tried.jsonl]
    """
    from traceopt.reports.text.agreement import render_agreement
    from traceopt.result.encoding.serialization import to_indented_json
    from traceopt.result.words.quantities import counted
    from traceopt.trying import history

    attempts = []
    for path in files or (Path(HISTORY),):
        read, odd = history.read(path)
        attempts += read
        if odd:
            click.echo(f"traceopt: warning: {visible(str(path))}: {counted(odd, 'line')} cannot be read", err=True)
    found = history.agreements(attempts)
    emit_with_json(render_agreement(found), to_indented_json({"rules": found}), json_path, map(str, files))
