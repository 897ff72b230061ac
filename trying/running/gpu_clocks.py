"""The clocks of the GPUs during a run, and whether heat or power slowed them; needs the package nvidia-ml-py."""

from __future__ import annotations

import importlib
from typing import Any

# Reasons that are a fault of the machine. A power cap in software is how many GPUs always run.
_REASONS = {0x08: "hardware slowdown", 0x20: "heat", 0x40: "heat", 0x80: "power brake"}


class GpuClocks:
    """Call `sample` at short intervals; the results are of the samples so far. Without NVML it measures nothing."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._devices: list[tuple[Any, float]] = []
        self._lowest: list[float] = []
        self._reasons: dict[str, None] = {}
        try:
            self._nvml = importlib.import_module("pynvml")
            self._nvml.nvmlInit()
            for index in range(self._nvml.nvmlDeviceGetCount()):
                device = self._nvml.nvmlDeviceGetHandleByIndex(index)
                most = self._nvml.nvmlDeviceGetMaxClockInfo(device, self._nvml.NVML_CLOCK_SM)
                self._devices.append((device, float(most)))
        except Exception:  # no package, no driver, no GPU
            self._devices = []

    def reset(self) -> None:
        self._lowest, self._reasons = [], {}

    def sample(self) -> None:
        """Only of GPUs that work: idle ones lower their clocks."""
        for device, most in self._devices:
            try:
                if most <= 0 or self._nvml.nvmlDeviceGetUtilizationRates(device).gpu < 50:
                    continue
                clock = self._nvml.nvmlDeviceGetClockInfo(device, self._nvml.NVML_CLOCK_SM)
                self._lowest.append(clock / most)
                reasons = self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device)
                self._reasons |= {name: None for bit, name in _REASONS.items() if reasons & bit}
            except Exception:
                return

    @property
    def share(self) -> float | None:
        """The median clock as a part of the highest one; None without a sample."""
        return sorted(self._lowest)[len(self._lowest) // 2] if self._lowest else None

    @property
    def throttled(self) -> str | None:
        return ", ".join(self._reasons) or None
