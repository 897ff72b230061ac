"""Runs small training scripts under `traceopt run`, and reads the traces that they leave."""

from __future__ import annotations

import gzip
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parent / "scripts"
LIGHT_TORCH = Path(__file__).parents[1] / "light_torch"
TIMEOUT_S = 300
PORT = "PORT"  # as a word of a command: a port that is free when it starts
TORCH = tuple(int(part) for part in version("torch").split(".")[:2])

Key = tuple[Any, ...]


@dataclass(frozen=True)
class Trace:
    """One file that was written."""

    path: Path

    @property
    def text(self) -> str:
        return gzip.decompress(self.path.read_bytes()).decode()

    @cached_property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.text)
        return document

    @property
    def metadata(self) -> dict[str, Any]:
        metadata: dict[str, Any] = self.document["traceopt"]
        return metadata

    @property
    def cycle(self) -> str:
        return str(self.metadata["cycle"]["name"])

    @cached_property
    def steps(self) -> dict[int, Counter[str]]:
        """Events in each step, by step number: fetches, updates and so on. A truncated last step is left out."""
        ranges = [e for e in self.document["traceEvents"] if e.get("cat") == "user_annotation" and e["ph"] == "X"]
        steps = [e for e in ranges if e["name"].startswith("ProfilerStep#")]
        found: dict[int, Counter[str]] = {}
        for step in steps:
            number = int(step["name"].partition("#")[2])
            if number in self.metadata["cycle"]["partial_steps"]:
                continue
            assert number not in found, "two ranges of one step"
            inside = [e for e in ranges if step["ts"] <= e["ts"] < step["ts"] + step["dur"]]
            found[number] = Counter(_kind(e["name"]) for e in inside if e is not step)
        return found


@dataclass(frozen=True)
class Run:
    """A command that has ended."""

    code: int
    stdout: str
    stderr: str
    folder: Path

    @cached_property
    def traces(self) -> list[Trace]:
        return [Trace(path) for path in sorted(self.folder.glob("*.pt.trace.json.gz"))]

    def cycle(self, name: str) -> Trace:
        [trace] = [trace for trace in self.traces if trace.cycle == name]
        return trace

    def traces_of(self, kind: str) -> dict[str, Trace]:
        """Traces by cycle, from the process in which forked.py ran this kind of training."""
        process = json.loads((self.folder.parent / "work" / "processes.json").read_text())[kind]
        traces = [trace for trace in self.traces if trace.metadata["pid"] == process]
        by_cycle = {trace.cycle: trace for trace in traces}
        assert len(by_cycle) == len(traces), "two recordings of one process"
        return by_cycle


def _kind(name: str) -> str:
    for start, kind in (("enumerate(DataLoader)", "fetch"), ("Optimizer.step", "update"), ("Optimizer.zero", "zero")):
        if name.startswith(start):
            return kind
    return "other"


def environment(**variables: str) -> dict[str, str]:
    """With our Python first, a torch that starts quickly, and one thread.

    So tests do not compete for cores, and sums have a fixed order. LIGHT_TORCH is added to a PYTHONPATH that is given.
    """
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("TRACEOPT", "PYTHONPATH", "RANK"))}
    path = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
    modules = os.pathsep.join(filter(None, [variables.get("PYTHONPATH"), str(LIGHT_TORCH)]))
    one_thread = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return inherited | {"PATH": path} | one_thread | variables | {"PYTHONPATH": modules}


def free_port() -> str:
    with socket.create_server(("localhost", 0)) as server:
        return str(server.getsockname()[1])


def traceopt_run(*arguments: str) -> list[str]:
    """Without measuring rates after the run, which tests/measuring tests."""
    return [sys.executable, "-m", "traceopt", "run", "--measure", "0", *arguments]


class Runner:
    """Runs commands, each distinct one once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._runs: dict[Key, Run] = {}

    def run(self, *words: str, options: tuple[str, ...] = (), bare: bool = False) -> Run:
        key = (words, options, bare)
        if key not in self._runs:
            folder = Path(tempfile.mkdtemp(dir=self._folder))  # a run that failed has left its own
            self._runs[key] = self._execute(list(words), options, bare, folder)
        return self._runs[key]

    def _execute(self, words: list[str], options: tuple[str, ...], bare: bool, folder: Path) -> Run:
        (folder / "work").mkdir()
        words = [str(SCRIPTS / word) if word.endswith((".py", ".sh")) else word for word in words]
        words = [free_port() if word == PORT else word for word in words]
        python = [sys.executable] if words[0].endswith(".py") or words[0] == "-m" else []
        logs = folder / "logs"
        recorded = traceopt_run(
            "--logdir", str(logs), *options, *([] if words[0] == "-m" or python else ["--"]), *words
        )
        done = subprocess.run(
            [*python, *words] if bare else recorded,
            env=environment(PYTHONPATH=str(SCRIPTS)),
            cwd=folder / "work",
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        return Run(done.returncode, done.stdout, done.stderr, logs)
