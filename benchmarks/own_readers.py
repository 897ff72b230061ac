"""Measures what traceopt's own readers save, compared with what a library does instead.

    .venv/bin/python -m benchmarks.own_readers
    .venv/bin/python -m benchmarks.own_readers snapshot --megabytes 500 --runs 5

A reader of our own stays only while a user would notice its loss: seconds on a large file. The files are generated, and
kept in build/bench. The last table of docs/performance.md shows the result.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import memory_snapshots, nsight_exports
from benchmarks.big_trace import enlarge
from benchmarks.processes import ROOT, Contender, Sample, interleaved
from benchmarks.sample_tables import table

FOLDER = ROOT / "build" / "bench"
TRACE = ROOT / "fixtures" / "traces" / "five_faults.json.gz"

EXPORT = """import sys
from traceopt.analyzer.nsight import database
from traceopt.analyzer.reading.nsight_files import read_nsight
from traceopt.analyzer.reading.source_search import find_sources
def refuse(stream): raise database.UnusualTableError
if sys.argv[2] == "library": database.TablePages = refuse
[source] = find_sources(sys.argv[1:2]).sources
read_nsight(source, source.process, rank_hint=None, world_size_hint=None)
"""
SNAPSHOT = """import sys
from traceopt.analyzer.companions import restricted_pickle
from traceopt.analyzer.companions.memory_snapshot.memory_snapshot import read_memory_snapshot
from traceopt.analyzer.reading.source_search import find_sources
[source] = [one.source for one in find_sources(sys.argv[1:2]).companions]
if sys.argv[2] == "library":
    with source.open() as stream: restricted_pickle.load(stream, source.label)
else: read_memory_snapshot([source], [])
"""
PROCESSES = """import sys
from traceopt.analyzer.reading import two_processes
from traceopt.cli import main
two_processes.SHARED_FROM_BYTES = sys.maxsize if sys.argv[2] == "library" else 0
sys.argv[1:] = ["analyze", "--quiet", "--no-html", sys.argv[1]]
main()
"""
TEMPLATES = """import sys
from traceopt.cli import main
from traceopt.reports.html import page
if sys.argv[2] == "library": page.TemplateCache = lambda: None
sys.argv[1:] = ["analyze", "--quiet", sys.argv[1], "--html", "build/bench/report.html"]
main()
"""


@dataclass(frozen=True)
class Comparison:
    """The same input, read by our own code and by a library. `write` makes a file of about so many megabytes."""

    title: str
    own: str
    library: str
    code: str
    file: Path
    write: Callable[[Path, float], object]
    megabytes: float

    def contenders(self) -> list[Contender]:
        ways = (("own", self.own), ("library", self.library))
        command = (sys.executable, "-c", self.code, str(self.file))
        return [Contender(name, "", (*command, way), ()) for way, name in ways]


COMPARISONS = {
    "nsight": Comparison(
        "Reading an export of Nsight Systems",
        "columns from the pages of the file",
        "SQLite alone",
        EXPORT,
        FOLDER / "export.sqlite",
        nsight_exports.write,
        200,
    ),
    "snapshot": Comparison(
        "Reading a memory snapshot",
        "history in columns",
        "Python's unpickler, into objects",
        SNAPSHOT,
        FOLDER / "snapshot.pickle",
        memory_snapshots.write,
        200,
    ),
    "trace": Comparison(
        "Analyzing one large trace",
        "two processes",
        "one process",
        PROCESSES,
        FOLDER / "large.json.gz",
        lambda path, megabytes: enlarge(TRACE, path, round(megabytes * 1e6)),
        1000,
    ),
    "templates": Comparison(
        "A report of a small trace",
        "cached templates",
        "compiled templates",
        TEMPLATES,
        FOLDER / "small.json.gz",
        lambda path, _: path.write_bytes(TRACE.read_bytes()),
        1,
    ),
}


def sections() -> list[str]:
    """Lines of docs/performance.md with the comparisons that were measured."""
    lines: list[str] = []
    for name, comparison in COMPARISONS.items():
        path = FOLDER / f"own-{name}.json"
        if path.exists():
            known = json.loads(path.read_text())
            samples = {way: [Sample(**sample) for sample in runs] for way, runs in known["samples"].items()}
            lines += ["", f"{comparison.title}, {known['megabytes']:,.0f} MB:", "", table(samples)]
    if not lines:
        return []
    about = "`python -m benchmarks.own_readers` compares code of our own with what a library does instead."
    return ["", "## What own readers save", "", about, *lines]


def measured(name: str, megabytes: float | None, runs: int) -> None:
    """Writes the file in a process of its own, whose memory would count for the commands, and stores the samples."""
    comparison = COMPARISONS[name]
    size = megabytes or comparison.megabytes
    FOLDER.mkdir(parents=True, exist_ok=True)
    writer = multiprocessing.get_context("fork").Process(target=comparison.write, args=(comparison.file, size))
    writer.start()
    writer.join()
    samples = interleaved(comparison.contenders(), runs)
    stored = {"megabytes": size, "samples": {way: [asdict(one) for one in own] for way, own in samples.items()}}
    (FOLDER / f"own-{name}.json").write_text(json.dumps(stored, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"only these: {', '.join(COMPARISONS)}")
    parser.add_argument("--megabytes", type=float, help="size of the file")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    if unknown := set(options.names) - COMPARISONS.keys():
        parser.error(f"no such comparison: {', '.join(sorted(unknown))}; choose from {', '.join(COMPARISONS)}")
    for name in options.names or COMPARISONS:
        measured(name, options.megabytes, options.runs)
    print("\n".join(sections()))


if __name__ == "__main__":
    main()
