"""What a page of the documentation tells a reader to run, and whether the command line accepts it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import click

from traceopt.cli import cli

PROGRAMS = ("traceopt", "make", "pip", "python", ".venv/bin/python", ".venv/bin/ruff")
_FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")


def fences(page: Path, language: str) -> list[str]:
    return [found["body"] for found in _FENCE.finditer(page.read_text()) if found["language"] == language]


def block_commands(page: Path) -> list[str]:
    """Command lines of indented blocks, which a reader copies whole."""
    text = _FENCE.sub("", page.read_text()).replace("\\\n", " ")
    return _commands(line.strip() for line in text.splitlines() if line.startswith("    "))


def inline_commands(page: Path) -> list[str]:
    """Commands inside sentences, which may lack arguments."""
    text = _FENCE.sub("", page.read_text())
    lines = [line for line in text.splitlines() if not line.startswith("    ")]
    return _commands(part for line in lines for code in _INLINE.findall(line) for part in code.split("&&"))


def _commands(lines: Iterable[str]) -> list[str]:
    return [line.strip() for line in lines if line.strip().startswith(tuple(f"{program} " for program in PROGRAMS))]


def group_context() -> click.Context:
    return click.Context(cli, obj={"debug": False}, **cli.context_settings)


def traceopt_command(arguments: list[str]) -> tuple[click.Command, str, list[str]]:
    """Raises click.UsageError when there is no such command."""
    name, command, rest = cli.resolve_command(group_context(), arguments)
    assert command is not None
    assert name is not None
    return command, name, rest


def parse_traceopt(arguments: list[str]) -> None:
    """Raises click.UsageError when the command line has no such command, option or value."""
    command, name, rest = traceopt_command(arguments)
    command.make_context(name, rest, parent=group_context())
