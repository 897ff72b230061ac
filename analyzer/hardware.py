"""Accelerators: peak rates from the vendors' datasheets, and what follows from the architecture alone.

Rates are dense (no sparsity), in TFLOP/s (TOP/s for int8) of the fastest unit that multiplies matrices in
that type: Tensor Cores or matrix cores where they take the type, else the vector units; FP32 accumulation
where the sheet tells them apart. One row is one device as the framework lists it: one die of an MI250X, one
GPU of a GB200.

``find`` matches names as ``deviceProperties`` gives them and never guesses: an unknown name, a MIG slice or a
memory size that does not belong to the card give None. Users add devices or correct figures through
``overrides``.

``source`` names the vendor's publication of a row. The rows were written without the publications at hand
(the public search that was available held third-party pages only): check a figure there before quoting it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

GIB = 2**30
DTYPES: tuple[str, ...] = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")
DTYPE_BYTES: Mapping[str, int] = MappingProxyType(
    {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}
)


@dataclass(frozen=True, slots=True)
class Architecture:
    """What a compute capability tells by itself."""

    vendor: str
    """ "nvidia" or "amd"."""
    name: str
    """ "sm_80", "gfx942"."""
    has_tensor_cores: bool
    """Tensor Cores, or AMD's matrix cores. (The GTX 16 cards of sm_75 lack them; their names say so.)"""
    has_tf32: bool
    has_bf16: bool
    has_fp8: bool
    fp32_on_matrix_cores: bool = False
    """Plain FP32 products run on the matrix unit without losing precision (AMD Instinct)."""


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One device of the peak table."""

    name: str
    pattern: str
    """Regular expression, matched without case anywhere in the device name."""
    vendor: str
    arch: str
    """ "sm_80", "gfx942"."""
    peak_tflops: Mapping[str, float]
    """Dense peak per dtype of ``DTYPES``; no key where the sheet gives none or the unit is not there."""
    hbm_gb_per_s: float | None
    """Peak memory bandwidth, 10^9 bytes a second."""
    source: str
    """The datasheet the figures are from."""
    memory_gib: float | None = None
    """Nominal memory, where the row is only right for cards of that size."""
    link_gb_per_s: float | None = None
    """NVLink or Infinity Fabric to the other GPUs of the node, both directions together."""

    @property
    def architecture(self) -> Architecture | None:
        """Facts of the architecture."""
        return _ARCHITECTURES.get(self.arch)

    @property
    def has_tensor_cores(self) -> bool:
        """Tensor Cores or matrix cores."""
        return self.architecture is not None and self.architecture.has_tensor_cores

    @property
    def has_tf32(self) -> bool:
        """TF32 (XF32 on AMD) products."""
        return self.architecture is not None and self.architecture.has_tf32

    @property
    def has_bf16(self) -> bool:
        """BF16 products."""
        return self.architecture is not None and self.architecture.has_bf16

    def peak(self, dtype: str) -> float | None:
        """Dense peak TFLOP/s in ``dtype``, or None."""
        return self.peak_tflops.get(dtype)


def _nvidia(name: str, tensor: bool, tf32_bf16: bool, fp8: bool) -> Architecture:
    return Architecture("nvidia", name, tensor, tf32_bf16, tf32_bf16, fp8)


# NVIDIA: CUDA C++ Programming Guide, "Compute Capabilities", types supported by Tensor Cores per capability.
# AMD: CDNA 1, 2, 3, 4 instruction set guides, MFMA instructions; XF32 exists on CDNA 3 alone.
_ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    {
        **{f"sm_{n}": _nvidia(f"sm_{n}", False, False, False) for n in (35, 37, 50, 52, 53, 60, 61, 62)},
        **{f"sm_{n}": _nvidia(f"sm_{n}", True, False, False) for n in (70, 72, 75)},
        **{f"sm_{n}": _nvidia(f"sm_{n}", True, True, False) for n in (80, 86, 87)},
        **{f"sm_{n}": _nvidia(f"sm_{n}", True, True, True) for n in (89, 90, 100, 101, 103, 110, 120, 121)},
        "gfx908": Architecture("amd", "gfx908", True, False, True, False, True),
        "gfx90a": Architecture("amd", "gfx90a", True, False, True, False, True),
        "gfx940": Architecture("amd", "gfx940", True, True, True, True, True),
        "gfx941": Architecture("amd", "gfx941", True, True, True, True, True),
        "gfx942": Architecture("amd", "gfx942", True, True, True, True, True),
        "gfx950": Architecture("amd", "gfx950", True, False, True, True, True),
    }
)
# What HIP reports as major.minor; 9.0 stands for gfx900, gfx906, gfx908 and gfx90a alike and tells nothing.
_AMD_CAPABILITIES = {(9, 4): "gfx942", (9, 5): "gfx950"}
_ARCH_CAPABILITIES = {"gfx908": (9, 0), "gfx90a": (9, 0), "gfx942": (9, 4), "gfx950": (9, 5)}


def architecture(vendor: str, major: int, minor: int, gcn_arch: str | None = None) -> Architecture | None:
    """Facts that follow from the compute capability alone; None if they do not.

    ``vendor`` is "nvidia" or "amd". ``gcn_arch`` is HIP's own name where known ("gfx90a:sramecc+:xnack-"). An
    NVIDIA capability newer than the table inherits what every capability since 9.0 has.
    """
    vendor = vendor.lower()
    if vendor == "nvidia":
        known = _ARCHITECTURES.get(f"sm_{major}{minor}")
        return known or (_nvidia(f"sm_{major}{minor}", True, True, True) if major >= 9 else None)
    if vendor == "amd":
        if gcn_arch:
            return _ARCHITECTURES.get(gcn_arch.split(":")[0])
        return _ARCHITECTURES.get(_AMD_CAPABILITIES.get((major, minor), ""))
    return None


def needed_multiple(dtype: str, arch: Architecture | str | None) -> tuple[int, int]:
    """Multiples, in elements, that N and K should have: ``(minimum for Tensor Cores, for the full rate)``.

    16 bytes to use Tensor Cores well at all, 128 bytes for the full rate on A100 and later (NVIDIA, "Matrix
    Multiplication Background User's Guide", table 1); AMD asks for no more than the 16 bytes of a wide load.
    Raises KeyError for a dtype not in ``DTYPES``.
    """
    size = DTYPE_BYTES[dtype]
    name = arch.name if isinstance(arch, Architecture) else (arch or "")
    digits = name.removeprefix("sm_")
    full = 128 if digits != name and digits.isdigit() and int(digits) >= 80 else 16
    return 16 // size, full // size


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

# A slice of a GPU has a share of its rates that the name does not tell.
_SLICE = re.compile(
    r"\bMIG\b|-\d+[QCAB]\b|\b\d+g\.\d+gb\b|GRID|vGPU|Laptop|Max-Q|Mobile|\b[CSD]PX\b",
    re.IGNORECASE,
)
_OVERRIDE_FIELDS = ("hbm_gb_per_s", "link_gb_per_s", "arch", "name")


def _capability(text: str | None) -> tuple[int, int] | None:
    """(8, 0) for "8.0", "8,0" or "sm_80"; None for anything else."""
    match = re.fullmatch(r"(\d{1,2})[.,](\d)|sm_?(\d{1,2})(\d)a?", text or "")
    if not match:
        return None
    return int(match[1] or match[3]), int(match[2] or match[4])


def _fits(row: Accelerator, capability: tuple[int, int] | None, memory_bytes: int | None) -> bool:
    if capability is not None:
        own = _ARCH_CAPABILITIES.get(row.arch) or _capability(row.arch)
        if own != capability:
            return False
    # Usable memory is a few per cent under the nominal size (ECC, firmware); a partition has far less.
    return row.memory_gib is None or memory_bytes is None or 0.8 <= memory_bytes / GIB / row.memory_gib <= 1.1


def find(
    device_name: str | None,
    compute_capability: str | None = None,
    memory_bytes: int | None = None,
    overrides: Mapping[str, Mapping[str, Any]] | None = None,
) -> Accelerator | None:
    """The accelerator called ``device_name``, or None: unknown stays unknown.

    ``compute_capability`` ("8.0" or "sm_80") and ``memory_bytes`` (total, as reported) rule out rows that do
    not fit; where two cards share a name and the memory is not given, the bandwidth is left out.
    ``overrides`` maps a device name (any part of it, without case) to figures that replace the table's or add
    a device: dtypes of ``DTYPES`` in TFLOP/s, ``hbm_gb_per_s``, ``link_gb_per_s``, ``arch``. Raises
    ValueError for an override that is none of these.
    """
    name = device_name or ""
    capability = _capability(compute_capability)
    found: Accelerator | None = None
    if name and not _SLICE.search(name):
        rows = [
            row
            for row in ACCELERATORS
            if re.search(row.pattern, name, re.IGNORECASE) and _fits(row, capability, memory_bytes)
        ]
        found = rows[0] if rows else None
        sizes = {row.hbm_gb_per_s for row in rows if row.memory_gib is not None}
        if found and memory_bytes is None and len(sizes) > 1:  # A100-PG509-200: 40 GB or 80 GB
            found = replace(found, hbm_gb_per_s=None, memory_gib=None)
    return _overridden(name, capability, found, overrides or {})


def _overridden(
    name: str,
    capability: tuple[int, int] | None,
    found: Accelerator | None,
    overrides: Mapping[str, Mapping[str, Any]],
) -> Accelerator | None:
    for key, figures in overrides.items():
        unknown = sorted(set(figures) - set(DTYPES) - set(_OVERRIDE_FIELDS))
        if unknown:
            raise ValueError(
                f"device {key!r}: unknown figure {unknown[0]!r}; known: {', '.join((*DTYPES, *_OVERRIDE_FIELDS))}"
            )
        if not key or key.lower() not in name.lower():
            continue
        amd = "amd" in name.lower() or str(figures.get("arch", "")).startswith("gfx")
        arch = f"sm_{capability[0]}{capability[1]}" if capability and not amd else ""
        base = found or Accelerator(name, re.escape(key), "amd" if amd else "nvidia", arch, {}, None, "")
        peaks = {**base.peak_tflops, **{dtype: float(figures[dtype]) for dtype in DTYPES if dtype in figures}}
        other: dict[str, Any] = {
            field_name: figures[field_name] for field_name in _OVERRIDE_FIELDS if field_name in figures
        }
        found = replace(base, peak_tflops=MappingProxyType(peaks), source="user's settings", **other)
    return found
