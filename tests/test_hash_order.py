"""The document and the report of a trace are the same in each process: nothing in them has the order of a set."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TRACES = Path(__file__).resolve().parents[1] / "fixtures" / "traces"
# Sets are in the order of hashes: those of strings depend on the seed, those of objects on where they are in memory.
PROGRAM = """
import os, sys
from hashlib import sha256
in_the_way = [bytes(size) for size in range(1, 512, 16) for _ in range(int(os.environ["PYTHONHASHSEED"]))]
from traceopt.api import analyze
from traceopt.reports.html.page import render_html
for path in sys.argv[1:]:
    result = analyze(path)
    print(path, *(sha256(made).hexdigest() for made in (result.to_json(), render_html(result, static=True).encode())))
"""


def test_another_order_of_sets() -> None:
    recorded = [path for kind in ("h100", "gloo") for path in (TRACES / kind).iterdir() if path.is_dir()]
    traces = sorted(map(str, [*recorded, *TRACES.glob("*.json.gz")]))[::3]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *traces],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "2")
    ]
    one, another = (process.communicate()[0].splitlines() for process in processes)
    assert len(one) == len(traces) > 5
    assert one == another
