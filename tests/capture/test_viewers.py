"""Other programs open the traces: TensorBoard with torch-tb-profiler, and readers of Chrome traces such as Perfetto."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from click.testing import CliRunner
from runs import Run, environment

from traceopt.api import analyze
from traceopt.cli import cli
from traceopt.viewing.tensorboard_server import INSTALL

RANKS = pytest.mark.run("torchrun", "--nproc-per-node", "2", "--standalone", "ranks.py")
TIMEOUT_S = 60


class Plugin:
    """torch-tb-profiler in a TensorBoard started by `traceopt tensorboard`."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}data/plugin/pytorch_profiler/"

    def get(self, page: str, **query: str) -> Any:
        with urlopen(f"{self._url}{page}?{urlencode(query)}", timeout=TIMEOUT_S) as answer:  # noqa: S310 - our own
            return json.load(answer)

    def runs(self) -> list[str]:
        """Waits until all are read: it reads in the background, and checks for new runs every ten seconds."""
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            answer = self.get("runs")
            if answer["runs"] and not answer["loading"]:
                return list(answer["runs"])
            time.sleep(0.2)
        raise TimeoutError("torch-tb-profiler shows no run")


@contextmanager
def tensorboard(logdir: Path) -> Iterator[Plugin]:
    process = subprocess.Popen(
        [sys.executable, "-m", "traceopt", "tensorboard", str(logdir), "--port", "0"],
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    said = []
    try:
        for line in process.stderr:
            said.append(line)
            if found := re.search(r"at (http://\S+/)", line):
                yield Plugin(found[1])
                return
        pytest.fail("TensorBoard did not start: " + "".join(said))
    finally:
        process.terminate()
        process.communicate(timeout=TIMEOUT_S)


@RANKS
def test_tensorboard_shows_the_steps_that_we_count(run: Run) -> None:
    pytest.importorskip("torch_tb_profiler", reason=INSTALL)
    with tensorboard(run.folder) as plugin:
        [name] = plugin.runs()
        assert {"Overview", "Operator", "Trace", "Memory", "Module", "Distributed"} <= set(
            plugin.get("views", run=name)
        )
        shown = {}
        for worker in plugin.get("workers", run=name, view="Overview"):
            for span in plugin.get("spans", run=name, view="Overview", worker=worker):
                page = plugin.get("overview", run=name, view="Overview", worker=worker, span=span)
                shown[worker, span] = [int(row[0]) for row in page["steps"]["rows"]]
    assert len(shown) == len(run.traces) == 4
    for trace in run.traces:
        worker, _, _ = trace.path.name.partition(".")
        span = "1" if trace.cycle == "timing" else "2"
        assert shown[worker, span] == list(trace.steps)
        assert len(shown[worker, span]) == analyze(str(trace.path)).step.count == len(trace.steps)


@pytest.mark.parametrize(
    ("hidden", "folder", "message"),
    [
        ("torch_tb_profiler", ".", "torch-tb-profiler is not installed: pip install tensorboard torch-tb-profiler"),
        ("", "missing", "no such folder: missing"),
        ("", ".", "no trace for TensorBoard in ."),
    ],
)
def test_what_cannot_be_shown_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hidden: str, folder: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if hidden:
        monkeypatch.setitem(sys.modules, hidden, None)
    else:
        pytest.importorskip("torch_tb_profiler", reason=INSTALL)
    outcome = CliRunner().invoke(cli, ["tensorboard", folder])
    assert outcome.exit_code == 2
    assert outcome.stderr.startswith(f"traceopt: error: {message}")
    assert outcome.stderr.count("\n") == 1


@RANKS
def test_perfetto_finds_what_it_needs(run: Run) -> None:
    """Its trace_processor must be downloaded, so this checks what it needs in a JSON trace.

    It recognizes JSON by the first two non-space characters, and takes events from the list `traceEvents`. It needs a
    phase, a time and a thread for each event, a duration for ph X and an id for flows. It ignores unknown keys.
    """
    for trace in run.traces:
        assert "".join(trace.text[:20].split()).startswith('{"')
        events = trace.document["traceEvents"]
        assert len(events) > 100
        for event in events:
            assert isinstance(event["ph"], str)
            assert len(event["ph"]) == 1
            assert isinstance(event["ts"], int | float)
            assert isinstance(event["name"], str)
            assert isinstance(event["pid"], int | str)
            assert isinstance(event["tid"], int | str)
            assert isinstance(event.get("args", {}), dict)
            if event["ph"] == "X":
                assert event["dur"] >= 0
            elif event["ph"] in "stf":
                assert "id" in event
            else:
                assert event["ph"] in "Mi"
        assert {event["ph"] for event in events} >= {"X", "M", "s", "f"}
