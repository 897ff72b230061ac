"""The GPUs that an Nsight Systems export lists, spelled as in the header of a torch.profiler trace."""

from __future__ import annotations

from typing import Any

from traceopt.analyzer.nsight.database import Database
from traceopt.analyzer.nsight.processes import THREAD_BITS, NsightProcess

_MOST_GPUS = 256
_NUMBERS = ("id", "cuDevice", "totalMemory", "smCount", "computeMajor", "computeMinor")
_OF_PROCESS = ("gpuId", "cudaId", "pid")


def device_properties(database: Database, process: NsightProcess) -> list[dict[str, Any]]:
    """One entry a GPU, `id` as the process numbers it. Empty if the export has no table of GPUs."""
    gpus = database.records("TARGET_INFO_GPU", _NUMBERS, ("name",), most=_MOST_GPUS)
    numbered = numbers_of_process(database, process)
    found = []
    for gpu in gpus:
        own = gpu["cuDevice"] if isinstance(gpu["cuDevice"], int) and gpu["cuDevice"] >= 0 else gpu["id"]
        fields = {
            "id": numbered.get(gpu["id"], own) if isinstance(gpu["id"], int) else own,
            "name": gpu["name"],
            "totalGlobalMem": gpu["totalMemory"],
            "numSms": gpu["smCount"],
            "computeMajor": gpu["computeMajor"],
            "computeMinor": gpu["computeMinor"],
        }
        found.append({key: value for key, value in fields.items() if value not in (None, -1)})
    return found


def numbers_of_process(database: Database, process: NsightProcess) -> dict[int, int]:
    """How the process numbers the GPUs, by their ids in the file."""
    rows = database.records("TARGET_INFO_CUDA_DEVICE", _OF_PROCESS, (), most=_MOST_GPUS * 64)
    if process.global_pid is not None:
        pid = (process.global_pid >> THREAD_BITS) & ((1 << THREAD_BITS) - 1)
        rows = [row for row in rows if row["pid"] in (pid, -1)]
    pairs = ((row["gpuId"], row["cudaId"]) for row in rows)
    return {gpu: own for gpu, own in pairs if isinstance(gpu, int) and isinstance(own, int) and own >= 0}
