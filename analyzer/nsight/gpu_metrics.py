"""Samples of the GPUs' hardware counters in an Nsight Systems export (`--gpu-metrics-devices`)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from traceopt.analyzer.nsight.database import Database
from traceopt.analyzer.nsight.devices import numbers_of_process
from traceopt.analyzer.nsight.processes import NsightProcess
from traceopt.analyzer.tables.schema import CounterTable

METRICS = "GPU_METRICS"
_MOST_METRICS = 4_096
_GPU_BITS = 0xFF  # of a `typeId`: the number of the GPU in the machine


def read_metrics(
    database: Database, process: NsightProcess, origin: int, duration_ns: int, code_of: Callable[[str], int]
) -> CounterTable:
    """The samples between `origin` and `duration_ns` later, with GPUs numbered as the process does. `code_of` gives the
    code of a metric's name.
    """
    if not database.has(METRICS, "timestamp", "typeId", "metricId", "value"):
        return CounterTable.empty()
    columns = ("timestamp", "typeId", "metricId", "value")
    found = database.numbers(METRICS, columns, {"timestamp": (origin, origin + duration_ns)})
    about = database.records("TARGET_INFO_GPU_METRICS", ("typeId", "metricId"), ("metricName",), most=_MOST_METRICS)
    names = {(row["typeId"], row["metricId"]): row["metricName"] for row in about}
    number = numbers_of_process(database, process)
    keys, inverse = np.unique(np.stack([found["typeId"], found["metricId"]], 1), axis=0, return_inverse=True)
    known = [(names.get((kind, metric)), kind & _GPU_BITS) for kind, metric in keys.tolist()]
    codes = np.array([code_of(name) if isinstance(name, str) else -1 for name, _ in known], np.int32)
    devices = np.array([number.get(gpu, -1) if number else gpu for _, gpu in known], np.int32)
    code, device = codes[inverse.reshape(-1)], devices[inverse.reshape(-1)]
    rows = np.flatnonzero((code >= 0) & (device >= 0))
    rows = rows[np.argsort(found["timestamp"][rows], kind="stable")]
    time, value = found["timestamp"][rows] - origin, found["value"][rows].astype(np.float64)
    return CounterTable(time=time, name=code[rows], device=device[rows], value=value)
