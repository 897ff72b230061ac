"""`traceopt tensorboard`: shows the traces in TensorBoard."""

from __future__ import annotations

from pathlib import Path

import click

from traceopt.cli.shared.help import ExplainedCommand
from traceopt.cli.shared.options import FILE, debug_option


@click.command(cls=ExplainedCommand, context_settings={"allow_interspersed_args": False})
@click.argument("logdir", type=FILE)
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[TENSORBOARD OPTIONS]...")
@debug_option
def tensorboard(logdir: Path, options: tuple[str, ...]) -> None:
    """Show traces in TensorBoard (legacy; see view).

    Shows all traces in LOGDIR and its subfolders, with torch-tb-profiler. Options after LOGDIR go to TensorBoard.
    """
    from traceopt.viewing.tensorboard_server import start

    start(logdir, options)
