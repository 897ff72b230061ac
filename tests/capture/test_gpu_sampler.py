"""The samples of NVML and AMD SMI, with stand-ins that are built from their documentation."""

# ruff: noqa: N802, ARG002 - the names of pynvml and amdsmi
from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from traceopt.analyzer.companions.gpu_samples import samples
from traceopt.analyzer.reading.sources import TraceSource
from traceopt.capture.launch.amdsmi_gpus import AmdsmiGpus
from traceopt.capture.launch.gpu_sampler import GpuSampler, descendants
from traceopt.capture.launch.nvml_gpus import NvmlGpus
from traceopt.result.words.vendors import AMD


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


def library(connect: Callable[[], Any]) -> Any:
    """A stand-in for the module of a library's GPUs."""
    return SimpleNamespace(installed=lambda: True, connect=connect)


class Amdsmi:
    """A stand-in for amdsmi, as its Python interface is documented: one MI300X. `old` answers as ROCm 6.0 did."""

    AmdSmiClkType = SimpleNamespace(GFX="gfx", MEM="mem")
    AmdSmiTemperatureType = SimpleNamespace(EDGE="edge", JUNCTION="junction")
    AmdSmiTemperatureMetric = SimpleNamespace(CURRENT=0)
    AmdSmiMemoryType = SimpleNamespace(VRAM="vram")

    def __init__(self, *, old: bool = False) -> None:
        self.old = old
        self.asked = threading.Event()

    def amdsmi_init(self) -> None: ...
    def amdsmi_get_processor_handles(self) -> list[str]:
        return ["gpu0"]

    def amdsmi_get_gpu_driver_info(self, _: str) -> dict[str, str]:
        return {"driver_version": "6.12.12"}

    def amdsmi_get_gpu_asic_info(self, _: str) -> dict[str, str]:
        return {"market_name": "AMD Instinct MI300X"}

    def amdsmi_get_gpu_device_uuid(self, _: str) -> str:
        return "uuid-0"

    def amdsmi_get_power_cap_info(self, _: str) -> dict[str, int]:
        return {"power_cap": 750 if self.old else 750_000_000}

    def amdsmi_get_clock_info(self, _: str, kind: str) -> dict[str, Any]:
        clock = 1300 if kind == "gfx" else 1200
        return {"cur_clk" if self.old else "clk": clock, "max_clk": 2100, "clk_deep_sleep": "N/A"}

    def amdsmi_get_power_info(self, _: str) -> dict[str, Any]:
        return {"current_socket_power": "N/A" if self.old else 742, "average_socket_power": 742 if self.old else "N/A"}

    def amdsmi_get_temp_metric(self, _: str, sensor: str, __: int) -> int:
        if sensor != "junction":
            raise ValueError("not supported")
        return 91

    def amdsmi_get_gpu_activity(self, _: str) -> dict[str, Any]:
        return {"gfx_activity": 97, "mm_activity": "N/A"}

    def amdsmi_get_gpu_memory_usage(self, _: str, kind: str) -> int:
        return 2**30

    def amdsmi_get_violation_status(self, _: str) -> dict[str, Any]:
        if self.old:
            raise ValueError("not supported")
        return {"active_ppt_pwr": True, "active_socket_thrm": False, "active_hbm_thrm": "N/A"}

    def amdsmi_get_gpu_process_list(self, _: str) -> list[Any]:
        self.asked.set()
        rows = [
            {"pid": os.getpid(), "memory_usage": {"vram_mem": 4096}},
            {"pid": 1, "memory_usage": {"vram_mem": 8192}},
            {"pid": 2, "memory_usage": {"vram_mem": 0}},  # it uses another GPU
        ]
        return list(range(3)) if self.old else rows

    def amdsmi_get_gpu_process_info(self, _: str, process: int) -> dict[str, Any]:
        return Amdsmi().amdsmi_get_gpu_process_list("")[process]


@pytest.mark.parametrize("old", [False, True], ids=["today", "rocm-6.0"])
def test_gpus_of_amd_are_sampled_where_there_is_no_nvml(old: bool, tmp_path: Path) -> None:
    smi = Amdsmi(old=old)
    libraries = [library(lambda: NvmlGpus(Nvml("nvmlInit"))), library(lambda: AmdsmiGpus(smi))]
    with GpuSampler(tmp_path, libraries):
        assert smi.asked.wait(30)
    (file,) = tmp_path.iterdir()
    (gpu,) = samples.read_gpu_samples([TraceSource(str(file), None, file.name)], []).gpus
    assert (gpu.name, gpu.max_sm_mhz, gpu.power_limit_w, gpu.vendor) == ("AMD Instinct MI300X", 2100, 750.0, AMD)
    first = gpu.samples[0]
    assert (first.sm_mhz, first.celsius, first.power_w, first.use_percent) == (1300, 91, 742.0, 97)
    assert first.reasons == (None if old else samples.POWER_LIMIT)
    assert first.own
    assert first.others == ((1, 8192),)


def test_samples_are_written_and_read_back(tmp_path: Path) -> None:
    nvml = Nvml()
    with GpuSampler(tmp_path, [library(lambda: NvmlGpus(nvml))]):
        assert nvml.asked.wait(30)
    (file,) = tmp_path.iterdir()
    (gpu,) = samples.read_gpu_samples([TraceSource(str(file), None, file.name)], []).gpus
    assert (gpu.name, gpu.max_sm_mhz, gpu.power_limit_w) == ("NVIDIA H100", 1980, 700.0)
    first = gpu.samples[0]
    assert (first.sm_mhz, first.reasons, first.celsius, first.power_w, first.busy) == (1200, 0x20, 88, 350.0, True)
    assert first.own
    assert first.others == ((1, 4096),)
    assert json.loads(file.read_text().splitlines()[1])["gpus"][0]["used_bytes"] is None


def test_errors_of_nvml_never_stop_a_run(tmp_path: Path) -> None:
    for failing in ("nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"):
        nvml = Nvml(failing)
        with GpuSampler(tmp_path, [library(lambda nvml=nvml: NvmlGpus(nvml))]):
            pass
        assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_gone_never_stops_a_run(tmp_path: Path) -> None:
    with GpuSampler(tmp_path / "gone", [library(lambda: NvmlGpus(Nvml()))]):
        pass


def test_processes_below_this_one_are_its_own() -> None:
    own = descendants(os.getppid())
    assert os.getpid() in own
    assert os.getppid() in own
    assert 1 not in descendants(os.getpid())
