"""`traceopt measure`: measures on this machine what the savings of a trace ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from traceopt.cli.shared.help import ExplainedCommand
from traceopt.cli.shared.options import FILE, reading_options, run_option, select_options
from traceopt.cli.shared.rates import measured
from traceopt.cli.shared.results import analyzed, configuration
from traceopt.errors import visible
from traceopt.output import emit


@click.command(cls=ExplainedCommand)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "--budget",
    type=click.FloatRange(0, min_open=True),
    default=20,
    show_default=True,
    metavar="SECONDS",
    help="Begin no more measurements after this time.",
)
@click.option("--output", type=FILE, metavar="FILE", help="Where to write the rates.  [default: beside the trace]")
@click.option("--again", is_flag=True, help="Measure again what was measured on this machine before.")
@select_options
@run_option
@reading_options
@click.pass_context
def measure(
    context: click.Context,
    /,
    paths: tuple[str, ...],
    budget: float,
    output: Path | None,
    again: bool,
    run: str | None,
    config_path: Path | None,
    quiet: bool,
    **settings: Any,
) -> None:
    """Measure on this machine what the savings of a trace ask for.

    Run it on a machine like that of the trace. It times the work of the top fixes twice, before and after the fix: a
    matmul in FP32 and in bfloat16, a convolution in both memory formats, an optimizer step in one kernel. It writes the
    times beside the trace. From then on, the analysis of the folder uses them.
    """
    config = configuration(config_path, **settings)
    debug = context.obj["debug"]
    result = analyzed(paths, [], config, run=run, debug=debug, quiet=quiet)

    from traceopt.measuring import for_document as measuring
    from traceopt.reports.text.measured import render_measured

    path = output or measuring.place_beside(result)
    wanted = measuring.comparisons_of(result)
    if not wanted:
        emit("Nothing to measure: no saving of the top findings depends on a rate of the device.\n")
        return
    rates = measured(result, budget, again=again, quiet=quiet)
    measuring.write(path, rates)
    after = analyzed((*paths, str(path)), [], config, run=run, debug=debug, quiet=quiet)
    emit(render_measured(rates, len(wanted), result, after, visible(str(path))))
