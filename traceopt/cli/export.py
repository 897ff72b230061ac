"""`traceopt export`: extracts the result document from an HTML report."""

from __future__ import annotations

from pathlib import Path

import click

from traceopt.cli.shared.help import ExplainedCommand
from traceopt.cli.shared.options import debug_option
from traceopt.cli.shared.results import write_output
from traceopt.errors import InputError, one_line
from traceopt.output import emit

MOST_BYTES = 1 << 28  # of a report; a large one has 2 MB


@click.command(cls=ExplainedCommand)
@click.argument("report", metavar="REPORT.html")
@click.option("--json", "json_path", metavar="PATH", default="-", help="Where to write the JSON.  [default: stdout]")
@debug_option
def export(report: str, json_path: str) -> None:
    """Extract the result document (JSON) from an HTML report."""
    from traceopt.result.document import Result
    from traceopt.result.encoding.packing import embedded_result

    try:
        data = Result.from_json(embedded_result(_page(report))).to_json()
    except OSError as error:
        raise InputError(f"cannot read {report}: {error.strerror or error}") from error
    except ValueError as error:
        raise InputError(f"cannot read {report}: {one_line(str(error))}") from error
    if json_path == "-":
        emit(data)
    else:
        write_output(json_path, data, [report])


def _page(report: str) -> str:
    """The text of the file. Invalid UTF-8 does not matter, because the embedded document is ASCII."""
    with Path(report).open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"it is larger than {MOST_BYTES:,} bytes, so it is not a traceopt report")
    return content.decode("utf-8", "replace")
