"""Samples the GPUs of this host while the command runs: clocks, their limits, power, temperature, use, processes.

A thread of the launcher reads NVML (package nvidia-ml-py) once a second, so the training process has no extra work.
Whatever NVML answers, the run goes on: a value that it does not have is null, and a sampler that fails stops.

The file `HOST.gpu_samples.jsonl` has a head and one line per sample:

{"traceopt_gpu_samples": 1, "host", "driver", "gpus": [{"index", "name", "uuid", "max_sm_mhz", "power_limit_w"}]}
{"s": seconds since the first sample, "gpus": [{"index", "sm_mhz", "memory_mhz", "reasons": bit mask of NVML's clocks
 event reasons, "power_w", "celsius", "use_percent", "used_bytes", "processes": [[pid, bytes, is it of this run]]}]}
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SUFFIX = ".gpu_samples.jsonl"
PERIOD_S = 1.0
SAMPLES_PER_PERIOD = 1800  # then the period doubles, so that a run of weeks keeps the file small
MOST_BYTES = 32 * 2**20
MOST_PROCESSES = 32  # of one GPU
MOST_GPUS = 64


class GpuSampler:
    """A context manager around the command. Without NVML, and without a GPU, it does nothing and leaves no file."""

    def __init__(self, folder: Path, nvml: Any = None) -> None:
        """`nvml` is the module pynvml; None imports it."""
        self._path = folder / f"{socket.gethostname()}{SUFFIX}"
        self._nvml = nvml
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> GpuSampler:
        with contextlib.suppress(ImportError):
            self._nvml = self._nvml or importlib.import_module("pynvml")
            self._thread = threading.Thread(target=self._run, name="traceopt GPU samples", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(2 * PERIOD_S)  # a driver that hangs does not hold up the end of the run

    def _run(self) -> None:
        with contextlib.suppress(Exception):  # a run never fails because of its samples
            self._nvml.nvmlInit()  # may take seconds
            devices = [self._nvml.nvmlDeviceGetHandleByIndex(index) for index in range(self._count())]
            if devices:
                with open(self._path, "w", encoding="utf-8") as file:
                    self._sample(devices, file)

    def _count(self) -> int:
        return min(MOST_GPUS, int(self._nvml.nvmlDeviceGetCount()))

    def _sample(self, devices: list[Any], file: Any) -> None:
        file.write(json.dumps(self._head(devices)) + "\n")
        period_s, taken, began = PERIOD_S, 0, time.monotonic()
        while file.tell() < MOST_BYTES:
            own = descendants(os.getpid())
            gpus = [self._gpu(index, device, own) for index, device in enumerate(devices)]
            file.write(json.dumps({"s": round(time.monotonic() - began, 2), "gpus": gpus}) + "\n")
            file.flush()
            taken += 1
            if taken % SAMPLES_PER_PERIOD == 0:
                period_s *= 2
            if self._stop.wait(period_s):
                return

    def _head(self, devices: list[Any]) -> dict[str, Any]:
        nvml = self._nvml
        return {
            "traceopt_gpu_samples": 1,
            "host": socket.gethostname(),
            "driver": _text(_ask(nvml.nvmlSystemGetDriverVersion)),
            "gpus": [
                {
                    "index": index,
                    "name": _text(_ask(nvml.nvmlDeviceGetName, device)),
                    "uuid": _text(_ask(nvml.nvmlDeviceGetUUID, device)),
                    "max_sm_mhz": _ask(nvml.nvmlDeviceGetMaxClockInfo, device, nvml.NVML_CLOCK_SM),
                    "power_limit_w": _watts(_ask(nvml.nvmlDeviceGetEnforcedPowerLimit, device)),
                }
                for index, device in enumerate(devices)
            ],
        }

    def _gpu(self, index: int, device: Any, own: set[int]) -> dict[str, Any]:
        nvml = self._nvml
        # The name since driver 535, and before.
        reasons = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
        asked = None if reasons is None else _ask(reasons, device)
        if asked is None:
            asked = _ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, device)
        memory = _ask(nvml.nvmlDeviceGetMemoryInfo, device)
        processes = _ask(nvml.nvmlDeviceGetComputeRunningProcesses, device)
        return {
            "index": index,
            "sm_mhz": _ask(nvml.nvmlDeviceGetClockInfo, device, nvml.NVML_CLOCK_SM),
            "memory_mhz": _ask(nvml.nvmlDeviceGetClockInfo, device, nvml.NVML_CLOCK_MEM),
            "reasons": asked,
            "power_w": _watts(_ask(nvml.nvmlDeviceGetPowerUsage, device)),
            "celsius": _ask(nvml.nvmlDeviceGetTemperature, device, nvml.NVML_TEMPERATURE_GPU),
            "use_percent": getattr(_ask(nvml.nvmlDeviceGetUtilizationRates, device), "gpu", None),
            "used_bytes": getattr(memory, "used", None),
            "processes": None
            if processes is None
            else [[one.pid, one.usedGpuMemory, one.pid in own] for one in processes[:MOST_PROCESSES]],
        }


def descendants(pid: int) -> set[int]:
    """The process and all below it, by /proc; only itself where there is no /proc."""
    parents: dict[int, int] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError, ValueError, IndexError):
                    stat = Path("/proc", name, "stat").read_text(encoding="utf-8", errors="replace")
                    parents[int(name)] = int(stat.rpartition(")")[2].split()[1])
    found, news = {pid}, {pid}
    while news:
        news = {child for child, parent in parents.items() if parent in news} - found
        found |= news
    return found


def _ask(function: Callable[..., Any], *arguments: Any) -> Any:
    """None for what this GPU or driver cannot say."""
    try:
        return function(*arguments)
    except Exception:
        return None


def _text(value: Any) -> str | None:
    """Older versions of the package return bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _watts(milliwatts: Any) -> float | None:
    return None if milliwatts is None else milliwatts / 1e3
