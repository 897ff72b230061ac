"""`traceopt record`: asks a running training for a recording."""

from __future__ import annotations

import click

from traceopt.cli.shared.help import ExplainedCommand
from traceopt.cli.shared.options import debug_option, quiet_option


@click.command(cls=ExplainedCommand)
@click.argument("pid", type=click.IntRange(1))
@quiet_option
@debug_option
def record(pid: int, quiet: bool) -> None:
    """Ask a running training for a recording.

    It must have been started with traceopt run --record-on-request. PID is a process of the training, or the traceopt
    run that started it. The traces are written to the log folder of the run. kill -USR2 PID does the same.
    """
    from traceopt.run_request import request_recording

    folder = request_recording(pid)
    if not quiet:
        click.echo(f"traceopt: asked for a recording; its traces will be in {folder}", err=True)
