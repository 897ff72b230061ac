#!/usr/bin/env python3
"""Compares the step ledgers of many ranks over a long run, and prints the time and the memory that it takes.

python benchmarks/run_ledgers.py --ranks 1024 --steps 10000

The ledgers are generated: a slow rank, and a machine of eight slow ranks. "Reading" turns the JSON of one ledger after
the other into what the comparison needs, in one process, as each worker does. The generator's own time does not count.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import msgspec
import orjson

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fixtures.run_ledgers import Run, Slow, documents
from traceopt.analyzer.ranks.rank_history import RankHistory, rank_history
from traceopt.analyzer.ranks.run_history import find_run_history
from traceopt.analyzer.run_log.run_settings import captured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=10_000)
    options = parser.parse_args()
    ranks, steps = options.ranks, options.steps
    slow = [Slow([3], steps // 10, steps // 2, 1.4), Slow(range(8, 16), steps // 2, steps * 3 // 4, 1.2)]
    histories: list[RankHistory | None] = []
    json_bytes, reading_s = 0, 0.0
    for document in documents(Run(ranks, steps, slow, evaluate_every=1_000, save_every=2_500)):
        text = orjson.dumps(document)
        json_bytes += len(text)
        begin_s = time.perf_counter()
        histories.append(rank_history(captured(orjson.loads(text))))
        reading_s += time.perf_counter() - begin_s
    begin_s = time.perf_counter()
    found = find_run_history(histories, range(ranks))
    comparing_s = time.perf_counter() - begin_s
    assert found is not None  # noqa: S101
    kept = len(msgspec.msgpack.encode(histories, enc_hook=lambda array: array.tobytes()))
    print(f"{ranks:,} ranks of {steps:,} steps: {json_bytes / 1e6:.0f} MB of JSON")
    print(f"reading {reading_s:.1f} s ({reading_s / ranks * 1e3:.1f} ms a rank), comparing {comparing_s:.2f} s")
    print(f"kept for the comparison: {kept / 1e6:.1f} MB")
    for slow in found.slow:
        print(f"ranks {slow.ranks} in steps {slow.first_step} to {slow.last_step}: {slow.share:.1%} of the run")


if __name__ == "__main__":
    main()
