"""What HolisticTraceAnalysis shows: `python hta_answers.py FOLDER...`, in its own environment.

Its tables say on which side the time is. Four causes follow from them: communication or copies that overlap nothing,
ranks that communicate for different times (the one that the others wait for least), and a GPU that waits for launches.
"""

import contextlib
import json
import logging
import os
import sys
from pathlib import Path

CAUSES = ("communication", "copies", "imbalance", "launching")
LEAST_SHARE = 0.1  # of the window: a reader would look at it
UNEVEN = 1.25  # times the kernel time of the rank that communicates least


def shares_of(analysis):  # type: (object) -> dict[str, float]
    """Shares of the window that are no compute: idle, and what overlaps nothing, by the type of the kernels."""
    row = analysis.get_temporal_breakdown(visualize=False).iloc[0]  # type: ignore[attr-defined]
    types, kernels = analysis.get_gpu_kernel_breakdown(visualize=False)  # type: ignore[attr-defined]
    alone = types.set_index("kernel_type")["percentage"] / 100 * (1 - row["idle_time_pctg"] / 100)
    of_ranks = kernels[kernels["kernel_type"] == "COMMUNICATION"].groupby("rank")["sum (us)"].sum()
    is_uneven = len(of_ranks) > 1 and of_ranks.max() >= UNEVEN * of_ranks.min()
    return {
        "host": row["idle_time_pctg"] / 100,
        "imbalance" if is_uneven else "communication": alone.get("COMMUNICATION", 0.0),
        "copies": alone.get("MEMORY", 0.0),
    }


def is_launching(analysis):  # type: (object) -> bool
    """Whether launches bound the step: the critical path of its second step is on the CPU, most of it in launches; or
    the stream that computes most is idle between kernels that are queued.
    """
    idle, _ = analysis.get_idle_time_breakdown(ranks=[0], visualize=False)  # type: ignore[attr-defined]
    by_reason = idle.groupby("idle_category")["idle_time"].sum()
    if by_reason.get("kernel_wait", 0.0) > by_reason.sum() / 2:
        return True
    graph, done = analysis.critical_path_analysis(0, "ProfilerStep", 1)  # type: ignore[attr-defined]
    if not done:
        return False
    path = graph.get_critical_path_breakdown()
    names = path[path["bound_by"] == "cpu_bound"].groupby("s_name")["duration"].sum()
    return bool(len(names)) and names.sum() > path["duration"].sum() / 2 and names.idxmax() == "cudaLaunchKernel"


def answer(folder):  # type: (str) -> dict[str, list[str]]
    from hta.trace_analysis import TraceAnalysis  # pyright: ignore[reportMissingImports]

    logging.disable(logging.WARNING)
    files = {rank: str(path) for rank, path in enumerate(sorted(Path(folder).resolve().glob("*.json.gz")))}
    with contextlib.redirect_stdout(sys.stderr):
        analysis = TraceAnalysis(trace_files=files, trace_dir=folder)
        shares = shares_of(analysis)
        notable = [name for name in sorted(shares, key=lambda share: -shares[share]) if shares[name] >= LEAST_SHARE]
        causes = [name for name in notable if name in CAUSES]
        if notable[:1] == ["host"] and is_launching(analysis):
            causes.insert(0, "launching")
    sides = ["communication" if name == "imbalance" else name for name in notable]
    return {"causes": causes, "sides": sides or ["gpu"]}


if __name__ == "__main__":  # HolisticTraceAnalysis may start worker processes
    for folder in sys.argv[1:]:
        began, error = sum(os.times()[:4]), None
        said = {}  # type: dict[str, list[str]]
        try:
            said = answer(folder)
        except Exception as raised:  # a trace that it cannot read is an answer, too
            error = f"{type(raised).__name__}: {raised}"[:200]
        print(json.dumps({**said, "error": error, "seconds": sum(os.times()[:4]) - began}), flush=True)
