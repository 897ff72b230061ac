"""The peak table: dense rates (no sparsity) from the vendors' datasheets.

TFLOP/s (TOP/s for int8) of the fastest unit that multiplies matrices in that type: Tensor Cores or matrix cores where
they take the type, else the vector units; FP32 accumulation where the sheet tells them apart. One row is one device as
the framework lists it: one die of an MI250X, one GPU of a GB200.

`source` names the vendor's publication of a row. The rows were written without the publications at hand (the public
search that was available held third-party pages only): check a figure there before quoting it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from traceopt.analyzer.vocabulary.architectures import Accelerator


def _peaks(
    fp32: float,
    tf32: float | None = None,
    fp16: float | None = None,
    bf16: float | None = None,
    fp8: float | None = None,
    int8: float | None = None,
    fp64: float | None = None,
) -> Mapping[str, float]:
    named = {"fp64": fp64, "fp32": fp32, "tf32": tf32, "fp16": fp16, "bf16": bf16, "fp8": fp8, "int8": int8}
    return MappingProxyType({dtype: value for dtype, value in named.items() if value is not None})


_V100 = "NVIDIA V100 datasheet (2020)"
_A100 = "NVIDIA A100 datasheet (2021)"
_H100 = "NVIDIA H100 datasheet (2023/24)"
_H200 = "NVIDIA H200 datasheet (2024)"
_GH200 = "NVIDIA GH200 Grace Hopper Superchip datasheet (2024)"
_GA102 = "NVIDIA Ampere GA102 architecture whitepaper"
_ADA = "NVIDIA Ada GPU architecture whitepaper, appendix A"
_RTX50 = "NVIDIA RTX Blackwell architecture whitepaper, appendix A"
_BLACKWELL = "NVIDIA HGX platform and Blackwell architecture technical brief, per GPU, dense"
_NVL72 = "NVIDIA GB200 / GB300 NVL72 specifications divided by 72, dense"
_HOPPER_SXM = _peaks(67, 494.7, 989.4, 989.4, 1978.9, 1978.9, 67)
_A100_PEAKS = _peaks(19.5, 156, 312, 312, None, 624, 19.5)


def _row(
    name: str,
    pattern: str,
    arch: str,
    peaks: Mapping[str, float],
    hbm: float | None,
    source: str,
    memory: float | None = None,
    link: float | None = None,
) -> Accelerator:
    vendor = "amd" if arch.startswith("gfx") else "nvidia"
    return Accelerator(name, pattern, vendor, arch, peaks, hbm, source, memory, link)


# First match wins: the narrower pattern stands first. Seen in traces: V100-SXM2-32GB, V100-DGXS-32GB,
# A100-PG509-200, A100-SXM4-80GB, H100 80GB HBM3, H200, MI210, MI300X, MI300X VF.
ACCELERATORS: tuple[Accelerator, ...] = (
    _row("V100S PCIe", r"\bV100S", "sm_70", _peaks(16.4, None, 130, None, None, None, 8.2), 1134, _V100),
    _row("V100 PCIe", r"\bV100-(?:PCIE|FHHL)", "sm_70", _peaks(14, None, 112, None, None, None, 7), 900, _V100),
    _row(
        "V100 SXM2",
        r"\bV100-(?:SXM[23]|DGXS)",
        "sm_70",
        _peaks(15.7, None, 125, None, None, None, 7.8),
        900,
        _V100,
        None,
        300,
    ),
    _row("T4", r"\bT4\b", "sm_75", _peaks(8.1, None, 65, None, None, 130), 320, "NVIDIA T4 datasheet (2019)"),
    _row(
        "RTX 2080 Ti",
        r"\bRTX 2080 Ti\b",
        "sm_75",
        _peaks(13.4, None, 53.8, None, None, 215.2),
        616,
        "NVIDIA Turing architecture whitepaper",
    ),
    _row("A100 80GB PCIe", r"\bA100[- ]?(?:80GB[- ]PCIe|PCIE?-80GB)", "sm_80", _A100_PEAKS, 1935, _A100, 80),
    _row("A100 SXM 80GB", r"\bA(?:100|800)-(?:SXM4?-80GB|PG)", "sm_80", _A100_PEAKS, 2039, _A100, 80, 600),
    _row("A100 40GB PCIe", r"\bA100[- ]?(?:40GB[- ]PCIe|PCIE?-40GB)", "sm_80", _A100_PEAKS, 1555, _A100, 40),
    _row("A100 SXM 40GB", r"\bA100-(?:SXM4?-40GB|PG)", "sm_80", _A100_PEAKS, 1555, _A100, 40, 600),
    _row(
        "A30",
        r"\bA30\b",
        "sm_80",
        _peaks(10.3, 82, 165, 165, None, 330, 10.3),
        933,
        "NVIDIA A30 datasheet (2022)",
    ),
    _row(
        "A10G",
        r"\bA10G\b",
        "sm_86",
        _peaks(35, 35, 70, 70, None, 140),
        600,
        "NVIDIA A10G datasheet (AWS, 2021)",
    ),
    _row(
        "A10",
        r"\bA10\b",
        "sm_86",
        _peaks(31.2, 62.5, 125, 125, None, 250),
        600,
        "NVIDIA A10 datasheet (2021)",
    ),
    _row(
        "A40",
        r"\bA40\b",
        "sm_86",
        _peaks(37.4, 74.8, 149.7, 149.7, None, 299.3),
        696,
        "NVIDIA A40 datasheet (2021)",
    ),
    _row("RTX A6000", r"\bRTX A6000\b", "sm_86", _peaks(38.7, 77.4, 154.8, 154.8, None, 309.7), 768, _GA102),
    _row("RTX 3080", r"\bRTX 3080$", "sm_86", _peaks(29.8, 29.8, 59.5, 59.5, None, 238), 760, _GA102, 10),
    _row("RTX 3090 Ti", r"\bRTX 3090 Ti\b", "sm_86", _peaks(40, 40, 80, 80, None, 320), 1008, _ADA),
    _row("RTX 3090", r"\bRTX 3090\b", "sm_86", _peaks(35.6, 35.6, 71.2, 71.2, None, 284.7), 936, _GA102),
    _row("RTX 4080", r"\bRTX 4080$", "sm_89", _peaks(48.7, 48.7, 97.5, 97.5, 194.9, 389.9), 717, _ADA, 16),
    _row("RTX 4090", r"\bRTX 4090$", "sm_89", _peaks(82.6, 82.6, 165.2, 165.2, 330.3, 660.6), 1008, _ADA),
    _row(
        "RTX 6000 Ada",
        r"\bRTX 6000 Ada\b",
        "sm_89",
        _peaks(91.1, 182.1, 364.2, 364.2, 728.5, 728.5),
        960,
        _ADA,
    ),
    _row("L4", r"\bL4\b", "sm_89", _peaks(30.3, 60, 121, 121, 242.5, 242.5), 300, "NVIDIA L4 datasheet (2023)"),
    _row(
        "L40S",
        r"\bL40S\b",
        "sm_89",
        _peaks(91.6, 183, 362, 362, 733, 733),
        864,
        "NVIDIA L40S datasheet (2023)",
    ),
    _row("L40", r"\bL40\b", "sm_89", _peaks(90.5, 90.5, 181, 181, 362, 362), 864, "NVIDIA L40 datasheet (2023)"),
    _row("H100 PCIe", r"\bH100 PCIe", "sm_90", _peaks(51, 378, 756, 756, 1513, 1513, 51), 2000, _H100, 80),
    _row(
        "H100 NVL",
        r"\bH100 NVL\b",
        "sm_90",
        _peaks(60, 417.5, 835.5, 835.5, 1670.5, 1670.5, 60),
        3938,
        _H100,
        94,
        600,
    ),
    _row("H100 SXM", r"\bH100 80GB HBM3|\bH100[- ]SXM5?(?:-80GB)?$", "sm_90", _HOPPER_SXM, 3350, _H100, 80, 900),
    _row("GH200 144GB", r"\bGH200 144G", "sm_90", _HOPPER_SXM, 4900, _GH200, 144, 900),
    _row("GH200 96GB", r"\bGH200 (?:480GB|96GB|120GB)", "sm_90", _HOPPER_SXM, 4000, _GH200, 96, 900),
    _row(
        "H200 NVL",
        r"\bH200 NVL\b",
        "sm_90",
        _peaks(60, 417.5, 835.5, 835.5, 1670.5, 1670.5, 60),
        4800,
        _H200,
        141,
        900,
    ),
    _row("H200 SXM", r"\bH200\b", "sm_90", _HOPPER_SXM, 4800, _H200, 141, 900),
    _row(
        "H20",
        r"\bH20\b",
        "sm_90",
        _peaks(44, 74, 148, 148, 296, 296),
        4000,
        "NVIDIA H20 datasheet (2024)",
        96,
        900,
    ),
    _row(
        "GB200",
        r"\bGB200\b",
        "sm_100",
        _peaks(80, 1250, 2500, 2500, 5000, 5000, 40),
        8000,
        _NVL72,
        None,
        1800,
    ),
    _row(
        "B200",
        r"\bB200\b",
        "sm_100",
        _peaks(80, 1125, 2250, 2250, 4500, 4500, 40),
        8000,
        _BLACKWELL,
        None,
        1800,
    ),
    _row(
        "GB300",
        r"\bGB300\b",
        "sm_103",
        _peaks(80, 1250, 2500, 2500, 5000, None, 1.4),
        8000,
        _NVL72,
        None,
        1800,
    ),
    _row(
        "B300",
        r"\bB300\b",
        "sm_103",
        _peaks(75, 1125, 2250, 2250, 4500, None, 1.25),
        8000,
        _BLACKWELL,
        None,
        1800,
    ),
    _row("RTX 5090", r"\bRTX 5090$", "sm_120", _peaks(104.8, 104.8, 209.5, 209.5, 419, 838), 1792, _RTX50),
    _row(
        "MI100",
        r"\bMI100\b",
        "gfx908",
        _peaks(46.1, None, 184.6, 92.3, None, 184.6, 11.5),
        1229,
        "AMD Instinct MI100 datasheet",
        None,
        276,
    ),
    _row(
        "MI210",
        r"\bMI210\b",
        "gfx90a",
        _peaks(45.3, None, 181, 181, None, 181, 45.3),
        1638,
        "AMD Instinct MI210 datasheet",
        64,
        300,
    ),
    _row(
        "MI250X die",
        r"\bMI250X\b",
        "gfx90a",
        _peaks(47.9, None, 191.5, 191.5, None, 191.5, 47.9),
        1638,
        "AMD Instinct MI250X datasheet, halved",
        64,
    ),
    _row(
        "MI250 die",
        r"\bMI250\b",
        "gfx90a",
        _peaks(45.3, None, 181, 181, None, 181, 45.3),
        1638,
        "AMD Instinct MI250 datasheet, halved",
        64,
    ),
    _row(
        "MI300A",
        r"\bMI300A\b",
        "gfx942",
        _peaks(122.6, 490.3, 980.6, 980.6, 1961.2, 1961.2, 122.6),
        5300,
        "AMD Instinct MI300A datasheet",
    ),
    _row(
        "MI300X",
        r"\bMI300X\b",
        "gfx942",
        _peaks(163.4, 653.7, 1307.4, 1307.4, 2614.9, 2614.9, 163.4),
        5300,
        "AMD Instinct MI300X datasheet",
        192,
        896,
    ),
    _row(
        "MI325X",
        r"\bMI325X\b",
        "gfx942",
        _peaks(163.4, 653.7, 1307.4, 1307.4, 2614.9, 2614.9, 163.4),
        6000,
        "AMD Instinct MI325X datasheet",
        256,
        896,
    ),
    _row(
        "MI350X",
        r"\bMI350X\b",
        "gfx950",
        _peaks(144.2, None, 2306.9, 2306.9, 4613.7, 4613.7, 72.1),
        8000,
        "AMD Instinct MI350X datasheet",
        288,
        1075,
    ),
    _row(
        "MI355X",
        r"\bMI355X\b",
        "gfx950",
        _peaks(157.3, None, 2516.6, 2516.6, 5033.2, 5033.2, 78.6),
        8000,
        "AMD Instinct MI355X datasheet",
        288,
        1075,
    ),
)
