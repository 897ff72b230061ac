"""`traceopt accuracy`: compares predicted with measured gains, over all that was tried."""

from __future__ import annotations

from pathlib import Path

import click

from traceopt.cli.options import FILE, debug_option
from traceopt.output import emit

DEFAULT = "traceopt-logs/tried.jsonl"


@click.command()
@click.argument("files", nargs=-1, type=FILE, metavar="[FILE]...")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
@debug_option
def accuracy(files: tuple[Path, ...], as_json: bool) -> None:
    """Compare predicted with measured gains of the fixes that traceopt try has measured.

    FILE is where traceopt try remembers them.  [default: traceopt-logs/tried.jsonl]
    """
    from traceopt.errors import visible
    from traceopt.reports.text.agreement import render_agreement
    from traceopt.result.quantities import counted
    from traceopt.result.serialization import to_indented_json
    from traceopt.trying import history

    attempts = []
    for path in files or (Path(DEFAULT),):
        read, odd = history.read(path)
        attempts += read
        if odd:
            click.echo(f"traceopt: warning: {visible(str(path))}: {counted(odd, 'line')} cannot be read", err=True)
    found = history.agreements(attempts)
    emit(to_indented_json({"rules": found}) if as_json else render_agreement(found))
