"""AMD GPUs as AMD SMI describes them (package amdsmi, a part of ROCm).

Built from its documentation and the source of its Python interface, without a GPU. What a version or GPU cannot say is
"N/A" there.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from traceopt.capture.or_none import or_none

MOST_PROCESSES = 32  # of one GPU
# Violations that lower the clocks, as bits of NVML's clocks event reasons: power limit and hardware temperature.
VIOLATIONS = {
    "active_ppt_pwr": 0x04,
    "active_socket_thrm": 0x40,
    "active_hbm_thrm": 0x40,
    "active_vr_thrm": 0x40,
    "active_prochot_thrm": 0x40,
}
_MOST_WATTS = 1e5  # a larger power limit is in microwatts
_MOST_CELSIUS = 1e3  # a higher temperature is in thousandths of a degree


def installed() -> bool:
    return importlib.util.find_spec("amdsmi") is not None


def connect() -> AmdsmiGpus:
    """Raises whatever the library raises without a driver."""
    return AmdsmiGpus(importlib.import_module("amdsmi"))


class AmdsmiGpus:
    """What a sample needs; `smi` is the module amdsmi."""

    source = "amdsmi"

    def __init__(self, smi: Any) -> None:
        self._smi = smi
        smi.amdsmi_init()

    def devices(self) -> list[Any]:
        return list(self._smi.amdsmi_get_processor_handles())

    def driver(self, device: Any) -> str | None:
        return _word(self._answer("amdsmi_get_gpu_driver_info", device).get("driver_version"))

    def description(self, device: Any) -> dict[str, Any]:
        limit = _number(self._answer("amdsmi_get_power_cap_info", device).get("power_cap"))
        return {
            "name": _word(self._answer("amdsmi_get_gpu_asic_info", device).get("market_name")),
            "uuid": _word(or_none(lambda: self._smi.amdsmi_get_gpu_device_uuid(device))),
            "max_sm_mhz": _number(self._clock(device, "GFX").get("max_clk")),
            "power_limit_w": limit / 1e6 if limit is not None and limit > _MOST_WATTS else limit,
        }

    def sample(self, device: Any, own: set[int]) -> dict[str, Any]:
        graphics, memory = self._clock(device, "GFX"), self._clock(device, "MEM")
        power = self._answer("amdsmi_get_power_info", device)
        watts = (_number(power.get(key)) for key in ("socket_power", "current_socket_power", "average_socket_power"))
        return {
            "sm_mhz": _number(graphics.get("clk", graphics.get("cur_clk"))),
            "memory_mhz": _number(memory.get("clk", memory.get("cur_clk"))),
            "reasons": self._reasons(device),
            "power_w": next((value for value in watts if value), None),
            "celsius": self._celsius(device),
            "use_percent": _number(self._answer("amdsmi_get_gpu_activity", device).get("gfx_activity")),
            "used_bytes": _number(
                or_none(lambda: self._smi.amdsmi_get_gpu_memory_usage(device, self._smi.AmdSmiMemoryType.VRAM))
            ),
            "processes": self._processes(device, own),
        }

    def _answer(self, function: str, *arguments: Any) -> dict[str, Any]:
        """The dict that a function returns; empty if it is not there or fails."""
        found = or_none(lambda: getattr(self._smi, function)(*arguments))
        return found if isinstance(found, dict) else {}

    def _clock(self, device: Any, kind: str) -> dict[str, Any]:
        found = or_none(lambda: self._smi.amdsmi_get_clock_info(device, getattr(self._smi.AmdSmiClkType, kind)))
        return found if isinstance(found, dict) else {}

    def _celsius(self, device: Any) -> int | None:
        smi = self._smi
        for sensor in ("HOTSPOT", "JUNCTION", "EDGE"):
            value: float | None = _number(
                or_none(
                    lambda sensor=sensor: smi.amdsmi_get_temp_metric(
                        device, getattr(smi.AmdSmiTemperatureType, sensor), smi.AmdSmiTemperatureMetric.CURRENT
                    )
                )
            )
            if value is not None:
                return round(value / 1e3 if value > _MOST_CELSIUS else value)
        return None

    def _reasons(self, device: Any) -> int | None:
        """None on GPUs before MI300, which do not report violations."""
        status = self._answer("amdsmi_get_violation_status", device)
        known = {key: status[key] for key in VIOLATIONS if isinstance(status.get(key), (bool, int))}
        reasons = 0
        for key, active in known.items():
            reasons |= VIOLATIONS[key] if active else 0
        return reasons if known else None

    def _processes(self, device: Any, own: set[int]) -> list[list[Any]] | None:
        """Processes with memory on this GPU: the list also names those that use another one."""
        found = or_none(lambda: self._smi.amdsmi_get_gpu_process_list(device))
        if not isinstance(found, list):
            return None
        rows = []
        for process in found:
            # Before ROCm 6.3 the list has handles.
            row = process if isinstance(process, dict) else self._answer("amdsmi_get_gpu_process_info", device, process)
            pid, memory = _number(row.get("pid")), row.get("memory_usage")
            used = _number(memory.get("vram_mem")) if isinstance(memory, dict) else None
            if pid is not None and used != 0:
                rows.append([pid, used, pid in own])
        return rows[:MOST_PROCESSES]


def _number(value: Any) -> Any:
    """None for "N/A"."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) and value != "N/A" else None
