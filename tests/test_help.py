"""`--help`: examples that parse, groups that hold every command and option, 80 columns, and nothing heavy imported."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest
from click.testing import CliRunner
from support.documentation import parse_traceopt

from traceopt.cli import cli
from traceopt.cli.shared.examples import EXAMPLES
from traceopt.cli.shared.gating import GATE_METRICS
from traceopt.cli.shared.help import COMMAND_GROUPS, OPTION_GROUPS
from traceopt.comparison.metrics import METRICS

COLUMNS = 80
COMMANDS = [[], *([name] for name in cli.commands)]

of_each_command = pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(["traceopt", *command]))


def help_of(command: list[str]) -> str:
    return CliRunner().invoke(cli, [*command, "--help"], prog_name="traceopt", terminal_width=COLUMNS).stdout


@of_each_command
def test_it_has_examples_and_fits_a_terminal(command: list[str]) -> None:
    text = help_of(command)
    assert "\nExamples:\n" in text
    for about, line in EXAMPLES[command[0] if command else "traceopt"].items():
        assert f"\n  # {about}\n  {line}\n" in text
    assert max(map(len, text.splitlines())) <= COLUMNS


@of_each_command
def test_it_breaks_no_token_and_shows_no_types_of_click(command: list[str]) -> None:
    text = help_of(command)
    assert not [line for line in text.splitlines() if re.search(r"\w-$", line)]
    assert not [word for word in ("RANGE", "TEXT", "x>") if word in text]


def test_gates_are_listed() -> None:
    assert tuple(METRICS) == GATE_METRICS
    assert all(name in help_of(["analyze"]) for name in METRICS)


@pytest.mark.parametrize("line", [line for examples in EXAMPLES.values() for line in examples.values()])
def test_an_example_is_accepted(line: str) -> None:
    program, *arguments = shlex.split(line.partition(" > ")[0])
    assert program == "traceopt"
    parse_traceopt(arguments)


def test_the_examples_of_a_command_run_it() -> None:
    assert list(EXAMPLES) == ["traceopt", *(name for names in COMMAND_GROUPS.values() for name in names)]
    for name in cli.commands:
        assert any(line.split()[1] == name for line in EXAMPLES[name].values())


def test_groups_hold_every_command_and_option() -> None:
    assert {name for names in COMMAND_GROUPS.values() for name in names} == set(cli.commands)
    options = {opt.lstrip("-") for command in cli.commands.values() for param in command.params for opt in param.opts}
    assert {name for names in OPTION_GROUPS.values() for name in names} <= options | {"help", "version"}


def test_without_a_command_the_help_goes_to_stderr() -> None:
    bare = CliRunner().invoke(cli, [], prog_name="traceopt")
    assert bare.exit_code == 2
    assert "Record and analyze:\n  run " in bare.stderr


def test_it_imports_nothing_heavy() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "traceopt", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "click" in imported
    assert not imported & {"numpy", "jinja2", "pandas", "torch", "msgspec", "orjson", "isal", "plotly"}
