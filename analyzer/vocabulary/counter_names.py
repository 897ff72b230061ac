"""Names of the GPU's counters, as regular expressions.

Each of METRICS is a percentage of the most that is possible. The spellings are those of Nsight Systems' GPU metrics, of
CUPTI, which Kineto samples, and of PyTorch 2.15 (`_PM_METRIC_LABELS`), in this order. Those of NVIDIA are from its
documentation, those of PyTorch from its source.
"""

from __future__ import annotations

import re

_NSIGHT = r" \[Throughput %\]"
_CUPTI = r"(\.(avg|sum|max))?\.pct_of_peak_sustained_elapsed"
_TORCH = r" \(%\)"

METRICS = {
    "sm_active": rf"SMs? Active{_NSIGHT}|sm__cycles_active{_CUPTI}|SM Active{_TORCH}",
    "tensor_active": rf"Tensor Active( / FP16 Active)?{_NSIGHT}|sm__pipe_tensor_cycles_active{_CUPTI}",
    "dram_read": (
        rf"DRAM Read (Bandwidth|Throughput){_NSIGHT}|dram__(read_throughput|bytes_read){_CUPTI}|HBM Read{_TORCH}"
    ),
    "dram_write": (
        rf"DRAM Write (Bandwidth|Throughput){_NSIGHT}|dram__(write_throughput|bytes_write){_CUPTI}|HBM Write{_TORCH}"
    ),
    "dram": rf"dram__throughput{_CUPTI}|HBM BW{_TORCH}",
    "gpu_dram": rf"gpu__dram_throughput{_CUPTI}|DRAM BW{_TORCH}",
    "nvlink_in": rf"NVLink RX (Bandwidth|Throughput){_NSIGHT}|nvlrx__bytes{_CUPTI}|NVLink RX{_TORCH}",
    "nvlink_out": rf"NVLink TX (Bandwidth|Throughput){_NSIGHT}|nvltx__bytes{_CUPTI}|NVLink TX{_TORCH}",
    "pcie_in": rf"PCIe RX (Bandwidth|Throughput){_NSIGHT}|pcie__read_bytes{_CUPTI}",
    "pcie_out": rf"PCIe TX (Bandwidth|Throughput){_NSIGHT}|pcie__write_bytes{_CUPTI}",
    "pcie": rf"pcie__throughput{_CUPTI}|PCIe{_TORCH}",
}

CLOCK = r"SM Clock \(MHz\)|GPC Clock Frequency \[MHz\]"
POWER = r"Power \(W\)"
TEMPERATURE = r"Temperature \(C\)"
_STATE = re.compile(rf"{CLOCK}|{POWER}|{TEMPERATURE}|Memory Clock \(MHz\)|Fan Speed \(%\)|Cycles \(Current Kernel\)")


def locks_clocks(name: str) -> bool:
    """Whether sampling this counter locks the clocks of the GPU: reading its state does not."""
    return _STATE.fullmatch(name) is None
