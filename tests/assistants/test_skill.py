"""The skill, and what `traceopt mcp` says without its extra."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from traceopt.cli import cli

SKILL = Path(__file__).resolve().parents[2] / "traceopt" / "assistants" / "SKILL.md"


def test_the_skill_is_printed_as_it_is_installed() -> None:
    done = CliRunner().invoke(cli, ["skill"])
    assert done.exit_code == 0
    assert done.stdout_bytes == SKILL.read_bytes()


def test_the_skill_has_the_head_that_assistants_read() -> None:
    _, head, body = SKILL.read_text().split("---\n", 2)
    about = yaml.safe_load(head)
    assert about["name"] == "traceopt"
    assert 0 < len(about["description"]) <= 1_024
    order = ["traceopt run", "traceopt analyze", "--patch fix.diff", "traceopt try", "traceopt compare"]
    assert [body.index(step) for step in order] == sorted(body.index(step) for step in order)


def test_without_the_extra_one_line_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name == "traceopt.assistants.server" or name.startswith("mcp.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "mcp", None)
    done = CliRunner().invoke(cli, ["mcp"])
    assert done.exit_code == 2
    assert (
        done.stderr == "traceopt: error: the MCP server needs the package mcp: pip install 'traceopt-profiler[mcp]'\n"
    )


def test_a_root_that_does_not_exist(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["mcp", "--root", str(tmp_path / "nowhere")])
    assert done.exit_code == 2
    assert "no such folder" in done.stderr
