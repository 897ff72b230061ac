"""The command line: reads options, calls the analysis, prints and writes the result. It computes nothing.

One file per command; those that start a script are in scripts/. Exit codes: 0 success, 1 a gate failed, 2 wrong usage,
unreadable input or an internal error, 130 interrupted. Heavy modules are imported inside the commands, so that `--help`
answers immediately.
"""

from __future__ import annotations

import gc
import os
import sys

import click

from traceopt.cli.analyze import analyze
from traceopt.cli.assistants import mcp, skill
from traceopt.cli.compare import compare
from traceopt.cli.export import export
from traceopt.cli.failing import EXIT_ERROR, Cli
from traceopt.cli.measure import measure
from traceopt.cli.rules import rule, rules
from traceopt.cli.schema import schema
from traceopt.cli.scripts.bisect import bisect
from traceopt.cli.scripts.record import record
from traceopt.cli.scripts.run import run
from traceopt.cli.scripts.try_ import accuracy, try_
from traceopt.cli.scripts.tune import tune
from traceopt.cli.tensorboard import tensorboard
from traceopt.cli.viewing import cut, view
from traceopt.cli.whatif import whatif
from traceopt.output import open_missing_streams
from traceopt.version import __version__


@click.group(
    name="traceopt",
    cls=Cli,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="traceopt", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Find the bottleneck in PyTorch profiler traces, and how to fix it."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        context.exit(EXIT_ERROR)


for command in (
    analyze, run, record, measure, try_, tune, accuracy, compare, bisect, view, cut, tensorboard, whatif, rules, rule,
    schema, export, mcp, skill,
):  # fmt: skip
    cli.add_command(command)


def main() -> None:
    """The entry point of the `traceopt` command."""
    open_missing_streams()
    gc.set_threshold(100_000)  # events are allocated and freed by the thousand, with almost no cycles to collect
    runs_a_script = {"run", "try", "tune", "bisect"} & set(sys.argv[1:2]) or "--against" in sys.argv
    if not runs_a_script:  # which may use NumPy's threads; nothing here does
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    cli(prog_name="traceopt")
