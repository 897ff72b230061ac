"""Samples the GPUs of this host while the command runs: clocks, their limits, power, temperature, use, processes.

A thread of the launcher reads NVML (package nvidia-ml-py), or AMD SMI (package amdsmi) on a host without NVIDIA GPUs,
once a second, so the training process has no extra work. Whatever the library answers, the run goes on: a value that it
does not have is null, and a sampler that fails stops.

The file `HOST.gpu_samples.jsonl` has a head and one line per sample:

{"traceopt_gpu_samples": 1, "host", "source": "nvml" or "amdsmi", "driver",
 "gpus": [{"index", "name", "uuid", "max_sm_mhz", "power_limit_w"}]}
{"s": seconds since the first sample, "gpus": [{"index", "sm_mhz", "memory_mhz", "reasons": bit mask of NVML's clocks
 event reasons, "power_w", "celsius", "use_percent", "used_bytes", "processes": [[pid, bytes, is it of this run]]}]}
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from traceopt.capture.launch import amdsmi_gpus, nvml_gpus

SUFFIX = ".gpu_samples.jsonl"
PERIOD_S = 1.0
SAMPLES_PER_PERIOD = 1800  # then the period doubles, so that a run of weeks keeps the file small
MOST_BYTES = 32 * 2**20
MOST_GPUS = 64


class GpuSampler:
    """A context manager around the command. Without NVML and AMD SMI, and without a GPU, it does nothing and leaves no
    file.
    """

    def __init__(self, folder: Path, libraries: Sequence[Any] = (nvml_gpus, amdsmi_gpus)) -> None:
        self._path = folder / f"{socket.gethostname()}{SUFFIX}"
        self._libraries = libraries
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> GpuSampler:
        if any(library.installed() for library in self._libraries):
            self._thread = threading.Thread(target=self._run, name="traceopt GPU samples", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(2 * PERIOD_S)  # a driver that hangs does not hold up the end of the run

    def _run(self) -> None:
        for library in self._libraries:
            with contextlib.suppress(Exception):  # a run never fails because of its samples
                gpus = library.connect()  # may take seconds
                devices = gpus.devices()[:MOST_GPUS]
                if devices:
                    with open(self._path, "w", encoding="utf-8") as file:
                        self._sample(gpus, devices, file)
                    return

    def _sample(self, gpus: Any, devices: Sequence[Any], file: Any) -> None:
        file.write(json.dumps(_head(gpus, devices)) + "\n")
        period_s, taken, began = PERIOD_S, 0, time.monotonic()
        while file.tell() < MOST_BYTES:
            own = descendants(os.getpid())
            rows = [{"index": index, **gpus.sample(device, own)} for index, device in enumerate(devices)]
            file.write(json.dumps({"s": round(time.monotonic() - began, 2), "gpus": rows}) + "\n")
            file.flush()
            taken += 1
            if taken % SAMPLES_PER_PERIOD == 0:
                period_s *= 2
            if self._stop.wait(period_s):
                return


def _head(gpus: Any, devices: Sequence[Any]) -> dict[str, Any]:
    return {
        "traceopt_gpu_samples": 1,
        "host": socket.gethostname(),
        "source": gpus.source,
        "driver": gpus.driver(devices[0]),
        "gpus": [{"index": index, **gpus.description(device)} for index, device in enumerate(devices)],
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
