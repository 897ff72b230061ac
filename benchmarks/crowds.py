#!/usr/bin/env python3
"""CPU time and memory for traces with far too many, or far too much, of one thing (fixtures/crowded.py).

python benchmarks/crowds.py [NAME ...] [--count 100000]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.broken_variants import resident_bytes
from fixtures.crowded import CROWDS
from traceopt.api import analyze
from traceopt.reports.html.page import render_html

MB = 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*CROWDS, []], metavar="NAME")
    parser.add_argument("--count", type=int, default=100_000)
    options = parser.parse_args()
    print("| trace | text MB | CPU s | MB above the idle process |")
    print("| --- | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        for name in options.names or CROWDS:
            path.write_bytes(CROWDS[name](options.count))
            child = os.fork()  # so that each starts with the memory of an idle process
            if child == 0:
                measure(name, path)
                os._exit(0)
            os.waitpid(child, 0)


def measure(name: str, path: Path) -> None:
    idle_bytes, start = resident_bytes("VmRSS"), time.process_time()
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    render_html(analyze(str(path), debug=True))
    text, grown = path.stat().st_size, resident_bytes("VmHWM") - idle_bytes
    cpu_s = time.process_time() - start
    print(f"| {name} | {text / MB:.1f} | {cpu_s:.1f} | {grown / MB:.0f} |", flush=True)


if __name__ == "__main__":
    main()
