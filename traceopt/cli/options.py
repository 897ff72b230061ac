"""The options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from pathlib import Path

import click

DEFAULT_HTML = "traceopt-report.html"
FILE = click.Path(path_type=Path)


def split_codes(_: click.Context, __: click.Parameter, values: Iterable[str]) -> tuple[str, ...]:
    return tuple(code.strip() for value in values for code in value.split(",") if code.strip())


def _remember_debug(context: click.Context, _: click.Parameter, value: bool) -> None:
    context.obj["debug"] = value


def _no_source_file(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is not None and value.endswith(".py"):
        raise click.BadParameter(f"{value} is a Python file; name the patch to write")
    return value


debug_option = click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    callback=_remember_debug,
    help="Show the traceback of an error.",
)
rules_dir_option = click.option(
    "--rules-dir", metavar="DIR", help="Also load the rules in the *.py files of this folder."
)
patch_option = click.option(
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
_ranks_options = (
    click.option(
        "--jobs",
        type=click.IntRange(1),
        metavar="N",
        help="Ranks to read at a time, each in a process.  [default: what cores and memory allow]",
    ),
    click.option("--scheduler", metavar="ADDRESS", help="Read the ranks on this Dask cluster: tcp://host:8786."),
    click.option("--cache", metavar="DIR", help="Keep what each rank gave here; an unchanged trace is read once."),
)
config_option = click.option("--config", "config_path", type=FILE, help="Settings file instead of the nearest one.")


def workload_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say what a step processes."""
    return reduce(lambda wrapped, option: option(wrapped), reversed(_workload_options), command)


def ranks_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say where many ranks are analyzed."""
    return reduce(lambda wrapped, option: option(wrapped), reversed(_ranks_options), command)
