"""Measures how long reading a large export of Nsight Systems takes, and how much memory.

    .venv/bin/python -m benchmarks.nsight_exports --megabytes 200

The file is generated: the steps of a small training, repeated until the file is large enough.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sqlite3
import sys
from pathlib import Path

from benchmarks.processes import measure
from fixtures.generate import generate
from fixtures.nsight import Export

READ = (
    "import sys; from traceopt.analyzer.reading.nsight_files import read_nsight; "
    "from traceopt.analyzer.reading.sources import find_sources; "
    "s, = find_sources(sys.argv[1:]).sources; "
    "t = read_nsight(s, s.process, rank_hint=None, world_size_hint=None); "
    "print(f'{len(t.gpu):,} of the GPU, {len(t.runtime):,} calls, {len(t.ops):,} operators')"
)
_TABLES = {"CUPTI_ACTIVITY_KIND_KERNEL": 5, "CUPTI_ACTIVITY_KIND_RUNTIME": 4, "NVTX_EVENTS": None}


def write(path: Path, megabytes: float) -> None:
    """Writes an export of about this size."""
    export = Export([generate("item_stall", steps=20).document])
    probe = export.write(path).stat().st_size
    copies = max(1, round(megabytes * 1e6 / probe))
    work = export.rows["CUPTI_ACTIVITY_KIND_KERNEL"]
    period = max(row[1] for row in work) - min(row[0] for row in work) + 1_000_000
    with sqlite3.connect(path) as connection:
        for table, correlation in _TABLES.items():
            rows = export.rows[table]
            insert = f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})"  # noqa: S608
            for copy in range(1, copies):
                ahead, calls = copy * period, copy * 1_000_000
                connection.executemany(
                    insert,
                    (
                        tuple(
                            value + ahead if place < 2 else value + calls if place == correlation else value
                            for place, value in enumerate(row)
                        )
                        for row in rows
                    ),
                )
    connection.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=200.0)
    parser.add_argument("--file", type=Path, default=Path("build/bench/export.sqlite"))
    options = parser.parse_args()
    # In a process of its own: its memory would count as that of the command below.
    writer = multiprocessing.get_context("spawn").Process(target=write, args=(options.file, options.megabytes))
    writer.start()
    writer.join()
    print(f"{options.file.stat().st_size / 1e6:.0f} MB")
    sample = measure([sys.executable, "-c", READ, str(options.file)])
    print(f"read: {sample.wall_s:.2f} s, {sample.cpu_s:.2f} s of CPU time, {sample.peak_bytes / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
