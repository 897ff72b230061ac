"""`traceopt analyze`: reads traces, prints a summary, and writes the report and other files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from traceopt.cli.shared.help import ExplainedCommand
from traceopt.cli.shared.options import FILE, reading_options, run_option, select_options, workload_options
from traceopt.cli.shared.outputs import Outputs, output_options
from traceopt.cli.shared.results import analyzed, configuration, run_names
from traceopt.errors import visible
from traceopt.output import emit


@click.command(cls=ExplainedCommand)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@output_options
@select_options
@click.option(
    "--source",
    multiple=True,
    type=FILE,
    metavar="DIR",
    help="Folder with the source of the recorded script: fixes come as patches of it.",
)
@run_option
@click.option("--all", "every_run", is_flag=True, help="Analyze each run in PATH; file names get the run's name.")
@workload_options
@reading_options
@click.pass_context
def analyze(
    context: click.Context,
    /,
    paths: tuple[str, ...],
    outputs: Outputs,
    source: tuple[Path, ...],
    run: str | None,
    every_run: bool,
    config_path: Path | None,
    quiet: bool,
    **settings: Any,
) -> None:
    """Find the bottleneck in traces and write the report.

    PATH is a trace (.json, .json.gz, .pftrace, .zip), a folder (also a TensorBoard log folder), or a quoted glob.
    """
    if outputs.patch_path is not None and not source:
        raise click.UsageError("--patch needs the source: add --source DIR")
    config = configuration(config_path, **settings)
    if every_run and (run is not None or not outputs.in_files_only):
        raise click.UsageError(
            "--all goes with --html, --json, --csv, --patch, --format concise and --format agent; "
            "else choose with --run"
        )
    outputs.prepare(config, debug=context.obj["debug"])
    for name in run_names(paths) if every_run else [run]:
        result = analyzed(paths, source, config, run=name, debug=context.obj["debug"], quiet=quiet)
        mine = outputs
        if every_run and name is not None:
            mine = outputs.of_run(name)
            emit(f"== {visible(name)}\n")
        mine.write(result, [*paths, *(file.path for file in result.run.files)], source, quiet=quiet)
    context.exit(outputs.gating.exit_code)
