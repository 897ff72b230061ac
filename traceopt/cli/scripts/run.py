"""`traceopt run`: records a training script, then analyzes the traces."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Any

import click

from traceopt.cli.failing import EXIT_INTERRUPTED, fault
from traceopt.cli.shared.help import ExplainedCommand
from traceopt.cli.shared.options import (
    color_option,
    command_argument,
    config_option,
    debug_option,
    logdir_option,
    module_option,
    name_option,
    preset_option,
    quiet_option,
    select_options,
    step_on_option,
    workload_options,
)
from traceopt.cli.shared.outputs import Outputs, output_options
from traceopt.cli.shared.rates import rates_for
from traceopt.cli.shared.results import analyzed, configuration
from traceopt.cli.shared.triggers import trigger_of, trigger_options
from traceopt.errors import visible
from traceopt.output import emit


@click.command(cls=ExplainedCommand, context_settings={"allow_interspersed_args": False})
@command_argument
@module_option
@logdir_option
@name_option("run")
@preset_option("Record steps 8-12 and 17-18 (standard), 2-4 and 6-7 (quick), 25-44 and 53-57 (long), or 8-12 (timing).")
@click.option("--wait", type=click.IntRange(0), metavar="N", help="Steps before the profiler starts.  [default: 5]")
@click.option("--warmup", type=click.IntRange(0), metavar="N", help="Steps whose events are dropped.  [default: 3]")
@click.option("--active", type=click.IntRange(1), metavar="N", help="Steps to record.  [default: 5]")
@click.option("--repeat", type=click.IntRange(1), metavar="N", help="Number of times to do this.  [default: 1]")
@click.option("--record-shapes", is_flag=True, help="Record the shapes and dtypes of every operator.")
@click.option("--profile-memory", is_flag=True, help="Record every allocation.")
@click.option("--with-stack", is_flag=True, help="Record the lines of code.")
@click.option(
    "--memory-snapshot", is_flag=True, help="Record the history of the CUDA allocator: who holds memory, what grows."
)
@step_on_option
@click.option(
    "--time-limit",
    type=click.FloatRange(0, min_open=True),
    default=120,
    show_default=True,
    metavar="SECONDS",
    help="End a cycle that records for longer; not with several ranks.",
)
@trigger_options
@click.option("--stop-after", is_flag=True, help="End the script when everything is recorded.")
@click.option("--dry-run", is_flag=True, help="Print what would be recorded, and start nothing.")
@click.option("--no-analyze", is_flag=True, help="Only record; skip the analysis.")
@click.option("--no-calibration", is_flag=True, help="After a run without a GPU, do not measure what the CPU reaches.")
@click.option(
    "--measure",
    "measure_s",
    type=click.FloatRange(0),
    default=20,
    show_default=True,
    metavar="SECONDS",
    help="After the run, measure for at most so long what the top fixes gain on this device; 0: do not.",
)
@output_options
@select_options
@workload_options
@config_option
@color_option
@quiet_option
@debug_option
@click.pass_obj
def run(
    state: dict[str, bool],
    /,
    command: tuple[str, ...],
    module: bool,
    logdir: Path | None,
    name: str | None,
    dry_run: bool,
    no_analyze: bool,
    no_calibration: bool,
    measure_s: float,
    record_when: tuple[float | None, float | None],
    record_at: float | None,
    record_on_request: bool,
    outputs: Outputs,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    config_path: Path | None,
    quiet: bool,
    tokens_per_step: float | None,
    samples_per_step: float | None,
    reference_throughput: float | None,
    price_per_hour: float | None,
    **schedule: Any,
) -> None:
    """Profile an unmodified training script and analyze the traces.

    By default two cycles are recorded: one with times only, then one with shapes, memory and lines of code. The
    options from --wait to --with-stack replace them with one kind of cycle, as in torch.profiler. traceopt
    exits with the exit code of the script, or with 1 if the script succeeded and a --fail-on gate failed.
    """
    debug = state["debug"]
    gating = outputs.gating
    if no_analyze and outputs.requested:
        raise click.UsageError("reports, baselines and gates need the analysis: remove --no-analyze")
    config = configuration(
        config_path,
        select=select,
        ignore=ignore,
        tokens_per_step=tokens_per_step,
        samples_per_step=samples_per_step,
        reference_throughput=reference_throughput,
        price_per_hour=price_per_hour,
    )
    if not no_analyze:
        outputs.prepare(config, debug=debug)

    from traceopt import run_script

    trigger = trigger_of(record_when, record_at, record_on_request)
    settings = run_script.settings(command, module, logdir, name, trigger=trigger, **schedule)
    if dry_run:
        emit(run_script.planned(command, module, settings))
        return
    run_script.command_line(command, module)  # a mistake leaves no folder
    named, settings = settings.folder, run_script.in_a_free_folder(settings)
    if settings.folder != named and not quiet:
        another = (
            f"another run writes to {run_script.shown(named)}; the traces go to {run_script.shown(settings.folder)}"
        )
        click.echo(f"traceopt: {visible(another)}", err=True)
    code, outcome = run_script.record(command, module, settings, quiet=quiet)
    for line in run_script.remarks(outcome, quiet=quiet):
        click.echo(f"traceopt: {visible(line)}", err=True)
    recorded = [*outcome.traces, *outcome.memory_snapshots]
    if recorded and not no_analyze and not run_script.was_terminated(code):
        paths = [str(path) for path in recorded]
        source = run_script.source_folders(command)
        try:
            if not no_calibration:
                run_script.calibrate(outcome, code)
            began = perf_counter()
            result = analyzed(paths, source, config, debug=debug, quiet=quiet)
            analysis_s = perf_counter() - began
            if measure_s and code >= 0 and (rates := rates_for(result, measure_s, settings.folder, quiet=quiet)):
                paths.append(str(rates))
                result = analyzed(paths, source, config, debug=debug, quiet=quiet)
            result = run_script.with_failure(result, outcome)
            footer = run_script.footer(outcome, settings, analysis_s)
            outputs.write(result, paths, source, quiet=quiet, footer=footer)
        except Exception as error:  # a fault of the analysis must not look like one of the script
            _tell_without_report(fault(error, debug=debug), run_script.shown(settings.folder))
            gating.not_judged("the analysis failed")
            gating.report(None, on_stdout=False)
        except KeyboardInterrupt:
            _tell_without_report("interrupted", run_script.shown(settings.folder))
            code = code or EXIT_INTERRUPTED
    else:
        if outcome.traces and not quiet:
            click.echo(run_script.footer(outcome, settings), nl=False, err=True)
        gating.not_judged("the run was not analyzed")
        gating.report(None, on_stdout=False)
    run_script.end_alike(code or gating.exit_code)


def _tell_without_report(why: str, folder: str) -> None:
    click.echo(f"traceopt: {why}; the traces are kept: traceopt analyze {visible(folder)}", err=True)
