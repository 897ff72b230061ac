"""`traceopt view` and `traceopt cut`: a trace in Perfetto, and one step of it as a small trace."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import click

from traceopt.cli.shared.help import ExplainedCommand
from traceopt.cli.shared.options import debug_option
from traceopt.cli.shared.results import write_output
from traceopt.errors import visible
from traceopt.output import check_writable, emit


@click.command(cls=ExplainedCommand)
@click.argument("trace", metavar="TRACE")
@click.option("--no-browser", is_flag=True, help="Print the link and open no browser.")
@debug_option
def view(trace: str, no_browser: bool) -> None:
    """Open a trace in Perfetto.

    Serves TRACE on 127.0.0.1 and opens ui.perfetto.dev in the browser, which reads it from there. The trace stays on
    this machine.
    """
    from traceopt.viewing.one_trace import one_trace
    from traceopt.viewing.perfetto import view as serve

    serve(one_trace(trace), lambda line: click.echo(visible(line), err=True), browser=not no_browser)


@click.command(cls=ExplainedCommand)
@click.argument("trace", metavar="TRACE")
@click.option("--step", required=True, metavar="N", help="The step: its name, or the number at the end of its name.")
@click.option("-o", "--output", required=True, metavar="PATH", help="Where to write it; .gz compresses, - is stdout.")
@debug_option
def cut(trace: str, step: str, output: str) -> None:
    """Write one step of a trace as a small trace.

    The step keeps all that ran in it on the host, all GPU work that it launched, and what describes the trace. Events
    across its borders are shortened.
    """
    from traceopt.viewing.one_trace import one_trace
    from traceopt.viewing.step_cut import cut_step

    if output != "-":
        check_writable(Path(output))
    source = one_trace(trace)
    buffer = io.BytesIO()
    if output.endswith(".gz"):
        with gzip.GzipFile(filename="", fileobj=buffer, mode="wb", mtime=0) as file:
            done = cut_step(source, step, file.write)
    else:
        done = cut_step(source, step, buffer.write)
    if output == "-":
        emit(buffer.getvalue())
        return
    write_output(output, buffer.getvalue(), [source.place])
    left_out = f"; {done.damaged:,} damaged events were left out" if done.damaged else ""
    click.echo(f"traceopt: {visible(output)} has {visible(done.step)} with {done.events:,} events{left_out}", err=True)
