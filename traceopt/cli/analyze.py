"""`traceopt analyze`: traces in, the summary on stdout, the report and other files beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from traceopt.cli.gating import Gating, baseline_options
from traceopt.cli.options import (
    DEFAULT_HTML,
    FILE,
    config_option,
    debug_option,
    patch_option,
    ranks_options,
    rules_dir_option,
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
@click.option("--html", metavar="PATH", help=f"Where the HTML report goes.  [default: {DEFAULT_HTML}]")
@click.option("--no-html", is_flag=True, help="Write no HTML report.")
@click.option("--static", is_flag=True, help="HTML without interactive charts; a smaller file.")
@click.option("--json", "json_path", metavar="PATH", help="Also write the result document; - is stdout.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "concise", "json", *FORMATS]),
    default="text",
    show_default=True,
    help="What goes to stdout.",
)
@pull_request_options
@baseline_options
@click.option("--select", multiple=True, callback=split_codes, help="Rules to run: codes, prefixes or names, by comma.")
@click.option("--ignore", multiple=True, callback=split_codes, help="Rules to leave out; the more specific entry wins.")
@click.option(
    "--source",
    multiple=True,
    type=FILE,
    metavar="DIR",
    help="Folder of the recorded script's source: fixes come as patches of it.",
)
@patch_option
@workload_options
@rules_dir_option
@ranks_options
@config_option
@click.option("--color/--no-color", default=None, help="Colours.  [default: on a terminal, unless NO_COLOR is set]")
@click.option("-q", "--quiet", is_flag=True, help="Nothing on stderr but errors.")
@debug_option
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
    markdown: str | None,
    sarif: str | None,
    job_summary: bool,
    label: str,
    baseline: tuple[str, ...],
    write_baseline: str | None,
    fail_on: tuple[str, ...],
    warn_on: tuple[str, ...],
    exit_zero: bool,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    source: tuple[Path, ...],
    patch_path: str | None,
    rules_dir: str | None,
    config_path: Path | None,
    color: bool | None,
    quiet: bool,
    **settings: Any,
) -> None:
    """Find the bottleneck in traces and write the report.

    PATH is a trace (.json, .json.gz, .zip), a folder (TensorBoard log folders too), or a quoted glob.
    """
    if html is not None and no_html:
        raise click.UsageError("use either --html or --no-html")
    if patch_path is not None and not source:
        raise click.UsageError("--patch needs the source: --source DIR")
    config = configuration(config_path, select=select, ignore=ignore, rules_dir=rules_dir, **settings)
    html_path = None if no_html else html_target(html, config)
    if json_path == "-":
        json_path, format_ = None, "json"
    check_all_writable(html_path, json_path, patch_path)
    pull_request = PullRequest(markdown, sarif, job_summary, label)
    pull_request.check()

    gating = Gating(baseline, write_baseline, fail_on, warn_on, exit_zero)
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
    gating.tell(color, on_stdout=format_ == "text")
    context.exit(gating.exit_code)
