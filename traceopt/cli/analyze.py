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
    run_option,
    split_codes,
    workload_options,
)
from traceopt.cli.pull_request import FORMATS, PullRequest, pull_request_options
from traceopt.cli.results import Files, analyzed, configuration, html_target, rendered, run_names
from traceopt.errors import visible
from traceopt.output import emit


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@report_options
@click.option("--static", is_flag=True, help="Write HTML without the spans of the timeline: a smaller file.")
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
@run_option
@click.option("--all", "every_run", is_flag=True, help="Analyze each run in PATH; file names get the run's name.")
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
    run: str | None,
    every_run: bool,
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
    if every_run and (run or gating.requested or pull_request.requested or format_ not in ("text", "concise")):
        raise click.UsageError("--all goes with --html, --json, --patch and --format concise; else choose with --run")
    files = Files(html_path, json_path, patch_path)
    files.check()
    pull_request.check()
    gating.prepare(config, debug=context.obj["debug"])

    if every_run:
        for name in run_names(paths):
            result = analyzed(paths, config, source, run=name, debug=context.obj["debug"], quiet=quiet)
            mine = files.of_run(name)
            mine.write(result, paths, source, static=static, quiet=quiet)
            emit(f"== {visible(name)}\n")
            emit(rendered(result, format_, color, mine.html))
        return
    result = analyzed(paths, config, source, run=run, debug=context.obj["debug"], quiet=quiet)
    inputs = [*paths, *(file.path for file in result.run.files)]
    gating.judge(result, inputs)
    files.write(result, paths, source, static=static, quiet=quiet)
    pull_request.write(result, gating, source, inputs, quiet=quiet)
    if format_ in FORMATS:
        emit(pull_request.rendered(result, gating, format_, source, quiet=quiet))
    else:
        emit(rendered(result, format_, color, html_path))
    if html_path is not None and format_ != "text" and not quiet:
        click.echo(f"Report: {visible(html_path)}", err=True)
    gating.report(color, on_stdout=format_ == "text")
    context.exit(gating.exit_code)
