"""NVIDIA GPUs as NVML describes them (package nvidia-ml-py)."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from traceopt.capture.or_none import or_none

MOST_PROCESSES = 32  # of one GPU


def installed() -> bool:
    return importlib.util.find_spec("pynvml") is not None


def connect() -> NvmlGpus:
    """Raises whatever the library raises without a driver."""
    return NvmlGpus(importlib.import_module("pynvml"))


class NvmlGpus:
    """What a sample needs; `nvml` is the module pynvml."""

    source = "nvml"

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        nvml.nvmlInit()

    def devices(self) -> list[Any]:
        return [self._nvml.nvmlDeviceGetHandleByIndex(index) for index in range(int(self._nvml.nvmlDeviceGetCount()))]

    def driver(self, _: Any) -> str | None:
        return _text(or_none(self._nvml.nvmlSystemGetDriverVersion))

    def description(self, device: Any) -> dict[str, Any]:
        nvml = self._nvml
        return {
            "name": _text(or_none(nvml.nvmlDeviceGetName, device)),
            "uuid": _text(or_none(nvml.nvmlDeviceGetUUID, device)),
            "max_sm_mhz": or_none(nvml.nvmlDeviceGetMaxClockInfo, device, nvml.NVML_CLOCK_SM),
            "power_limit_w": _watts(or_none(nvml.nvmlDeviceGetEnforcedPowerLimit, device)),
        }

    def sample(self, device: Any, own: set[int]) -> dict[str, Any]:
        nvml = self._nvml
        # The name since driver 535, and before.
        newer = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
        reasons = None if newer is None else or_none(newer, device)
        if reasons is None:
            reasons = or_none(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, device)
        memory = or_none(nvml.nvmlDeviceGetMemoryInfo, device)
        processes = or_none(nvml.nvmlDeviceGetComputeRunningProcesses, device)
        return {
            "sm_mhz": or_none(nvml.nvmlDeviceGetClockInfo, device, nvml.NVML_CLOCK_SM),
            "memory_mhz": or_none(nvml.nvmlDeviceGetClockInfo, device, nvml.NVML_CLOCK_MEM),
            "reasons": reasons,
            "power_w": _watts(or_none(nvml.nvmlDeviceGetPowerUsage, device)),
            "celsius": or_none(nvml.nvmlDeviceGetTemperature, device, nvml.NVML_TEMPERATURE_GPU),
            "use_percent": getattr(or_none(nvml.nvmlDeviceGetUtilizationRates, device), "gpu", None),
            "used_bytes": getattr(memory, "used", None),
            "processes": None
            if processes is None
            else [[process.pid, process.usedGpuMemory, process.pid in own] for process in processes[:MOST_PROCESSES]],
        }


def _text(value: Any) -> str | None:
    """Older versions of the package return bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _watts(milliwatts: Any) -> float | None:
    return None if milliwatts is None else milliwatts / 1e3
