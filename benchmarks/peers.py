"""Time and memory of `traceopt analyze` and other tools, on traces of typical size and on growing traces.

python -m benchmarks.peers [PART...] [--runs N]     measure some parts, or all, and write docs/performance.md
python -m benchmarks.peers --list

The tools take turns, so that a busy machine slows all of them equally. Samples are stored in build/bench, so the parts
can be measured one by one. Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

from benchmarks import own_readers
from benchmarks.processes import ROOT, Contender, Sample, environment, interleaved, versions
from benchmarks.sample_tables import MB, RANGE, medians, seconds, table
from fixtures.real_traces import TRACES

HERE = Path(__file__).resolve().parent
BUILD = ROOT / "build"
PAGE = ROOT / "docs" / "performance.md"
SAMPLES = BUILD / "bench"
REAL = {
    "A100": ("hta/trace_diff/control/control.json.gz", "a training job on an A100, HolisticTraceAnalysis' test data"),
    "MI300X": (
        "tracelens/mi300/google_owlv2-large-patch14-ensemble/1016001.json.gz",
        "inference with Python stacks on an MI300X, TraceLens' test data",
    ),
    "diffusion": (
        "tracelens/inference/xdit_flux.1_aiter_sage/profile_trace_rank_0.json.gz",
        "diffusion with Python stacks on an MI300X, TraceLens' test data",
    ),
}
GENERATED_STEPS = 176  # about 35 MB of JSON
GROWTH_MB = (50, 100, 300, 1000, 1250)
PEERS_TO_MB = 1000  # beyond this size the other tools take minutes and more than 5 GB
RUNS_TO_MB = 300  # on larger traces the other tools run once
TRACEOPT, WITH_REPORT = "traceopt", "traceopt with the HTML report"
HTA, PLUGIN, NAIVE = "HolisticTraceAnalysis", "TensorBoard plugin", "orjson and pandas"
GROWN = (
    "The trace is repeated (`benchmarks/big_trace.py`): times, ids and step numbers continue, names and shapes",
    f"stay the same. Medians of the runs; above {RUNS_TO_MB} MB the other tools ran once.",
)


@dataclass(frozen=True)
class Part:
    """One trace to measure on. With `grown_mb`, the trace of the part `of` is repeated up to that size."""

    name: str
    note: str
    grown_mb: int = 0
    of: Part | None = None

    @property
    def tools(self) -> tuple[str, ...]:
        own = (WITH_REPORT,) if self.grown_mb else (TRACEOPT, WITH_REPORT)
        return own if self.grown_mb > PEERS_TO_MB else (*own, HTA, PLUGIN, NAIVE)

    def trace(self) -> Path:
        """The path of the trace. A generated or grown trace is made at the first call."""
        if self.of is not None:
            path = BUILD / "bench-traces" / f"{self.of.name}-{self.grown_mb}.json.gz"
            if not path.exists():
                _in_a_process("big_trace.py", str(self.of.trace()), str(self.grown_mb), str(path))
            return path
        if self.name in REAL:
            return TRACES / REAL[self.name][0]
        path = BUILD / "bench-traces" / f"healthy-{GENERATED_STEPS}.json.gz"
        if not path.exists():
            code = "from fixtures.generate import generate; import sys; "
            _in_a_process("-c", code + f"generate('healthy', steps={GENERATED_STEPS}).write(sys.argv[1])", str(path))
        return path


def _in_a_process(*command: str) -> None:
    """Runs a script of this folder, or Python with options, in a new process, so that this one stays small."""
    script = [str(HERE / command[0])] if command[0].endswith(".py") else [command[0]]
    subprocess.run([sys.executable, *script, *command[1:]], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def usual_parts() -> list[Part]:
    """Traces of typical size: real ones, or a generated one if they are missing."""
    real = [Part(name, note) for name, (path, note) in REAL.items() if (TRACES / path).exists()]
    return real or [Part("generated", "by `fixtures/generate.py`, because the real traces are missing")]


def growth_parts() -> list[Part]:
    """The first typical trace at all sizes, and the second, which has Python stacks, at the largest peer size."""
    first, *others = usual_parts()
    grown = [Part(f"growth-{size}", "", size, first) for size in GROWTH_MB]
    return grown + [Part(f"growth-{PEERS_TO_MB}-{other.name}", "", PEERS_TO_MB, other) for other in others[:1]]


def contender(tool: str, trace: Path) -> Contender:
    analyze = (sys.executable, "-m", "traceopt", "analyze", "--quiet", str(trace))
    result, report = str(SAMPLES / "result.json"), str(SAMPLES / "report.html")
    ours = ("traceopt", "numpy", "msgspec")
    if tool == TRACEOPT:
        does = "`traceopt analyze --no-html --json`: all tables, facts and rules, the terminal text, the document"
        return Contender(tool, does, (*analyze, "--no-html", "--json", result), ours)
    if tool == WITH_REPORT:
        return Contender(tool, "`traceopt analyze --html`: the same and a report", (*analyze, "--html", report), ours)
    if tool == HTA:  # 0.5.0 fails on several real traces with pandas 3
        python = environment("hta", "HolisticTraceAnalysis", "pandas<3")
        does, packages = "`TraceAnalysis`: temporal, idle and kernel breakdown", ("HolisticTraceAnalysis", "pandas")
        return Contender(tool, does, (python, str(HERE / "peer_hta.py"), str(trace)), packages)
    if tool == PLUGIN:
        python = environment("tensorboard", "torch-tb-profiler", "tensorboard", "pandas<3")
        does, packages = "`RunProfileData.parse` and `RunGenerator`", ("torch-tb-profiler", "pandas")
        return Contender(tool, does, (python, str(HERE / "peer_tensorboard.py"), str(trace)), packages)
    python = environment("naive", "orjson", "pandas<3")
    does = "`orjson.loads` and one DataFrame; no analysis"
    return Contender(NAIVE, does, (python, str(HERE / "peer_naive.py"), str(trace)), ("orjson", "pandas"))


def measured(part: Part, tools: Sequence[str], runs: int) -> None:
    """Measures a part and adds the samples to the stored ones of other tools."""
    SAMPLES.mkdir(parents=True, exist_ok=True)
    trace = part.trace()
    once = (HTA, PLUGIN, NAIVE) if part.grown_mb > RUNS_TO_MB else ()
    found = interleaved([contender(tool, trace) for tool in tools], runs, warm_up=not part.grown_mb, once=once)
    path = SAMPLES / f"{part.name}.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    known |= {tool: [asdict(sample) for sample in samples] for tool, samples in found.items()}
    known["json_bytes"] = json_bytes(trace)
    path.write_text(json.dumps(known, indent=1))


def stored(part: Part) -> tuple[dict[str, list[Sample]], int]:
    """The samples by tool, in the order of the tools, and the size of the trace in bytes of JSON."""
    path = SAMPLES / f"{part.name}.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    samples = {tool: [Sample(**sample) for sample in known[tool]] for tool in part.tools if tool in known}
    return samples, int(known.get("json_bytes", 0))


def json_bytes(trace: Path) -> int:
    """The uncompressed size."""
    code = "import gzip, sys, shutil; f = open(sys.argv[1], 'rb'); z = f.read(2) == b'\\x1f\\x8b'; f.seek(0)\n"
    code += "s = gzip.open(f) if z else f; print(sum(len(b) for b in iter(lambda: s.read(1 << 20), b'')))"
    return int(subprocess.run([sys.executable, "-c", code, trace], capture_output=True, text=True, check=True).stdout)


def growth_table(parts: Mapping[int, Mapping[str, Sequence[Sample]]]) -> str:
    """One row per size (in bytes of JSON) and tool, with multiples of the first tool at that size."""
    rows = [
        f"| JSON | | wall s {RANGE} | CPU s {RANGE} | CPU s per GB | peak MB | x wall | x CPU | x peak |",
        "| ---: | --- " + "| ---: " * 7 + "|",
    ]
    for size, samples in parts.items():
        first: tuple[float, float, float] | None = None
        for tool, runs in samples.items():
            _, cpu_s, peak_mb = values = medians(runs)
            first = first or values
            cells = [f"{size / MB:,.0f} MB", tool, seconds(runs, 1), f"{cpu_s / size * 1e9:.1f}", f"{peak_mb:,.0f}"]
            cells += [f"{own / of_first:.1f}" for own, of_first in zip(values, first, strict=True)]
            rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} cores ({platform.machine()}), {memory:.0f} GiB of memory, {platform.system()}, "
        f"Python {platform.python_version()}"
    )


def page(usual: Sequence[Part], growth: Sequence[Part]) -> str:
    """docs/performance.md, with the parts that were measured."""
    lines = [
        "# Performance",
        "",
        "Written by `make bench` (`python -m benchmarks.peers`); do not edit.",
        "",
        f"Machine: {machine()}. Each run is a whole process from start to exit, including imports, with bytecode",
        "already compiled. CPU is user plus system time. Peak is resident memory, summed over the processes of a run.",
        "The tools of a table took turns, because other programs can slow the machine: compare within a table.",
    ]
    tools: dict[str, Contender] = {}
    for part in usual:
        samples, size = stored(part)
        if not samples:
            continue
        tools |= {tool: contender(tool, part.trace()) for tool in samples}
        lines += ["", f"## {size / MB:.0f} MB: {part.note}", ""]
        lines += [
            f"Medians of {max(map(len, samples.values()))} runs. The right columns are multiples of the first row.",
            "",
        ]
        lines += [table(samples)]
    for source, parts in groupby(growth, lambda part: part.of):
        sizes = {size: samples for samples, size in map(stored, parts) if samples}
        if not sizes or source is None:
            continue
        lines += ["", f"## Growing traces: {source.note}", "", *GROWN, "", growth_table(sizes)]
        tools |= {t: contender(t, source.trace()) for s in sizes.values() for t in s if t not in tools}
    lines += own_readers.sections()
    lines += ["", *(f"- **{one.name}**: {one.does} ({versions(one)})." for one in tools.values())]
    return "\n".join(lines) + "\n"


def main() -> None:
    parts = {part.name: part for part in (*usual_parts(), *growth_parts())}
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help="measure only these")
    parser.add_argument("--tool", action="append", help="measure only this tool; may be repeated")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--list", action="store_true", help="list the parts")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(parts):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; choose from {', '.join(parts)}")
    if options.list:
        print(*parts, sep="\n")
        return
    for name in options.parts or parts:
        part = parts[name]
        tools = [tool for tool in part.tools if not options.tool or tool in options.tool]
        measured(part, tools, options.runs)
    text = page(usual_parts(), growth_parts())
    PAGE.write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
