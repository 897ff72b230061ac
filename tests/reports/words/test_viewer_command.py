"""The command that opens the shown step in Perfetto."""

from __future__ import annotations

import shlex

import pytest
import sample
from click.testing import CliRunner
from msgspec.structs import replace

from fixtures.generate import generate
from traceopt.api import analyze
from traceopt.cli import cli
from traceopt.reports.html.page import render_html
from traceopt.reports.words.display import for_display
from traceopt.reports.words.viewer_command import viewer_command
from traceopt.result.document import Result


def with_path(path: str, **step: str) -> Result:
    result = sample.rich()
    rows = [replace(row, path=path) for row in result.ranks if row.rank == result.run.shown_rank][:1]
    return replace(result, ranks=rows, step=replace(result.step, **step))


@pytest.mark.parametrize("path", ["trace.json.gz", "my logs/a'b; rm -rf $(x).json", "<script>.json"])
def test_the_path_is_one_word_of_the_command(path: str) -> None:
    command = viewer_command(with_path(path, source="profiler_step"), "ProfilerStep#12")
    assert command is not None
    words = shlex.split(command)
    assert words[:7] == ["traceopt", "cut", path, "--step", "12", "-o", "step.json.gz"]
    assert words[7:] == ["&&", "traceopt", "view", "step.json.gz"]


def test_a_trace_without_steps_is_opened_whole() -> None:
    assert viewer_command(with_path("trace.json", source="window"), "whole trace") == "traceopt view trace.json"


@pytest.mark.parametrize("path", ["logs.zip/rank0.json", "s3://bucket/trace.json", "logs/report.sqlite.gz/process0"])
def test_no_command_for_a_file_that_it_cannot_name(path: str) -> None:
    assert viewer_command(with_path(path), "ProfilerStep#1") is None


@pytest.mark.parametrize("static", [True, False])
def test_the_command_of_the_report_works(tmp_path, monkeypatch, static: bool) -> None:
    monkeypatch.chdir(tmp_path)
    path = generate("five_faults").write(tmp_path / "trace.json")
    result = analyze(str(path))
    command = viewer_command(for_display(result), result.timeline.step)
    assert command is not None
    assert str(tmp_path) not in command
    assert command.replace("&&", "&amp;&amp;") in render_html(result, static=static)
    words = shlex.split(command.partition(" && ")[0])
    words[-1] = str(tmp_path / "step.json.gz")
    assert CliRunner().invoke(cli, words[1:]).exit_code == 0
