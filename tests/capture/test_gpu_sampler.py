"""The samples of NVML, with a stand-in for pynvml that is built from its documentation."""

# ruff: noqa: N802, ARG002 - the names of pynvml
from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from traceopt.analyzer.companions.gpu_samples import samples
from traceopt.analyzer.reading.sources import TraceSource
from traceopt.capture.launch.gpu_sampler import GpuSampler, descendants


class NVMLError(Exception):
    """What pynvml raises."""


class Nvml:
    """One GPU. `failing` functions raise NVMLError; `asked` is set when a first sample was taken."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self, *failing: str) -> None:
        self.failing = failing
        self.asked = threading.Event()

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml") and name in self.failing:
            raise AttributeError(name)
        return super().__getattribute__(name)

    def nvmlInit(self) -> None: ...
    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"550.54"

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, _: int) -> str:
        return "NVIDIA H100"

    def nvmlDeviceGetUUID(self, _: int) -> str:
        return "GPU-1"

    def nvmlDeviceGetMaxClockInfo(self, _: int, kind: int) -> int:
        return 1980

    def nvmlDeviceGetEnforcedPowerLimit(self, _: int) -> int:
        return 700_000

    def nvmlDeviceGetClockInfo(self, _: int, kind: int) -> int:
        return 1200 if kind == self.NVML_CLOCK_SM else 2600

    def nvmlDeviceGetCurrentClocksEventReasons(self, _: int) -> int:
        raise NVMLError("Not Supported")

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, _: int) -> int:
        return 0x20

    def nvmlDeviceGetPowerUsage(self, _: int) -> int:
        return 350_000

    def nvmlDeviceGetTemperature(self, _: int, kind: int) -> int:
        return 88

    def nvmlDeviceGetUtilizationRates(self, _: int) -> Any:
        return SimpleNamespace(gpu=99, memory=40)

    def nvmlDeviceGetMemoryInfo(self, _: int) -> Any:
        raise NVMLError("Unknown Error")

    def nvmlDeviceGetComputeRunningProcesses(self, _: int) -> Any:
        self.asked.set()
        return [SimpleNamespace(pid=os.getpid(), usedGpuMemory=None), SimpleNamespace(pid=1, usedGpuMemory=4096)]


def test_samples_are_written_and_read_back(tmp_path: Path) -> None:
    nvml = Nvml()
    with GpuSampler(tmp_path, nvml):
        assert nvml.asked.wait(30)
    (file,) = tmp_path.iterdir()
    (gpu,) = samples.read([TraceSource(str(file), None, file.name)], []).gpus
    assert (gpu.name, gpu.max_sm_mhz, gpu.power_limit_w) == ("NVIDIA H100", 1980, 700.0)
    first = gpu.samples[0]
    assert (first.sm_mhz, first.reasons, first.celsius, first.power_w, first.busy) == (1200, 0x20, 88, 350.0, True)
    assert first.own
    assert first.others == ((1, 4096),)
    assert json.loads(file.read_text().splitlines()[1])["gpus"][0]["used_bytes"] is None


def test_errors_of_nvml_never_stop_a_run(tmp_path: Path) -> None:
    for failing in ("nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"):
        sampler = GpuSampler(tmp_path, Nvml(failing))
        with sampler:
            pass
        assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_gone_never_stops_a_run(tmp_path: Path) -> None:
    with GpuSampler(tmp_path / "gone", Nvml()):
        pass


def test_processes_below_this_one_are_its_own() -> None:
    own = descendants(os.getppid())
    assert os.getpid() in own
    assert os.getppid() in own
    assert 1 not in descendants(os.getpid())
