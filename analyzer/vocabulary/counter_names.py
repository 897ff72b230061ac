"""Names of the hardware counters' metrics, as regular expressions. Each is a percentage of the most that is possible.

The first spelling is that of Nsight Systems' GPU metrics, the second that of CUPTI, which PyTorch's profiler samples.
Both are from NVIDIA's documentation.
"""

from __future__ import annotations

_NSIGHT = r" \[Throughput %\]"
_CUPTI = r"(\.(avg|sum|max))?\.pct_of_peak_sustained_elapsed"

METRICS = {
    "sm_active": rf"SMs? Active{_NSIGHT}|sm__cycles_active{_CUPTI}",
    "tensor_active": rf"Tensor Active( / FP16 Active)?{_NSIGHT}|sm__pipe_tensor_cycles_active{_CUPTI}",
    "dram_read": rf"DRAM Read (Bandwidth|Throughput){_NSIGHT}|dram__(read_throughput|bytes_read){_CUPTI}",
    "dram_write": rf"DRAM Write (Bandwidth|Throughput){_NSIGHT}|dram__(write_throughput|bytes_write){_CUPTI}",
    "dram": rf"dram__throughput{_CUPTI}",
    "nvlink_in": rf"NVLink RX (Bandwidth|Throughput){_NSIGHT}|nvlrx__bytes{_CUPTI}",
    "nvlink_out": rf"NVLink TX (Bandwidth|Throughput){_NSIGHT}|nvltx__bytes{_CUPTI}",
    "pcie_in": rf"PCIe RX (Bandwidth|Throughput){_NSIGHT}|pcie__read_bytes{_CUPTI}",
    "pcie_out": rf"PCIe TX (Bandwidth|Throughput){_NSIGHT}|pcie__write_bytes{_CUPTI}",
}
