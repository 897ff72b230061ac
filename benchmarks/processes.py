"""Wall time, CPU time and peak memory of whole processes, and the environments of the other tools."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENTS = ROOT / "build" / "bench-venvs"
POLL_S = 0.05  # how often the memory of a process tree is summed


@dataclass(frozen=True)
class Contender:
    """A command to measure. The page lists `packages` with the versions that the command's interpreter has."""

    name: str
    does: str
    command: tuple[str, ...]
    packages: tuple[str, ...]


@dataclass(frozen=True)
class Sample:
    """One whole run, from start to exit, including the processes that it starts."""

    wall_s: float
    cpu_s: float  # user and system
    peak_bytes: int  # resident


def measure(command: Sequence[str]) -> Sample:
    """Runs the command and discards its output. Raises SystemExit with the output if the command fails.

    This process must stay small: the kernel counts the memory of the parent at the fork as memory of the child.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryFile() as output:
        start = time.perf_counter()
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output, env=environment)
        tree = _Tree(process.pid)
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            output.seek(0)
            text = output.read().decode(errors="replace")[-2000:]
            raise SystemExit(f"{' '.join(command)} failed with exit code {process.returncode}:\n{text}")
    unit = 1 if sys.platform == "darwin" else 1024
    peak_bytes = max(usage.ru_maxrss * unit, tree.peak_bytes())
    return Sample(wall_s, usage.ru_utime + usage.ru_stime, peak_bytes)


class _Tree:
    """Periodically sums the resident memory of a process and its children. Shared pages count once per process."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._peak = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def peak_bytes(self) -> int:
        self._ended.set()
        self._thread.join()
        return self._peak

    def _watch(self) -> None:
        while not self._ended.wait(POLL_S):
            self._peak = max(self._peak, _resident_bytes(self._root))


def _resident_bytes(pid: int) -> int:
    """0 for a process that has ended, or without /proc (then only the largest process is measured)."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") + sum(_resident_bytes(int(child)) for child in children)


def interleaved(
    contenders: Sequence[Contender], runs: int, warm_up: bool = True, once: Sequence[str] = ()
) -> dict[str, list[Sample]]:
    """`runs` samples of each contender, or one for those in `once`. The contenders take turns.

    With `warm_up`, each runs once before that; this run is not counted.
    """
    samples: dict[str, list[Sample]] = {contender.name: [] for contender in contenders}
    for run in range(0 if warm_up else 1, runs + 1):
        for contender in contenders:
            if run > 1 and contender.name in once:
                continue
            sample = measure(contender.command)
            kind = f"run {run} of {runs}" if run else "warm-up"
            print(f"{kind}: {contender.name} {sample.wall_s:.2f} s", file=sys.stderr)
            if run:
                samples[contender.name].append(sample)
    return samples


def environment(name: str, *requirements: str) -> str:
    """The interpreter of the environment of another tool. The environment is created at the first call."""
    folder = ENVIRONMENTS / name
    python, ready = folder / "bin" / "python", folder / ".installed"
    if not ready.exists():
        print(f"installing {' '.join(requirements)}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "-qq", *requirements], check=True)
        ready.touch()
    return str(python)


def versions(contender: Contender) -> str:
    code = "import importlib.metadata as m, sys; print(*(f'{p} {m.version(p)}' for p in sys.argv[1:]), sep=', ')"
    command = [contender.command[0], "-c", code, *contender.packages]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
