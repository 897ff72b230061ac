"""Runs HolisticTraceAnalysis on one trace, in its own environment: load, temporal, idle and kernel breakdown."""

import sys
from pathlib import Path

from hta.trace_analysis import TraceAnalysis  # pyright: ignore[reportMissingImports]

if __name__ == "__main__":  # HolisticTraceAnalysis may start worker processes
    trace = Path(sys.argv[1]).resolve()
    analysis = TraceAnalysis(trace_files={0: str(trace)}, trace_dir=str(trace.parent))
    analysis.get_temporal_breakdown(visualize=False)
    analysis.get_idle_time_breakdown(ranks=[0], visualize=False)
    analysis.get_gpu_kernel_breakdown(visualize=False)
