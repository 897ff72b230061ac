#!/usr/bin/env python3
"""Compares the reader's optimizations with plain NumPy, as the ratio of the fastest runs.

python benchmarks/reading_choices.py [--rows N] [--rounds N]

Code that is faster but longer than plain NumPy stays only while its ratio is well below 1. A comment next to the code
quotes the ratio.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from traceopt.analyzer.arrays.grouping import distinct_values, numbered
from traceopt.analyzer.reading.growing_columns import floats, triples

Way = Callable[[], object]


def choices(rows: int) -> dict[str, tuple[Way, Way]]:
    """By name: the optimized code and plain NumPy, on the same input."""
    numbers = random.Random(1)  # noqa: S311
    lists = [[numbers.random() * 1e6 for _ in range(rows)] for _ in range(4)]
    blocks = [(float(numbers.randrange(1024)), 1.0, 1.0) for _ in range(rows)]
    codes = np.random.default_rng(1).integers(0, 5_000, rows).astype(np.int32)
    times = np.sort(np.random.default_rng(1).integers(0, 1 << 40, rows))
    return {
        "floats: lists of floats to an array": (lambda: floats(lists), lambda: np.array(lists)),
        "triples: float triples to an array": (lambda: triples(blocks), lambda: np.array(blocks)),
        "numbered: codes and their inverse": (lambda: numbered(codes), lambda: np.unique(codes, return_inverse=True)),
        "distinct_values: codes that occur": (lambda: distinct_values(codes), lambda: np.unique(codes)),
        "distinct_values: times": (lambda: distinct_values(times), lambda: np.unique(times)),
    }


def fastest_s(ways: tuple[Way, Way], rounds: int) -> tuple[float, float]:
    """The fastest run of each, in seconds. The two take turns."""
    best = [float("inf"), float("inf")]
    for _ in range(rounds):
        for place, way in enumerate(ways):
            start = time.perf_counter()
            way()
            best[place] = min(best[place], time.perf_counter() - start)
    return best[0], best[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    print(f"{'what':40s} {'ours':>9s} {'plain':>9s} {'ratio':>6s}")
    for name, ways in choices(args.rows).items():
        ours, plain = fastest_s(ways, args.rounds)
        print(f"{name:40s} {ours * 1e3:6.2f} ms {plain * 1e3:6.2f} ms {ours / plain:6.2f}")


if __name__ == "__main__":
    main()
