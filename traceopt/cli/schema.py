"""`traceopt schema`: prints the JSON schema of the result document."""

from __future__ import annotations

import click

from traceopt.cli.shared.help import ExplainedCommand
from traceopt.cli.shared.options import debug_option
from traceopt.output import emit


@click.command(cls=ExplainedCommand)
@debug_option
def schema() -> None:
    """Print the JSON schema of the result document.

    It states the meaning and unit of every field.
    """
    from traceopt.result.document import Result

    emit(Result.json_schema().decode())
