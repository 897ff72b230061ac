"""`traceopt run`: records a training script, then analyzes what was recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from traceopt.cli.gating import Gating, baseline_options
from traceopt.cli.options import DEFAULT_HTML, FILE, config_option, debug_option, patch_option, workload_options
from traceopt.cli.pull_request import PullRequest, pull_request_options
from traceopt.cli.results import (
    analyzed,
    check_all_writable,
    configuration,
    html_target,
    rendered,
    write_html,
    write_patch,
)
from traceopt.errors import visible
from traceopt.output import emit

DEFAULT_LOGDIR = "traceopt-logs"


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, metavar="SCRIPT [ARGS]...")
@click.option("-m", "module", is_flag=True, help="SCRIPT is a module, as in python -m.")
@click.option("--logdir", type=FILE, metavar="DIR", help=f"Where the traces go.  [default: {DEFAULT_LOGDIR}/NAME]")
@click.option("--name", help="Folder of this run in the log folder.  [default: script and time]")
@click.option(
    "--preset",
    type=click.Choice(["standard", "quick", "long", "timing"]),
    help="Which steps are recorded: 8-12 and 17-18; 2-4 and 6-7; 25-44 and 53-57; 8-12.  [default: standard]",
)
@click.option("--wait", type=click.IntRange(0), help="Steps before the profiler starts.  [default: 5]")
@click.option("--warmup", type=click.IntRange(0), help="Steps whose events are dropped.  [default: 3]")
@click.option("--active", type=click.IntRange(1), help="Steps that are recorded.  [default: 5]")
@click.option("--repeat", type=click.IntRange(1), help="How often that is done.  [default: 1]")
@click.option("--record-shapes", is_flag=True, help="Record shapes and dtypes of every op.")
@click.option("--profile-memory", is_flag=True, help="Record every allocation.")
@click.option("--with-stack", is_flag=True, help="Record the lines of code.")
@click.option(
    "--step-on",
    metavar="WHAT",
    help="What ends a step: batch, update, backward, forward or module:function.  [default: found out]",
)
@click.option(
    "--time-limit",
    type=click.FloatRange(0, min_open=True),
    default=120,
    show_default=True,
    metavar="SECONDS",
    help="Close a cycle early that records longer, not with several ranks.",
)
@click.option("--stop-after", is_flag=True, help="End the script when all is recorded.")
@click.option("--no-analyze", is_flag=True, help="Only record.")
@click.option("--html", metavar="PATH", help=f"Where the HTML report goes.  [default: {DEFAULT_HTML}]")
@click.option("--no-html", is_flag=True, help="Write no HTML report.")
@pull_request_options
@baseline_options
@patch_option
@workload_options
@config_option
@click.option("-q", "--quiet", is_flag=True, help="Nothing on stderr but errors.")
@debug_option
@click.pass_obj
def run(
    state: dict[str, bool],
    /,
    command: tuple[str, ...],
    module: bool,
    logdir: Path | None,
    name: str | None,
    no_analyze: bool,
    html: str | None,
    no_html: bool,
    markdown: str | None,
    sarif: str | None,
    job_summary: bool,
    label: str,
    baseline: tuple[str, ...],
    write_baseline: str | None,
    fail_on: tuple[str, ...],
    warn_on: tuple[str, ...],
    exit_zero: bool,
    patch_path: str | None,
    config_path: Path | None,
    quiet: bool,
    tokens_per_step: float | None,
    samples_per_step: float | None,
    reference_throughput: float | None,
    **schedule: Any,
) -> None:
    """Profile a training script, unchanged, and analyze what was recorded.

    \b
    traceopt run train.py --epochs 3
    traceopt run -m package.train
    traceopt run -- torchrun --nproc-per-node 8 train.py

    First some steps are timed with nothing else recorded, then some with shapes, memory and lines of code. The options
    from --wait to --with-stack replace that by one kind of cycle, as torch.profiler has it. The exit code is that of
    the script; where that is 0, it is 1 when a gate of --fail-on failed.
    """
    if html is not None and no_html:
        raise click.UsageError("use either --html or --no-html")
    if no_analyze and (baseline or write_baseline or fail_on or warn_on):
        raise click.UsageError("baselines and gates need the analysis; leave --no-analyze out")
    workload = {
        "tokens_per_step": tokens_per_step,
        "samples_per_step": samples_per_step,
        "reference_throughput": reference_throughput,
    }
    config = configuration(config_path, **workload)
    html_path = None if no_html or no_analyze else html_target(html, config)
    check_all_writable(html_path, patch_path)
    pull_request = PullRequest(markdown, sarif, job_summary, label)
    pull_request.check()
    gating = Gating(baseline, write_baseline, fail_on, warn_on, exit_zero)
    if not no_analyze:
        gating.prepare(config, debug=state["debug"])

    from traceopt import run_script

    settings = run_script.settings(command, module, logdir, name, **schedule)
    code, outcome = run_script.record(command, module, settings, quiet=quiet)
    for line in run_script.remarks(outcome, quiet=quiet):
        click.echo(f"traceopt: {visible(line)}", err=True)
    if outcome.traces and not no_analyze and not run_script.was_told_to_end(code):
        paths = [str(path) for path in outcome.traces]
        source = run_script.source_folders(command)
        result = analyzed(paths, config, source, debug=state["debug"], quiet=quiet)
        gating.judge(result, paths)
        if html_path is not None:
            write_html(html_path, result, paths)
        if patch_path is not None:
            write_patch(patch_path, result, source, paths, quiet=quiet)
        pull_request.write(result, gating, source, paths, quiet=quiet)
        emit(rendered(result, "text", None, html_path))
        emit(run_script.footer(outcome, settings))
        gating.tell(None, on_stdout=True)
    else:
        if outcome.traces and not quiet:
            click.echo(run_script.footer(outcome, settings), nl=False, err=True)
        gating.not_judged("the run was not analyzed")
        gating.tell(None, on_stdout=False)
    run_script.end_alike(code or gating.exit_code)
