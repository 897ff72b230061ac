"""The options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from pathlib import Path
from typing import Any

import click

Command = Callable[..., Any]  # the function of a command
Option = Callable[[Command], Command]  # a decorator that adds one option or several

DEFAULT_HTML = "traceopt-report.html"
FILE = click.Path(path_type=Path)
_AMOUNT = click.FloatRange(0, min_open=True)


def options(*listed: Option) -> Option:
    """One decorator that adds several options; `--help` lists them in this order."""

    def add(command: Command) -> Command:
        return reduce(lambda decorated, option: option(decorated), reversed(listed), command)

    return add


def split_codes(_: click.Context, __: click.Parameter, values: Iterable[str]) -> tuple[str, ...]:
    return tuple(code.strip() for value in values for code in value.split(",") if code.strip())


def _remember_debug(context: click.Context, _: click.Parameter, value: bool) -> None:
    context.obj["debug"] = value


def _no_source_file(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is not None and value.endswith(".py"):
        raise click.BadParameter(f"{value} is a Python file; give the name of a patch file")
    return value


def json_option(document: str, **more: Any) -> Option:
    return click.option("--json", "json_path", metavar="PATH", help=f"Also write the {document}; - is stdout.", **more)


# The same for commands whose --json was once a flag: without a path it is stdout.
lone_json_option = json_option("document", is_flag=False, flag_value="-")

csv_option = click.option(
    "--csv", type=FILE, metavar="DIR", help="Also write each table as a CSV file, with the columns of docs/frames.md."
)


def format_option(*formats: str) -> Option:
    return click.option(
        "--format",
        "format_",
        type=click.Choice(formats),
        default="text",
        show_default=True,
        help="What to print on stdout.",
    )


def name_option(what: str) -> Option:
    return click.option(
        "--name", metavar="NAME", help=f"Name of this {what}'s folder in the log folder.  [default: script and time]"
    )


def preset_option(what: str) -> Option:
    return click.option(
        "--preset", type=click.Choice(["standard", "quick", "long", "timing"]), help=f"{what}  [default: standard]"
    )


def budget_option(minutes: int, what: str) -> Option:
    return click.option(
        "--budget",
        type=_AMOUNT,
        default=minutes,
        show_default=True,
        metavar="MINUTES",
        help=f"Begin no more {what} after this time.",
    )


command_argument = click.argument("command", nargs=-1, required=True, metavar="SCRIPT [ARGS]...")
module_option = click.option("-m", "module", is_flag=True, help="SCRIPT is a module, as in python -m.")
step_on_option = click.option(
    "--step-on",
    metavar="WHAT",
    help="What ends a step: batch, update, backward, forward or module:function.  [default: detected]",
)
logdir_option = click.option(
    "--logdir", type=FILE, metavar="DIR", help="Folder for the traces.  [default: traceopt-logs/NAME]"
)
debug_option = click.option(
    "--debug", is_flag=True, expose_value=False, callback=_remember_debug, help="Show the traceback of an error."
)
quiet_option = click.option("-q", "--quiet", is_flag=True, help="Print nothing on stderr except errors.")
config_option = click.option("--config", "config_path", type=FILE, help="Use this settings file, not the nearest one.")
rules_dir_option = click.option(
    "--rules-dir", metavar="DIR", help="Also load the rules in the *.py files of this folder."
)
markdown_option = click.option(
    "--markdown", "markdown_path", metavar="PATH", help="Also write a pull request comment (Markdown)."
)
patch_option = click.option(
    "--patch",
    "patch_path",
    metavar="FILE",
    callback=_no_source_file,
    help="Also write one patch with all fixes that have one.",
)
run_option = click.option("--run", metavar="NAME", help="The run to read, if PATH holds several. Default: the newest.")
report_options = options(
    click.option("--html", metavar="PATH", help=f"Where to write the HTML report.  [default: {DEFAULT_HTML}]"),
    click.option("--no-html", is_flag=True, help="Write no HTML report."),
    click.option("--static", is_flag=True, help="Write HTML without interactive charts: a smaller file."),
)
select_options = options(
    click.option(
        "--select",
        metavar="RULES",
        multiple=True,
        callback=split_codes,
        help="Rules to run: codes, prefixes or names, separated by commas.",
    ),
    click.option(
        "--ignore",
        metavar="RULES",
        multiple=True,
        callback=split_codes,
        help="Rules to skip; the more specific entry wins.",
    ),
)
color_option = click.option(
    "--color/--no-color", default=None, help="Use color.  [default: on a terminal, unless NO_COLOR is set]"
)
workload_options = options(
    click.option("--tokens-per-step", type=_AMOUNT, metavar="N", help="Tokens that one GPU processes per step."),
    click.option("--samples-per-step", type=_AMOUNT, metavar="N", help="Samples that one GPU processes per step."),
    click.option(
        "--reference-throughput",
        type=_AMOUNT,
        metavar="N",
        help="Rate of one GPU to compare with, in tokens (or samples) per second.",
    ),
    click.option("--price-per-hour", type=_AMOUNT, metavar="N", help="Price of an hour of the whole job, in dollars."),
)
# What `analyze` and `compare` have in common: how traces are read, and how the commands print.
reading_options = options(
    rules_dir_option,
    click.option(
        "--jobs",
        type=click.IntRange(1),
        metavar="N",
        help="Number of ranks to read at a time, one process each.  [default: as cores and memory allow]",
    ),
    click.option("--scheduler", metavar="ADDRESS", help="Read the ranks on this Dask cluster: tcp://host:8786."),
    click.option("--cache", metavar="DIR", help="Store each rank's result here, to skip unchanged traces."),
    config_option,
    color_option,
    quiet_option,
    debug_option,
)
# How scripts run that are timed: in `try`, `tune` and `compare --against`.
timing_options = options(
    click.option(
        "--time-limit",
        type=click.FloatRange(0, min_open=True),
        default=300,
        show_default=True,
        metavar="SECONDS",
        help="End a run that takes longer.",
    ),
    click.option(
        "--steps", type=click.IntRange(3), metavar="N", help="Steps to measure in a run.  [default: about 5 seconds]"
    ),
    logdir_option,
    step_on_option,
)
# What `try` and `tune` have in common: how scripts run, and what is written.
trial_options = options(
    timing_options,
    click.option("--apply", "apply_", is_flag=True, help="Write what was kept into the working tree, if it is clean."),
    click.option("--patch-out", metavar="FILE", help="Write what was kept as one patch."),
    click.option("--html", metavar="PATH", help="Where to write the HTML report.  [default: in the log folder]"),
    click.option("--no-html", is_flag=True, help="Write no HTML report."),
)
