"""What the commands share: settings and rules, the analysis with a progress line, and writing the result."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from traceopt.cli.shared.options import DEFAULT_HTML
from traceopt.errors import OutputError, visible
from traceopt.output import StderrProgress, check_writable, emit, write_atomically

if TYPE_CHECKING:
    from traceopt.config import Config
    from traceopt.result.document import Result
    from traceopt.rules.registry import Registry


def run_names(paths: Sequence[str]) -> list[str]:
    """The runs that the paths hold, newest first. Raises InputError if there is none."""
    from traceopt.api import find_runs

    return [run.name for run in find_runs(paths)]


def analyzed(
    paths: Sequence[str], source: Sequence[Path], config: Config, *, run: str | None = None, debug: bool, quiet: bool
) -> Result:
    from traceopt.api import analyze as run_analysis

    progress = StderrProgress(enabled=sys.stderr.isatty() and not quiet)
    with progress:
        return run_analysis(
            paths,
            select=config.select,
            ignore=config.ignore,
            rules_dir=config.rules_dir,
            thresholds=config.rules,
            devices=config.devices,
            source=source,
            run=run,
            tokens_per_step=config.tokens_per_step,
            samples_per_step=config.samples_per_step,
            reference_throughput=config.reference_throughput,
            price_per_hour=config.price_per_hour,
            jobs=config.jobs,
            scheduler=config.scheduler,
            cache=config.cache,
            debug=debug,
            progress=progress,
        )


def analysis_with(config: Config, *, debug: bool) -> Callable[[Sequence[str], Sequence[Path]], Result]:
    """The analysis of what a script has recorded in copies of its source, without a progress line."""
    return partial(analyzed, config=config, debug=debug, quiet=True)


def write_html(path: str, result: Result, inputs: Iterable[str], *, static: bool = False) -> None:
    from traceopt.reports.html.page import render_html

    write_output(path, render_html(result, static=static).encode("utf-8", "backslashreplace"), inputs)


def write_patch(path: str, result: Result, source: Sequence[Path], inputs: Iterable[str], *, quiet: bool) -> None:
    from traceopt.rules.fixes.patches.patch import combined_patch

    patch, codes = combined_patch(result.findings, source)
    if patch:
        write_output(path, patch.encode(), inputs)
    if not quiet:
        text = (
            f"{visible(path)} changes {', '.join(codes)}"
            if patch
            else f"no fix has a patch, so {visible(path)} was not written"
        )
        click.echo(f"traceopt: {text}", err=True)


def check_all_writable(*paths: str | None) -> None:
    for path in paths:
        if path is not None:
            check_writable(Path(path))


def configuration(path: Path | None, **options: Any) -> Config:
    """The settings of the file, with the options of the command line in place of theirs."""
    from msgspec.structs import replace

    from traceopt.config import load_config

    return replace(load_config(path), **{name: value for name, value in options.items() if value})


def registry_of(rules_dir: str | None, config_path: Path | None) -> Registry:
    from traceopt.rules.registry import load_rules

    registry = load_rules(rules_dir or configuration(config_path).rules_dir)
    for warning in registry.warnings:
        click.echo(f"traceopt: warning: {warning}", err=True)
    return registry


def html_target(html: str | None, no_html: bool, config: Config) -> str | None:
    """Where to write the HTML report, or None. Raises click.UsageError if both options are given."""
    if html is not None and no_html:
        raise click.UsageError("use either --html or --no-html")
    if html is not None:
        return html
    if no_html or config.html is False:
        return None
    return config.html if isinstance(config.html, str) else DEFAULT_HTML


def rendered(result: Result, format_: str, color: bool | None, html_path: str | None) -> str | bytes:
    if format_ == "json":
        return result.to_json()
    if format_ == "agent":
        from traceopt.reports.agent.report import render_agent

        return render_agent(result)
    from traceopt.reports.text.terminal import render_concise, render_terminal

    if format_ == "concise":
        return _ended(render_concise(result))
    text = _ended(render_terminal(result, **terminal(color)))
    return text if html_path is None else f"{text}Report: {visible(html_path)}\n"


def terminal(color: bool | None) -> dict[str, Any]:
    """Width, color and Unicode support of stdout, for the text renderers. `color` None: detect it."""
    import shutil

    if color is None:
        color = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    width = max(40, min(100, shutil.get_terminal_size((80, 24)).columns))
    return {"width": width, "color": color, "unicode": _speaks_unicode(sys.stdout)}


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"


def _speaks_unicode(stream: TextIO) -> bool:
    try:
        "█→≈×µ".encode(stream.encoding)
    except (LookupError, UnicodeEncodeError):
        return False
    return True


def write_output(path: str, data: bytes, inputs: Iterable[str]) -> None:
    target = Path(path)
    if target.exists() and any(os.path.exists(name) and target.samefile(name) for name in inputs):
        raise OutputError(f"cannot write {path}: it would overwrite an input")
    write_atomically(target, data)


def emit_with_json(text: str, document: bytes, json_path: str | None, inputs: Iterable[str]) -> None:
    """Prints the text, and writes the JSON document if it has a path. With the path "-" it is printed instead."""
    if json_path is not None and json_path != "-":
        write_output(json_path, document, inputs)
    emit(document if json_path == "-" else text)
