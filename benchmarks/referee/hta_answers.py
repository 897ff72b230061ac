"""What HolisticTraceAnalysis shows: `python hta_answers.py FOLDER...`, in its own environment.

It names no cause. Its tables say on which side the time is: the largest part of the step that is no compute.
"""

import contextlib
import json
import sys
import time
from pathlib import Path

LEAST_SHARE = 0.1  # of the window: a reader would look at it


def side_of(analysis):  # type: (object) -> list[str]
    """Sides with a notable share, largest first; "gpu" if the GPU computes nearly all of the time."""
    row = analysis.get_temporal_breakdown(visualize=False).iloc[0]  # type: ignore[attr-defined]
    shares = {"host": row["idle_time_pctg"] / 100, "communication": row["non_compute_time_pctg"] / 100}
    notable = [side for side, share in sorted(shares.items(), key=lambda one: -one[1]) if share >= LEAST_SHARE]
    return notable or ["gpu"]


def answer(folder):  # type: (str) -> list[str]
    from hta.trace_analysis import TraceAnalysis  # pyright: ignore[reportMissingImports]

    files = {rank: str(path) for rank, path in enumerate(sorted(Path(folder).resolve().glob("*.json.gz")))}
    with contextlib.redirect_stdout(sys.stderr):
        return side_of(TraceAnalysis(trace_files=files, trace_dir=folder))


if __name__ == "__main__":  # HolisticTraceAnalysis may start worker processes
    for folder in sys.argv[1:]:
        began, sides, error = time.perf_counter(), [], None
        try:
            sides = answer(folder)
        except Exception as raised:  # a trace that it cannot read is an answer, too
            error = f"{type(raised).__name__}: {raised}"[:200]
        print(json.dumps({"sides": sides, "error": error, "seconds": time.perf_counter() - began}), flush=True)
