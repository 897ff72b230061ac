"""Measures what a document asks for, with a progress line: the end of `traceopt run`, and `traceopt measure`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from traceopt.errors import TraceoptError, visible
from traceopt.output import StderrProgress

if TYPE_CHECKING:
    from traceopt.result.document import Result
    from traceopt.result.experiments import Rates


def measured(result: Result, budget_s: float, *, again: bool = False, quiet: bool) -> Rates:
    """Raises MeasuringError if this machine cannot measure for the trace."""
    from traceopt.measuring import for_document as measure

    with StderrProgress(enabled=sys.stderr.isatty() and not quiet) as show:
        return measure.measured(result, budget_s, measure.shown_by(show), again=again)


def rates_for(result: Result, budget_s: float, folder: Path, *, quiet: bool) -> Path | None:
    """The file of the rates in a folder; None if nothing is asked for or can be measured, which is said in a line."""
    from traceopt.measuring import for_document as measure

    if not measure.comparisons_of(result):
        return None
    path = folder / measure.FILE
    try:
        rates = measured(result, budget_s, quiet=quiet)
        if rates.compared:
            measure.write(path, rates)
            return path
        why = rates.failures[0].why if rates.failures else "the budget is too small"
    except TraceoptError as error:
        why = str(error)
    if not quiet:
        click.echo(f"traceopt: rates are not measured: {visible(why)}", err=True)
    return None
