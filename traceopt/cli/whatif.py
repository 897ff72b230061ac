"""`traceopt whatif`: replays the step with fixes applied."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from traceopt.cli.shared.help import ExplainedCommand
from traceopt.cli.shared.options import (
    config_option,
    debug_option,
    lone_json_option,
    quiet_option,
    rules_dir_option,
    run_option,
    split_codes,
)
from traceopt.cli.shared.results import configuration, emit_with_json
from traceopt.output import StderrProgress


@click.command(cls=ExplainedCommand)
@click.argument("path", metavar="TRACE")
@click.option(
    "--fix",
    "fixes",
    metavar="FIXES",
    multiple=True,
    callback=split_codes,
    help="Fixes to apply: codes or names of rules, or ids of findings.",
)
@click.option(
    "--scale",
    "scales",
    type=(str, float),
    multiple=True,
    metavar="WHAT FACTOR",
    help="Scale everything that matches kernel~PATTERN (GPU time) or host~PATTERN (operators, Python frames).",
)
@lone_json_option
@run_option
@rules_dir_option
@config_option
@quiet_option
@debug_option
def whatif(
    path: str,
    fixes: tuple[str, ...],
    scales: tuple[tuple[str, float], ...],
    json_path: str | None,
    run: str | None,
    rules_dir: str | None,
    config_path: Path | None,
    quiet: bool,
) -> None:
    """Replay the step with fixes applied.

    Prints how long the step takes then, and what limits it.
    """
    if not fixes and not scales:
        raise click.UsageError("nothing to change: add --fix CODE or --scale WHAT FACTOR")
    config = configuration(config_path)

    from traceopt.reports.text.what_if import render_whatif
    from traceopt.what_if import what_if

    with StderrProgress(enabled=sys.stderr.isatty() and not quiet) as progress:
        document = what_if(
            path,
            fixes,
            scales,
            run=run,
            rules_dir=rules_dir or config.rules_dir,
            thresholds=config.rules,
            devices=config.devices,
            progress=progress,
        )
    emit_with_json(render_whatif(document), document.to_json(), json_path, [path])
