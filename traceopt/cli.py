"""The command line: reads options, calls the analysis, prints and writes what comes back; computes nothing.

Exit codes: 0 done, 1 a gate failed, 2 bad usage, unreadable input or an internal error, 130 interrupted.
Heavy modules are imported inside the commands, so that `--help` answers at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from traceopt import __version__
from traceopt.errors import InputError, OutputError, TraceoptError, one_line, visible
from traceopt.output import Progress, check_writable, emit, write_atomically

if TYPE_CHECKING:
    from traceopt.config import Config
    from traceopt.result import Result
    from traceopt.rules.registry import Registry

DEFAULT_HTML = "traceopt-report.html"
DEFAULT_LOGDIR = "traceopt-logs"
EXIT_ERROR = 2
EXIT_INTERRUPTED = 130


class Cli(click.Group):
    """The command group with this program's manner of failing: one line, a traceback only with --debug."""

    def main(self, *args: Any, **options: Any) -> Any:
        state = {"debug": False}
        try:
            code = super().main(*args, **options | {"standalone_mode": False, "obj": state})
        except click.Abort:
            code = _fail("interrupted", EXIT_INTERRUPTED)
        except click.UsageError as error:
            command = error.ctx.command_path if error.ctx else "traceopt"
            code = _fail(f"error: {one_line(error.format_message()).rstrip('.')}; see '{command} --help'")
        except TraceoptError as error:
            _show_traceback(state["debug"])
            code = _fail(f"error: {error}")
        except Exception as error:
            _show_traceback(state["debug"])
            hint = "" if state["debug"] else " (run with --debug for the traceback)"
            code = _fail(one_line(f"internal error: {type(error).__name__}: {error}") + hint)
        sys.exit(code)


def main() -> None:
    """The entry point of the `traceopt` command."""
    cli(prog_name="traceopt")


def _fail(message: str, code: int = EXIT_ERROR) -> int:
    click.echo(f"traceopt: {message}", err=True)
    return code


def _show_traceback(wanted: bool) -> None:
    if wanted:
        import traceback

        traceback.print_exc()


def _remember_debug(context: click.Context, _: click.Parameter, value: bool) -> None:
    context.obj["debug"] = value


def _split(_: click.Context, __: click.Parameter, values: Iterable[str]) -> tuple[str, ...]:
    return tuple(code.strip() for value in values for code in value.split(",") if code.strip())


def _no_source_file(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is not None and value.endswith(".py"):
        raise click.BadParameter(f"{value} is a Python file; name the patch to write")
    return value


_FILE = click.Path(path_type=Path)
_debug = click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    callback=_remember_debug,
    help="Show the traceback of an error.",
)
_rules_dir = click.option("--rules-dir", metavar="DIR", help="Also load the rules in the *.py files of this folder.")
_patch = click.option(
    "--patch",
    "patch_path",
    metavar="FILE",
    callback=_no_source_file,
    help="Also write one patch of all fixes that have one.",
)
_AMOUNT = click.FloatRange(0, min_open=True)
_workload_options = (
    click.option("--tokens-per-step", type=_AMOUNT, metavar="N", help="Tokens that one GPU processes in a step."),
    click.option("--samples-per-step", type=_AMOUNT, metavar="N", help="Samples that one GPU processes in a step."),
    click.option(
        "--reference-throughput",
        type=_AMOUNT,
        metavar="N",
        help="Rate of one GPU to compare with: tokens a second, else samples.",
    ),
)
_config = click.option("--config", "config_path", type=_FILE, help="Settings file instead of the nearest one.")


def _workload(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say what a step processes."""
    return reduce(lambda wrapped, option: option(wrapped), reversed(_workload_options), command)


@click.group(
    cls=Cli,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="traceopt", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Reads PyTorch profiler traces and says what the bottleneck is and how to fix it."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        context.exit(EXIT_ERROR)


@cli.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--html", metavar="PATH", help=f"Where the HTML report goes.  [default: {DEFAULT_HTML}]")
@click.option("--no-html", is_flag=True, help="Write no HTML report.")
@click.option("--static", is_flag=True, help="HTML without interactive charts; a smaller file.")
@click.option("--json", "json_path", metavar="PATH", help="Also write the result document; - is stdout.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "concise", "json"]),
    default="text",
    show_default=True,
    help="What goes to stdout.",
)
@click.option("--select", multiple=True, callback=_split, help="Rules to run: codes, prefixes or names, by comma.")
@click.option("--ignore", multiple=True, callback=_split, help="Rules to leave out; the more specific entry wins.")
@click.option(
    "--source",
    multiple=True,
    type=_FILE,
    metavar="DIR",
    help="Folder of the recorded script's source: fixes come as patches of it.",
)
@_patch
@_workload
@_rules_dir
@_config
@click.option("--color/--no-color", default=None, help="Colours.  [default: on a terminal, unless NO_COLOR is set]")
@click.option("-q", "--quiet", is_flag=True, help="Nothing on stderr but errors.")
@_debug
@click.pass_obj
def analyze(
    state: dict[str, bool],
    /,
    paths: tuple[str, ...],
    html: str | None,
    no_html: bool,
    static: bool,
    json_path: str | None,
    format_: str,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    source: tuple[Path, ...],
    patch_path: str | None,
    rules_dir: str | None,
    config_path: Path | None,
    color: bool | None,
    quiet: bool,
    **workload: float | None,
) -> None:
    """Find the bottleneck in traces and write the report.

    PATH is a trace (.json, .json.gz, .zip), a folder (TensorBoard log folders too), or a quoted glob.
    """
    if html is not None and no_html:
        raise click.UsageError("use either --html or --no-html")
    if patch_path is not None and not source:
        raise click.UsageError("--patch needs the source: --source DIR")
    config = _load_config(config_path)
    html_path = None if no_html else _html_path(html, config)
    if json_path == "-":
        json_path, format_ = None, "json"
    _check_writable(html_path, json_path, patch_path)

    config = replace(
        config,
        select=select or config.select,
        ignore=ignore or config.ignore,
        rules_dir=rules_dir or config.rules_dir,
        **_given(workload),
    )
    result = _analyzed(paths, config, source, debug=state["debug"], quiet=quiet)
    inputs = [*paths, *(file.path for file in result.run.files)]
    if html_path is not None:
        _write_html(html_path, result, inputs, static=static)
    if json_path is not None:
        _write(json_path, result.to_json(), inputs)
    if patch_path is not None:
        _write_patch(patch_path, result, source, inputs, quiet=quiet)
    emit(_render(result, format_, color, html_path))
    if html_path is not None and format_ != "text" and not quiet:
        click.echo(f"Report: {visible(html_path)}", err=True)


@cli.command(context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, metavar="SCRIPT [ARGS]...")
@click.option("-m", "module", is_flag=True, help="SCRIPT is a module, as in python -m.")
@click.option("--logdir", type=_FILE, metavar="DIR", help=f"Where the traces go.  [default: {DEFAULT_LOGDIR}/NAME]")
@click.option("--name", help="Folder of this run in the log folder.  [default: script and time]")
@click.option(
    "--preset",
    type=click.Choice(["standard", "quick", "long", "timing"]),
    help="Which steps are recorded: 8-12 and 17-18; 2-4 and 6-7; 25-44 and 53-57; 8-12.  [default: standard]",
)
@click.option("--wait", type=click.IntRange(0), help="Steps before the profiler starts.  [default: 5]")
@click.option("--warmup", type=click.IntRange(0), help="Steps whose events are dropped.  [default: 3]")
@click.option("--active", type=click.IntRange(1), help="Steps that are recorded.  [default: 5]")
@click.option("--repeat", type=click.IntRange(1), help="How often that is done.  [default: 1]")
@click.option("--record-shapes", is_flag=True, help="Record shapes and dtypes of every op.")
@click.option("--profile-memory", is_flag=True, help="Record every allocation.")
@click.option("--with-stack", is_flag=True, help="Record the lines of code.")
@click.option(
    "--step-on",
    metavar="WHAT",
    help="What ends a step: batch, update, backward, forward or module:function.  [default: found out]",
)
@click.option(
    "--time-limit",
    type=click.FloatRange(0, min_open=True),
    default=120,
    show_default=True,
    metavar="SECONDS",
    help="Close a cycle early that records longer, not with several ranks.",
)
@click.option("--stop-after", is_flag=True, help="End the script when all is recorded.")
@click.option("--no-analyze", is_flag=True, help="Only record.")
@click.option("--html", metavar="PATH", help=f"Where the HTML report goes.  [default: {DEFAULT_HTML}]")
@click.option("--no-html", is_flag=True, help="Write no HTML report.")
@_patch
@_workload
@_config
@click.option("-q", "--quiet", is_flag=True, help="Nothing on stderr but errors.")
@_debug
@click.pass_obj
def run(
    state: dict[str, bool],
    /,
    command: tuple[str, ...],
    module: bool,
    logdir: Path | None,
    name: str | None,
    no_analyze: bool,
    html: str | None,
    no_html: bool,
    patch_path: str | None,
    config_path: Path | None,
    quiet: bool,
    tokens_per_step: float | None,
    samples_per_step: float | None,
    reference_throughput: float | None,
    **schedule: Any,
) -> None:
    """Profile a training script, unchanged, and analyze what was recorded.

    \b
    traceopt run train.py --epochs 3
    traceopt run -m package.train
    traceopt run -- torchrun --nproc-per-node 8 train.py

    First some steps are timed with nothing else recorded, then some with shapes, memory and lines of code. The options
    from --wait to --with-stack replace that by one kind of cycle, as torch.profiler has it. The exit code is that of
    the script.
    """
    if html is not None and no_html:
        raise click.UsageError("use either --html or --no-html")
    workload = {
        "tokens_per_step": tokens_per_step,
        "samples_per_step": samples_per_step,
        "reference_throughput": reference_throughput,
    }
    config = replace(_load_config(config_path), **_given(workload))
    html_path = None if no_html or no_analyze else _html_path(html, config)
    _check_writable(html_path, patch_path)

    from traceopt import running

    settings = running.settings(command, module, logdir, name, **schedule)
    code, outcome = running.record(command, module, settings, quiet=quiet)
    for line in running.remarks(outcome, quiet=quiet):
        click.echo(f"traceopt: {visible(line)}", err=True)
    if outcome.traces and not no_analyze and not running.was_told_to_end(code):
        paths = [str(path) for path in outcome.traces]
        source = running.source_folders(command)
        result = _analyzed(paths, config, source, debug=state["debug"], quiet=quiet)
        if html_path is not None:
            _write_html(html_path, result, paths)
        if patch_path is not None:
            _write_patch(patch_path, result, source, paths, quiet=quiet)
        emit(_render(result, "text", None, html_path))
        emit(running.footer(outcome, settings))
    elif outcome.traces and not quiet:
        click.echo(running.footer(outcome, settings), nl=False, err=True)
    running.end_alike(code)


@cli.command(context_settings={"allow_interspersed_args": False})
@click.argument("logdir", type=_FILE)
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[TENSORBOARD OPTIONS]...")
@_debug
def tensorboard(logdir: Path, options: tuple[str, ...]) -> None:
    """Show the traces below LOGDIR in TensorBoard, with torch-tb-profiler.

    Options after LOGDIR are those of TensorBoard: traceopt tensorboard traceopt-logs --port 6007
    """
    from traceopt.tensorboard import start

    start(logdir, options)


@cli.command()
@click.argument("path", metavar="TRACE")
@click.option("--fix", "fixes", multiple=True, callback=_split, help="Rules whose fixes are made: codes or names.")
@click.option(
    "--scale",
    "scales",
    type=(str, float),
    multiple=True,
    metavar="WHAT FACTOR",
    help="Scale what matches kernel~PATTERN (GPU time) or host~PATTERN (time of operators and frames).",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
@_rules_dir
@_config
@click.option("-q", "--quiet", is_flag=True, help="Nothing on stderr but errors.")
@_debug
def whatif(
    path: str,
    fixes: tuple[str, ...],
    scales: tuple[tuple[str, float], ...],
    as_json: bool,
    rules_dir: str | None,
    config_path: Path | None,
    quiet: bool,
) -> None:
    """Replay the step with fixes made: what it takes then, and what limits it.

    \b
    traceopt whatif trace.json.gz --fix DL001 --fix TC001
    traceopt whatif trace.json.gz --scale kernel~gemm 0.5
    """
    if not fixes and not scales:
        raise click.UsageError("say what changes: --fix CODE or --scale WHAT FACTOR")
    config = _load_config(config_path)

    from traceopt.reports.whatif import render_whatif
    from traceopt.whatif import what_if

    with Progress(enabled=sys.stderr.isatty() and not quiet) as progress:
        document = what_if(
            path, fixes, scales, rules_dir=rules_dir or config.rules_dir, thresholds=config.rules, progress=progress
        )
    emit(document.to_json() if as_json else render_whatif(document))


@cli.command()
@click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="The output.",
)
@_rules_dir
@_config
@_debug
def rules(format_: str, rules_dir: str | None, config_path: Path | None) -> None:
    """List all rules."""
    registry = _load_registry(rules_dir, config_path)
    if format_ == "json":
        import json

        from traceopt.rules.registry import summary

        emit(json.dumps([summary(rule) for rule in registry.rules], indent=2, default=str) + "\n")
        return
    rows = [(rule.code, rule.name, rule.family, rule.title) for rule in registry.rules]
    table = [("CODE", "NAME", "FAMILY", "TITLE"), *rows]
    widths = [max(len(row[column]) for row in table) for column in range(3)]
    for row in table:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        emit("  ".join([*cells, row[3]]) + "\n")


@cli.command()
@click.argument("code")
@_rules_dir
@_config
@_debug
def rule(code: str, rules_dir: str | None, config_path: Path | None) -> None:
    """Print the page of one rule, given its CODE or name."""
    from traceopt.rules.registry import rule_page

    emit(rule_page(_load_registry(rules_dir, config_path).find(code)))


@cli.command()
@click.argument("report", metavar="REPORT.html")
@click.option("--json", "json_path", metavar="PATH", default="-", help="Where the JSON goes.  [default: stdout]")
@_debug
def export(report: str, json_path: str) -> None:
    """Get the result document (JSON) back out of an HTML report."""
    from traceopt.reports.html import embedded_result
    from traceopt.result import Result

    try:
        data = Result.from_json(embedded_result(Path(report).read_text(encoding="utf-8"))).to_json()
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {report}: {one_line(str(error))}") from error
    if json_path == "-":
        emit(data)
    else:
        write_atomically(Path(json_path), data)


def _given(options: Mapping[str, float | None]) -> dict[str, Any]:
    """Those that stand on the command line."""
    return {name: value for name, value in options.items() if value is not None}


def _analyzed(paths: Sequence[str], config: Config, source: Sequence[Path], *, debug: bool, quiet: bool) -> Result:
    from traceopt.api import analyze as run_analysis

    progress = Progress(enabled=sys.stderr.isatty() and not quiet)
    with progress:
        return run_analysis(
            paths,
            select=config.select,
            ignore=config.ignore,
            rules_dir=config.rules_dir,
            thresholds=config.rules,
            source=source,
            tokens_per_step=config.tokens_per_step,
            samples_per_step=config.samples_per_step,
            reference_throughput=config.reference_throughput,
            debug=debug,
            progress=progress,
        )


def _write_html(path: str, result: Result, inputs: Iterable[str], *, static: bool = False) -> None:
    from traceopt.reports.html import render_html

    _write(path, render_html(result, static=static).encode("utf-8", "backslashreplace"), inputs)


def _write_patch(path: str, result: Result, source: Sequence[Path], inputs: Iterable[str], *, quiet: bool) -> None:
    from traceopt.rules.patches.patch import combined_patch

    patch, codes = combined_patch(result.findings, source)
    if patch:
        _write(path, patch.encode(), inputs)
    if not quiet:
        text = (
            f"{visible(path)} changes {', '.join(codes)}"
            if patch
            else f"no fix has a patch: {visible(path)} is not written"
        )
        click.echo(f"traceopt: {text}", err=True)


def _check_writable(*paths: str | None) -> None:
    for path in paths:
        if path is not None:
            check_writable(Path(path))


def _load_config(path: Path | None) -> Config:
    from traceopt.config import load_config

    return load_config(path)


def _load_registry(rules_dir: str | None, config_path: Path | None) -> Registry:
    from traceopt.rules.registry import load_rules

    registry = load_rules(rules_dir or _load_config(config_path).rules_dir)
    for warning in registry.warnings:
        click.echo(f"traceopt: warning: {warning}", err=True)
    return registry


def _html_path(option: str | None, config: Config) -> str | None:
    if option is not None:
        return option
    if config.html is False:
        return None
    return config.html if isinstance(config.html, str) else DEFAULT_HTML


def _render(result: Result, format_: str, color: bool | None, html_path: str | None) -> str | bytes:
    if format_ == "json":
        return result.to_json()
    from traceopt.reports.terminal import render_concise, render_terminal

    if format_ == "concise":
        return _ended(render_concise(result))
    import shutil

    if color is None:
        color = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    width = max(40, min(100, shutil.get_terminal_size((80, 24)).columns))
    text = _ended(render_terminal(result, width=width, color=color, unicode=_speaks_unicode(sys.stdout)))
    return text if html_path is None else f"{text}Report: {visible(html_path)}\n"


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"


def _speaks_unicode(stream: TextIO) -> bool:
    try:
        "█→≈×µ".encode(stream.encoding)
    except (LookupError, UnicodeEncodeError):
        return False
    return True


def _write(path: str, data: bytes, inputs: Iterable[str]) -> None:
    target = Path(path)
    if target.exists() and any(os.path.exists(name) and target.samefile(name) for name in inputs):
        raise OutputError(f"cannot write {path}: it is one of the traces")
    write_atomically(target, data)
