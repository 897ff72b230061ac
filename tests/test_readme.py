"""What the documentation says is true: its commands parse, its links lead somewhere, its examples run.

`python tests/test_readme.py` writes the example output in the README anew.
"""

from __future__ import annotations

import importlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import Any

import click
import pytest
from support.documentation import block_commands, fences, inline_commands, parse_traceopt, traceopt_command

from traceopt.config import load_config
from traceopt.rules.registry import load_rules

tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
DOCS = ("docs", "docs/gallery", "docs/guides")
PAGES = sorted(
    page
    for folder in ("", *DOCS, "benchmarks", "fixtures", ".github", "traceopt/assistants")
    for page in (ROOT / folder).glob("*.md")
)
MOST_README_LINES = 120
EXAMPLE = "traceopt analyze fixtures/traces/five_faults.json.gz --no-html"

_LINK = re.compile(r"\]\((?!https?:)([^)#]+)[^)]*\)")
_OUTPUT = re.compile(rf"(?<=    {re.escape(EXAMPLE)}\n\n```text\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)


def check_traceopt_options(arguments: list[str]) -> None:
    command, _, rest = traceopt_command(arguments)
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    own = takewhile(lambda argument: argument != "--", rest)  # what follows is a launcher's
    assert {argument.partition("=")[0] for argument in own if argument.startswith("-")} <= known


def check_make(arguments: list[str]) -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = {found for line in re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE) for found in line.split()}
    for argument in arguments:
        variable, equals, _ = argument.partition("=")
        assert re.search(rf"^{variable} \?=", makefile, re.MULTILINE) if equals else argument in targets, argument


def check_python(arguments: list[str]) -> None:
    if arguments[0] == "-m":
        module = arguments[1].replace(".", "/")
        arguments = [f"{module}/__main__.py" if (ROOT / module).is_dir() else f"{module}.py", *arguments[2:]]
    script = ROOT / arguments[0]
    assert script.is_file()
    shared = script.parent / "shared.py"  # the workloads' arguments
    source = script.read_text() + (shared.read_text() if shared.exists() else "")
    for option in (argument for argument in arguments[1:] if argument.startswith("--")):
        assert f'"{option}"' in source, f"{arguments[0]} has no {option}"


@pytest.mark.parametrize("command", dict.fromkeys(line for page in PAGES for line in block_commands(page)))
def test_commands_to_copy_are_accepted(command: str) -> None:
    check(command, parse_traceopt)


@pytest.mark.parametrize("command", dict.fromkeys(line for page in PAGES for line in inline_commands(page)))
def test_commands_in_sentences_exist(command: str) -> None:
    check(command, check_traceopt_options)


def check(command: str, check_traceopt: Callable[[list[str]], None]) -> None:
    program, *arguments = shlex.split(command, comments=True)
    if program == "traceopt":
        check_traceopt(arguments)
    elif program == "make":
        check_make(arguments)
    elif program.endswith("python"):
        check_python(arguments)
    else:
        assert program.endswith("ruff") or _installs_this(arguments)


def _installs_this(arguments: list[str]) -> bool:
    """`pip install .`, with extras that exist."""
    action, target = arguments
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    named = re.fullmatch(r"\.(\[([a-z,]+)\])?", target)
    return action == "install" and named is not None and set((named[2] or "").split(",")) - {""} <= set(extras)


def test_the_first_two_commands_are_the_promised_ones() -> None:
    """Of the blocks, which work in a fresh checkout. The text before them says how to use it on a script."""
    assert [shlex.split(line, comments=True) for line in block_commands(README)[:2]] == [
        ["make", "demo"],
        ["make", "test"],
    ]
    assert inline_commands(README)[:2] == ["pip install .", "traceopt run train.py"]
    text = README.read_text()
    assert text.index("`pip install .`") < text.index("`traceopt run train.py`") < text.index("make demo")
    assert text.count("\n") <= MOST_README_LINES


def test_a_command_that_does_not_exist_would_be_noticed() -> None:
    with pytest.raises(click.UsageError):
        parse_traceopt(["analyze", "logs", "--no-such-option"])
    with pytest.raises(AssertionError):
        check_make(["no-such-target"])
    with pytest.raises(AssertionError):
        check_python(["fixtures/generate.py", "--no-such-option"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = [link for link in _LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert not broken


def test_the_index_lists_every_page() -> None:
    linked = set(_LINK.findall((ROOT / "docs" / "README.md").read_text()))
    assert [page.name for page in (ROOT / "docs").glob("*.md") if page.name not in linked | {"README.md"}] == []


def example_output() -> str:
    environment = {**os.environ, "COLUMNS": "88", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, "-m", *shlex.split(EXAMPLE)], cwd=ROOT, env=environment, capture_output=True, check=True
    )
    return done.stdout.decode()


def test_the_example_is_what_the_program_prints() -> None:
    found = _OUTPUT.search(README.read_text())
    assert found is not None
    assert found[0] == example_output(), "run: make docs"


def test_the_extras_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    text = "\n".join(page.read_text() for page in PAGES)
    named = {extra for found in re.findall(r"traceopt-profiler\[([\w,]+)\]", text) for extra in found.split(",")}
    assert named <= extras.keys()
    assert named
    assert re.findall(r"traceopt\[\w+\]", text) == [], "the distribution is called traceopt-profiler"


def test_the_settings_are_accepted(tmp_path: Path) -> None:
    (settings,) = fences(ROOT / "docs" / "settings.md", "toml")
    path = tmp_path / "pyproject.toml"
    path.write_text(settings)
    thresholds = load_config(path).rules
    assert thresholds
    for code, table in thresholds.items():
        load_rules().find(code)(**table)


@pytest.mark.slow
def test_the_example_rule_works(tmp_path: Path) -> None:
    source, test = fences(ROOT / "docs" / "rules-development.md", "python")
    (tmp_path / "report_in_step.py").write_text(source)
    command = [sys.executable, "-m", "traceopt", "analyze", "--no-html", "--rules-dir", str(tmp_path)]
    command += ["--select", "ACME", "--format", "concise"]

    def run(trace: str) -> str:
        done = subprocess.run([*command, f"fixtures/traces/{trace}.json.gz"], cwd=ROOT, capture_output=True, check=True)
        assert not done.stderr
        return done.stdout.decode()

    assert "train.py:118: ACME001 saves 4.9 ms" in run("five_faults")
    assert "ACME001" not in run("healthy")
    (tmp_path / "test_report_in_step.py").write_text(test)
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-c", os.devnull, str(tmp_path)], capture_output=True)
    assert b"2 passed" in done.stdout, done.stdout.decode()


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:CUDA is not available")
def test_the_recording_snippet_makes_a_trace_with_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    page = ROOT / "docs" / "recording.md"
    (snippet,) = fences(page, "python")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"loader": torch.ones(12, 8), "train_step": torch.sum}
    exec(compile(snippet, str(page), "exec"), names)  # noqa: S102
    from traceopt.api import analyze

    result = analyze("logs")
    assert result.step.source == "profiler_step"
    assert result.step.count == 5
    assert result.run.recorded.shapes
    assert result.run.recorded.stacks


if __name__ == "__main__":
    README.write_text(_OUTPUT.sub(lambda _: example_output(), README.read_text(), count=1))
