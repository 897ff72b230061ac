"""What `--help` prints: examples, then commands and options in groups, in the order of these tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import click

from traceopt.cli.shared.examples import EXAMPLES

COMMAND_GROUPS = {
    "Record and analyze": ("run", "record", "analyze", "compare", "bisect"),
    "Predict and measure": ("whatif", "try", "tune", "measure", "accuracy"),
    "Open traces": ("view", "cut", "tensorboard"),
    "Rules": ("rules", "rule"),
    "Result documents": ("export", "schema"),
    "Coding assistants": ("mcp", "skill"),
}
# An option that is in no group is one of the command's own.
OPTION_GROUPS = {
    "Recording": (
        "logdir", "name", "preset", "wait", "warmup", "active", "repeat", "record-shapes", "profile-memory",
        "with-stack", "memory-snapshot", "step-on", "time-limit", "stop-after",
        "record-when", "record-at", "record-on-request",
    ),
    "Traces": ("run", "all", "jobs", "scheduler", "cache"),
    "Output": ("html", "no-html", "static", "json", "csv", "format", "patch-out"),
    "Pull requests": ("markdown", "sarif", "job-summary", "label"),
    "Baseline and gates": ("baseline", "write-baseline", "fail-on", "warn-on", "exit-zero"),
    "Rules": ("select", "ignore", "rules-dir"),
    "Throughput and cost": ("tokens-per-step", "samples-per-step", "reference-throughput", "price-per-hour"),
    "General": ("config", "color", "quiet", "debug", "help", "version"),
}  # fmt: skip
_NAME_COLUMNS = 30  # a longer name has a line of its own
_RANGE = re.compile(r"  \[x>=?\d+\]$|; x>=?\d+(?=\]$)")  # what click adds to the help of a number
_WHOLE_HYPHEN = "\N{NON-BREAKING HYPHEN}"


class _Formatter(click.HelpFormatter):
    """Breaks no line at a hyphen, so that what one may type stays whole."""

    def write_text(self, text: str) -> None:
        super().write_text(text.replace("-", _WHOLE_HYPHEN))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        whole = [(name, text.replace("-", _WHOLE_HYPHEN)) for name, text in rows]
        super().write_dl(whole, col_max, col_spacing)

    def getvalue(self) -> str:
        return super().getvalue().replace(_WHOLE_HYPHEN, "-")


class HelpContext(click.Context):
    formatter_class = _Formatter


class ExplainedCommand(click.Command):
    """A command whose help has examples, and its options in groups."""

    context_class = HelpContext

    def format_help_text(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(context, formatter)
        write_examples(self, formatter)

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        records = {param.opts[-1].lstrip("-"): param.get_help_record(context) for param in self.get_params(context)}
        rows = {
            name: (record[0], _RANGE.sub("", record[1]))
            for name, record in records.items()
            if record is not None and record[1]
        }
        _write(formatter, "Options", rows, OPTION_GROUPS)


def write_examples(command: click.Command, formatter: click.HelpFormatter) -> None:
    """What each example does, and below it the line to type, which is not broken."""
    with formatter.section("Examples"):
        for about, line in EXAMPLES[command.name or ""].items():
            formatter.write(f"{'':{formatter.current_indent}}# {about}\n{'':{formatter.current_indent}}{line}\n")


def write_commands(group: click.Group, formatter: click.HelpFormatter) -> None:
    """The commands of a group, each with the whole first sentence of its help."""
    rows = {name: (name, command.get_short_help_str(200)) for name, command in group.commands.items()}
    _write(formatter, "Commands", rows, COMMAND_GROUPS)


def _write(
    formatter: click.HelpFormatter, rest: str, rows: Mapping[str, tuple[str, str]], groups: Mapping[str, Sequence[str]]
) -> None:
    """Rows by group, in one pair of columns. `rest`: the heading of those in no group, which come first."""
    grouped = {name for names in groups.values() for name in names}
    columns = max(len(name) for name, _ in rows.values() if len(name) <= _NAME_COLUMNS)
    found = {
        heading: [(rows[name][0].ljust(columns), rows[name][1]) for name in names if name in rows]
        for heading, names in {rest: [name for name in rows if name not in grouped], **groups}.items()
    }
    chosen = {heading: of_group for heading, of_group in found.items() if of_group}
    for heading, of_group in chosen.items():
        with formatter.section(heading if len(chosen) > 1 else rest):
            formatter.write_dl(of_group, col_max=columns)
