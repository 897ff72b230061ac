"""`traceopt analyze`: reads traces, prints a summary, and writes the report and other files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from traceopt.cli.gating import Gating, baseline_options
from traceopt.cli.options import (
    FILE,
    format_option,
    json_option,
    patch_option,
    reading_options,
    report_options,
    split_codes,
    workload_options,
)
from traceopt.cli.pull_request import FORMATS, PullRequest, pull_request_options
from traceopt.cli.results import (
    analyzed,
    check_all_writable,
    configuration,
    html_target,
    rendered,
    write_html,
    write_output,
    write_patch,
)
from traceopt.errors import visible
from traceopt.output import emit


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@report_options
@click.option("--static", is_flag=True, help="Write HTML without interactive charts: a smaller file.")
@json_option("result document")
@format_option("text", "concise", "json", *FORMATS)
@pull_request_options
@baseline_options
@click.option(
    "--select",
    multiple=True,
    callback=split_codes,
    help="Rules to run: codes, prefixes or names, separated by commas.",
)
@click.option("--ignore", multiple=True, callback=split_codes, help="Rules to skip; the more specific entry wins.")
@click.option(
    "--source",
    multiple=True,
    type=FILE,
    metavar="DIR",
    help="Folder with the source of the recorded script: fixes come as patches of it.",
)
@patch_option
@workload_options
@reading_options
@click.pass_context
def analyze(
    context: click.Context,
    /,
    paths: tuple[str, ...],
    html: str | None,
    no_html: bool,
    static: bool,
    json_path: str | None,
    format_: str,
    pull_request: PullRequest,
    gating: Gating,
    source: tuple[Path, ...],
    patch_path: str | None,
    config_path: Path | None,
    color: bool | None,
    quiet: bool,
    **settings: Any,
) -> None:
    """Find the bottleneck in traces and write the report.

    PATH is a trace (.json, .json.gz, .zip), a folder (also a TensorBoard log folder), or a quoted glob.
    """
    if patch_path is not None and not source:
        raise click.UsageError("--patch needs the source: add --source DIR")
    config = configuration(config_path, **settings)
    html_path = html_target(html, no_html, config)
    if json_path == "-":
        json_path, format_ = None, "json"
    check_all_writable(html_path, json_path, patch_path)
    pull_request.check()
    gating.prepare(config, debug=context.obj["debug"])

    result = analyzed(paths, config, source, debug=context.obj["debug"], quiet=quiet)
    inputs = [*paths, *(file.path for file in result.run.files)]
    gating.judge(result, inputs)
    if html_path is not None:
        write_html(html_path, result, inputs, static=static)
    if json_path is not None:
        write_output(json_path, result.to_json(), inputs)
    if patch_path is not None:
        write_patch(patch_path, result, source, inputs, quiet=quiet)
    pull_request.write(result, gating, source, inputs, quiet=quiet)
    if format_ in FORMATS:
        emit(pull_request.rendered(result, gating, format_, source, quiet=quiet))
    else:
        emit(rendered(result, format_, color, html_path))
    if html_path is not None and format_ != "text" and not quiet:
        click.echo(f"Report: {visible(html_path)}", err=True)
    gating.report(color, on_stdout=format_ == "text")
    context.exit(gating.exit_code)
