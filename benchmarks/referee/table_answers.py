"""What key_averages() shows to someone who knows thumb rules: `python table_answers.py FOLDER...`.

The table is sorted by self time on the GPU, or on the CPU where the GPU works less than half of the time. The first
rows that a thumb rule knows are the answer.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

ROWS = 10  # that a reader looks at
LEAST_SHARE = 0.1  # of the total
THUMB_RULES = (
    ("DataLoader", "input"),
    ("cudaStreamSynchronize", "host sync"),
    ("cudaDeviceSynchronize", "host sync"),
    ("aten::item", "host sync"),
    ("aten::_local_scalar_dense", "host sync"),
    ("aten::nonzero", "host sync"),
    ("cudaMalloc", "memory allocation"),
    ("cudaHostAlloc", "memory allocation"),
    ("cudaLaunchKernel", "launching"),
    ("nccl", "communication"),
    ("Memcpy HtoD", "copies"),
    ("Optimizer.step", "optimizer"),
    ("softmax", "attention"),
    ("attention", "attention"),
    ("indexing_backward", "shapes"),
    ("align1", "shapes"),
    ("sgemm", "precision"),
    ("dgemm", "precision"),
    ("nchwToNhwc", "layout"),
    ("nhwcToNchw", "layout"),
    ("compile_inner", "compilation"),
    ("embedding_dense_backward", "needless work"),
    ("vectorized_elementwise", "fusion"),
    ("elementwise_kernel", "fusion"),
)


def rows_of(events: list[dict[str, Any]]) -> Counter[str]:
    """Self times, as in the table: the time of an event without the events inside it, on the same thread."""
    gpu, host = Counter[str](), Counter[str]()
    for event in events:
        if event.get("ph") == "X" and event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            gpu[event["name"]] += event["dur"]
    threads: dict[Any, list[dict[str, Any]]] = {}
    for event in events:
        if event.get("ph") == "X" and event.get("cat") in ("cpu_op", "cuda_runtime", "user_annotation"):
            threads.setdefault(event["tid"], []).append(event)
    for of_thread in threads.values():
        open_events: list[dict[str, Any]] = []
        for event in sorted(of_thread, key=lambda one: (one["ts"], -one["dur"])):
            while open_events and open_events[-1]["ts"] + open_events[-1]["dur"] <= event["ts"]:
                open_events.pop()
            if open_events:
                host[open_events[-1]["name"]] -= event["dur"]
            host[event["name"]] += event["dur"]
            open_events.append(event)
    steps = [event for event in events if str(event.get("name")).startswith("ProfilerStep#") and event.get("ph") == "X"]
    for step in steps:
        host.pop(step["name"], None)
    span = sum(step["dur"] for step in steps if step.get("cat") == "user_annotation")
    return gpu if span and gpu.total() >= span / 2 else host


def causes_of(rows: Counter[str]) -> list[str]:
    total = sum(time for time in rows.values() if time > 0)
    shown = [name for name, us in rows.most_common(ROWS) if us >= LEAST_SHARE * total]
    found = [next((cause for words, cause in THUMB_RULES if words in name), None) for name in shown]
    return list(dict.fromkeys(filter(None, found)))


if __name__ == "__main__":
    for folder in sys.argv[1:]:
        began = sum(os.times()[:4])
        trace = sorted(Path(folder).glob("*.json.gz"))[0]
        events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
        causes = causes_of(rows_of(events))
        print(json.dumps({"causes": causes, "seconds": sum(os.times()[:4]) - began}), flush=True)
