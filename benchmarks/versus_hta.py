#!/usr/bin/env python3
"""Time and memory of `traceopt analyze` beside HolisticTraceAnalysis and a naive script, on one trace.

python benchmarks/versus_hta.py [TRACE] [--runs N] [--write docs/performance.md]

The runs are interleaved, so that a busy machine slows all alike. It reports and never judges.
"""

from __future__ import annotations

import argparse
import gzip
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
BUILD = ROOT / "build"
REAL_TRACE = Path("../shared/traces/hta/trace_diff/control/control.json.gz")
GENERATED_STEPS = 176  # about 35 MB of JSON
PEER_REQUIREMENTS = ("HolisticTraceAnalysis", "pandas<3")  # 0.5.0 fails on several real traces with pandas 3
MB = 1e6


@dataclass(frozen=True)
class Contender:
    """A command to measure; `packages` are named with their versions, asked of the command's interpreter."""

    name: str
    does: str
    command: tuple[str, ...]
    packages: tuple[str, ...]


@dataclass(frozen=True)
class Sample:
    """One whole process, from start to exit."""

    wall_s: float
    cpu_s: float  # user and system
    peak_bytes: int  # resident; of the largest process when it starts others


def measure(command: Sequence[str]) -> Sample:
    """Runs the command with its output thrown away. Raises SystemExit with what it printed when it fails.

    This process must stay small: the kernel counts the memory of the parent at the start as the child's.
    """
    with tempfile.TemporaryFile() as output:
        start = time.perf_counter()
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            output.seek(0)
            text = output.read().decode(errors="replace")[-2000:]
            raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{text}")
    unit = 1 if sys.platform == "darwin" else 1024
    return Sample(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * unit)


def interleaved(contenders: Sequence[Contender], runs: int) -> dict[str, list[Sample]]:
    """`runs` samples of each, in turns, after one run each that is not counted."""
    samples: dict[str, list[Sample]] = {contender.name: [] for contender in contenders}
    for run in range(runs + 1):
        for contender in contenders:
            sample = measure(contender.command)
            kind = f"run {run} of {runs}" if run else "warm-up"
            print(f"{kind}: {contender.name} {sample.wall_s:.2f} s", file=sys.stderr)
            if run:
                samples[contender.name].append(sample)
    return samples


def table(samples: dict[str, list[Sample]]) -> str:
    """Medians as Markdown, and each as a multiple of the first row."""
    rows = ["| | wall s (least to most) | CPU s | peak MB | x wall | x CPU | x peak |", "| --- " + "| ---: " * 6 + "|"]
    first: tuple[float, float, float] | None = None
    for name, measured in samples.items():
        walls = [sample.wall_s for sample in measured]
        medians = (
            median(walls),
            median(sample.cpu_s for sample in measured),
            median(sample.peak_bytes for sample in measured) / MB,
        )
        first = first or medians
        times = " | ".join(f"{value / base:.1f}" for value, base in zip(medians, first, strict=True))
        rows.append(
            f"| {name} | {medians[0]:.2f} ({min(walls):.2f} to {max(walls):.2f}) | {medians[1]:.2f} "
            f"| {medians[2]:.0f} | {times} |"
        )
    return "\n".join(rows)


def contenders(trace: Path, result: Path) -> list[Contender]:
    """traceopt first: the others are given as multiples of it."""
    here, hta = sys.executable, str(peer_python())
    return [
        Contender(
            "traceopt",
            "`traceopt analyze --no-html --json`: all tables, all facts, all rules, the result document",
            (here, "-m", "traceopt", "analyze", str(trace), "--no-html", "--json", str(result)),
            ("traceopt", "numpy", "msgspec"),
        ),
        Contender(
            "HolisticTraceAnalysis",
            "`TraceAnalysis`, temporal, idle and kernel breakdown",
            (hta, str(HERE / "peer_hta.py"), str(trace)),
            ("HolisticTraceAnalysis", "pandas", "numpy"),
        ),
        Contender(
            "orjson and pandas",
            "`orjson.loads`, one DataFrame; no analysis",
            (here, str(HERE / "peer_naive.py"), str(trace)),
            ("orjson", "pandas"),
        ),
    ]


def peer_python() -> Path:
    """The interpreter of HolisticTraceAnalysis' environment, which is made at the first call."""
    folder = BUILD / "bench-venvs" / "hta"
    python = folder / "bin" / "python"
    ready = folder / ".installed"
    if not ready.exists():
        print(f"installing {' '.join(PEER_REQUIREMENTS)}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "-qq", *PEER_REQUIREMENTS], check=True)
        ready.touch()
    return python


def versions(contender: Contender) -> str:
    code = "import importlib.metadata as m, sys; print(*(f'{p} {m.version(p)}' for p in sys.argv[1:]), sep=', ')"
    command = [contender.command[0], "-c", code, *contender.packages]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def generated_trace() -> Path:
    """A simulated job of the usual size, for a checkout without the real traces."""
    path = BUILD / "bench-traces" / f"healthy-{GENERATED_STEPS}.json.gz"
    if not path.exists():
        code = (
            f"from fixtures.generate import generate; generate('healthy', steps={GENERATED_STEPS}).write({str(path)!r})"
        )
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)  # apart: this process stays small
    return path


def json_bytes(trace: Path) -> int:
    """The uncompressed size."""
    with open(trace, "rb") as file:
        if file.read(2) != b"\x1f\x8b":
            return trace.stat().st_size
    size = 0
    with gzip.open(trace) as stream:
        while block := stream.read(1 << 20):
            size += len(block)
    return size


def machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} cores ({platform.machine()}), {memory:.0f} GiB of memory, {platform.system()}, "
        f"Python {platform.python_version()}"
    )


def page(trace: Path, note: str, measured: dict[str, list[Sample]], who: Sequence[Contender]) -> str:
    """docs/performance.md."""
    runs = len(next(iter(measured.values())))
    lines = [
        "# Performance",
        "",
        "Written by `make bench` (`python benchmarks/versus_hta.py --write docs/performance.md`); do not edit.",
        "",
        f"Trace: `{trace.name}`, {json_bytes(trace) / MB:.1f} MB of JSON, {note}.",
        f"Machine: {machine()}.",
        "",
        f"Medians of {runs} interleaved runs of the whole process, from its start to its exit; CPU is user and system",
        "time, peak is resident memory (`wait4`). The right half gives multiples of the first row.",
        "",
        table(measured),
        "",
        *(f"- **{contender.name}**: {contender.does} ({versions(contender)})." for contender in who),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", nargs="?", type=Path, metavar="TRACE", help="a .json or .json.gz trace")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--write", type=Path, metavar="PATH", help="also write the page, as Markdown")
    options = parser.parse_args()
    if options.trace is not None:
        trace, note = options.trace.resolve(), "given"
    elif (ROOT / REAL_TRACE).exists():
        trace, note = (ROOT / REAL_TRACE).resolve(), "a real trace of an A100 from HolisticTraceAnalysis' test data"
    else:
        trace, note = generated_trace(), "generated by `fixtures/generate.py`, because the real traces are absent"
    with tempfile.TemporaryDirectory() as folder:
        who = contenders(trace, Path(folder) / "result.json")
        measured = interleaved(who, options.runs)
    text = page(trace, note, measured, who)
    print(text, end="")
    if options.write is not None:
        options.write.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
