"""`traceopt export`: the result document out of an HTML report."""

from __future__ import annotations

from pathlib import Path

import click

from traceopt.cli.options import debug_option
from traceopt.errors import InputError, one_line
from traceopt.output import emit, write_atomically


@click.command()
@click.argument("report", metavar="REPORT.html")
@click.option("--json", "json_path", metavar="PATH", default="-", help="Where the JSON goes.  [default: stdout]")
@debug_option
def export(report: str, json_path: str) -> None:
    """Get the result document (JSON) back out of an HTML report."""
    from traceopt.reports.html import embedded_result
    from traceopt.reports.packing import MOST_BYTES
    from traceopt.result import Result

    try:
        with Path(report).open("rb") as file:
            page = file.read(MOST_BYTES).decode("utf-8")
        data = Result.from_json(embedded_result(page)).to_json()
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {report}: {one_line(str(error))}") from error
    if json_path == "-":
        emit(data)
    else:
        write_atomically(Path(json_path), data)
