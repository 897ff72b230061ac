"""Samples of the GPU's hardware counters in an Nsight Systems export (`--gpu-metrics-devices`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from traceopt.analyzer.nsight.database import Database

METRICS = "GPU_METRICS"
_MOST_METRICS = 4_096
_GPU_BITS = 0xFF  # of a `typeId`: the number of the GPU in the machine


def read_metrics(database: Database, gpus: frozenset[int]) -> tuple[dict[str, Any], list[str]]:
    """Samples of these GPUs: `time` in ns, `device` as the machine numbers it, `value` in the metric's unit; and the
    name of the metric of each. Empty without such a table.
    """
    if not database.has(METRICS, "timestamp", "typeId", "metricId", "value"):
        return {}, []
    about = database.records("TARGET_INFO_GPU_METRICS", ("typeId", "metricId"), ("metricName",), most=_MOST_METRICS)
    names = {(row["typeId"], row["metricId"]): str(row["metricName"] or "")[:200] for row in about}
    found = database.numbers(METRICS, ("timestamp", "typeId", "metricId", "value"))
    device = found["typeId"] & _GPU_BITS
    wanted = np.isin(device, list(gpus)) if gpus else np.ones(len(device), bool)
    keys = list(zip(found["typeId"][wanted].tolist(), found["metricId"][wanted].tolist(), strict=True))
    columns = {"time": found["timestamp"][wanted], "device": device[wanted], "value": found["value"][wanted]}
    return columns, [names.get(key, "") for key in keys]
