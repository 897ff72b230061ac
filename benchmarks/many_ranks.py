#!/usr/bin/env python3
"""Many ranks: CPU time to read their traces, and of the whole analysis, and the memory of the parent process.

python benchmarks/many_ranks.py
python benchmarks/many_ranks.py 64x3 256x3 1024x3 64x30 32x120 --jobs 2 --write docs/scale.md

64x3 means 64 ranks with three steps each. The traces come from the generator in `fixtures/`: eight ranks of a job, of
which the last one loads data more slowly. It is also the last rank here; the others are repeated in turn. The generator
and each measurement run in separate processes. CPU time is that of all processes together, with their start. Unlike
wall time, it hardly depends on what else the machine does.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from multiprocessing.forkserver import _forkserver
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.marked import with_part
from traceopt.analyzer.reading.source_search import find_sources
from traceopt.analyzer.recordings.cycle_pairs import RankRecording, find_recordings
from traceopt.analyzer.recordings.rank_trace import read_recording
from traceopt.api import analyze

SIMULATED = 8
USUAL = [(64, 3), (256, 3), (1024, 3), (64, 30), (32, 120)]


@dataclass(frozen=True)
class Measured:
    """CPU times, `comparing_s` after the last rank. `parent_bytes`: the peak of the parent process, without workers."""

    cpu_s: float
    parent_bytes: int
    comparing_s: float


def write_ranks(folder: Path, count: int, steps: int) -> int:
    """Writes the traces of `count` ranks. Returns the size of their text in bytes."""
    from fixtures.generate import generate_ranks

    simulated = generate_ranks("straggler", steps=steps, world_size=SIMULATED, memory=False, slow_rank_us=60_000.0)
    text_bytes = 0
    for rank in range(count):
        trace = simulated[-1] if rank == count - 1 else simulated[rank % (SIMULATED - 1)]
        info = {**trace.document["distributedInfo"], "rank": rank, "world_size": count}
        text = replace(trace, document={**trace.document, "distributedInfo": info}).to_bytes()
        text_bytes += len(text)
        (folder / f"rank{rank}.json.gz").write_bytes(gzip.compress(text, 1, mtime=0))
    return text_bytes


def read_only(folder: str, jobs: int) -> Measured:
    """Reads the files into tables with `jobs` processes, and does nothing else."""
    recordings = find_recordings(find_sources([folder]).sources)
    context = get_context("forkserver")
    context.set_forkserver_preload(["traceopt.analyzer.recordings.rank_trace"])
    with ProcessPoolExecutor(jobs, context) as pool:
        events = sum(pool.map(event_count, recordings, chunksize=4))
    assert events  # noqa: S101
    return Measured(cpu_s(), parent_bytes(), 0.0)


def event_count(recording: RankRecording) -> int:
    return read_recording(recording, []).meta.event_count


def analyzed(folder: str, jobs: int) -> Measured:
    """The whole analysis, up to the document."""
    comparing_since_s: list[float] = []

    def listen(line: str) -> None:
        if line.startswith("comparing"):
            comparing_since_s.append(time.process_time())

    document = analyze(folder, jobs=jobs, progress=listen).to_json()
    end_s = time.process_time()
    (finding,) = [one for one in json.loads(document)["findings"] if one["code"] == "CM004"]
    assert finding["ranks"] == [len(os.listdir(folder)) - 1]  # noqa: S101 - the straggler is found
    return Measured(cpu_s(), parent_bytes(), end_s - comparing_since_s[0])


def cpu_s() -> float:
    """CPU time of this process, and of the fork server with the workers that have ended."""
    fields = Path(f"/proc/{_forkserver._forkserver_pid}/stat").read_text().rpartition(")")[2].split()  # type: ignore[attr-defined]
    return time.process_time() + sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def parent_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def in_a_process(what: str, folder: Path, *options: str) -> Any:
    """What this script measures as a new process. A fork would inherit the peak memory of this one."""
    command = [sys.executable, __file__, "--measure", what, str(folder), *options]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def ranks_and_steps(job: str) -> tuple[int, int]:
    """ "64x3". Raises ValueError for anything else."""
    count, steps = map(int, job.split("x"))
    return count, steps


def row(job: tuple[int, int], jobs: int) -> str:
    count, steps = job
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text_bytes = in_a_process("writing", folder, f"{count}x{steps}")
        reading = Measured(**in_a_process("reading", folder, "--jobs", str(jobs)))
        whole = Measured(**in_a_process("all", folder, "--jobs", str(jobs)))
    print(
        f"{count}x{steps}: reading {reading.cpu_s:.1f} s, whole run {whole.cpu_s:.1f} s, of which comparing "
        f"{whole.comparing_s:.2f} s",
        file=sys.stderr,
    )
    cells = (
        f"{count:,}",
        f"{steps}",
        f"{text_bytes / count / 1e6:.1f} MB",
        f"{whole.cpu_s / reading.cpu_s:.1f}",
        f"{whole.parent_bytes / 1e6:.0f} MB",
    )
    return f"| {' | '.join(cells)} |"


def table(rows: list[tuple[int, int]], jobs: int) -> str:
    sizes = " ".join(f"{count}x{steps}" for count, steps in rows)
    lines = [
        f"`python benchmarks/many_ranks.py {sizes} --jobs {jobs}`:",
        "",
        "| ranks | steps | JSON per rank | whole run / reading only | parent's peak |",
        "| ---: | ---: | ---: | ---: | ---: |",
        *(row(job, jobs) for job in rows),
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", type=ranks_and_steps, default=USUAL, metavar="RANKSxSTEPS")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the table between the marks in this file")
    parser.add_argument("--measure", nargs=2, metavar=("WHAT", "DIR"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure is not None:
        what, folder = options.measure
        if what == "writing":
            print(write_ranks(Path(folder), *options.rows[0]))
        else:
            print(json.dumps(asdict((read_only if what == "reading" else analyzed)(folder, options.jobs))))
        return
    text = table(options.rows, options.jobs)
    print(text)
    if options.write is not None:
        options.write.write_text(with_part(options.write.read_text(), "many_ranks.py", text))


if __name__ == "__main__":
    main()
