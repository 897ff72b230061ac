"""What follows from a device's architecture alone: Tensor Cores, types, alignment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from msgspec import Struct

from traceopt.result.words.vendors import AMD, NVIDIA, VENDORS, Vendor

GIB = 2**30
DTYPES: tuple[str, ...] = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8")
# Bytes of an element. FP4 is without its scales, which add a byte for 16 or 32 elements.
DTYPE_BYTES: Mapping[str, float] = MappingProxyType(
    {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "fp4": 0.5, "int8": 1}
)


class Architecture(Struct, frozen=True):
    """What a compute capability tells by itself."""

    vendor: Vendor
    name: str
    """ "sm_80", "gfx942"."""
    has_tensor_cores: bool
    """Tensor Cores, or AMD's matrix cores. (The GTX 16 cards of sm_75 lack them; their names say so.)"""
    has_tf32: bool
    has_bf16: bool
    has_fp8: bool
    fp32_on_matrix_cores: bool = False
    """Plain FP32 products run on the matrix unit without losing precision (AMD Instinct)."""

    def has_matrix_unit(self, dtype: str) -> bool:
        """Whether Tensor Cores or matrix cores can multiply the type; FP32 also as TF32."""
        also = {
            "tf32": self.has_tf32,
            "fp32": self.has_tf32 or self.fp32_on_matrix_cores,
            "bf16": self.has_bf16,
            "fp8": self.has_fp8,
        }
        return self.has_tensor_cores and also.get(dtype, True)


def _nvidia(name: str, tensor: bool, tf32_bf16: bool, fp8: bool) -> Architecture:
    return Architecture(NVIDIA, name, tensor, tf32_bf16, tf32_bf16, fp8)


# NVIDIA: CUDA C++ Programming Guide, "Compute Capabilities", types supported by Tensor Cores per capability.
# AMD: CDNA 1, 2, 3, 4 instruction set guides, MFMA instructions; XF32 exists on CDNA 3 alone.
_ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    {
        **{f"sm_{n}": _nvidia(f"sm_{n}", False, False, False) for n in (35, 37, 50, 52, 53, 60, 61, 62)},
        **{f"sm_{n}": _nvidia(f"sm_{n}", True, False, False) for n in (70, 72, 75)},
        **{f"sm_{n}": _nvidia(f"sm_{n}", True, True, False) for n in (80, 86, 87)},
        **{f"sm_{n}": _nvidia(f"sm_{n}", True, True, True) for n in (89, 90, 100, 101, 103, 110, 120, 121)},
        "gfx908": Architecture(AMD, "gfx908", True, False, True, False, True),
        "gfx90a": Architecture(AMD, "gfx90a", True, False, True, False, True),
        "gfx942": Architecture(AMD, "gfx942", True, True, True, True, True),
        "gfx950": Architecture(AMD, "gfx950", True, False, True, True, True),
    }
)
_GEFORCE = ("sm_86", "sm_89", "sm_120")


def architecture_named(name: str) -> Architecture | None:
    """Facts of "sm_80" or "gfx942"; None for a name that is not known."""
    return _ARCHITECTURES.get(name)


# NVIDIA's libraries: volta_scudnn_128x64 (V100), ampere_sgemm_128x64, sm80_xmma_gemm, cutlass_80_tensorop_s1688gemm
# (A100), FlashAttnFwdSm90. AMD's: Cijk_..._ISA942_IU1 of Tensile, ..._gfx90a of MIOpen. A kernel for an older GPU also
# runs on newer ones, so the newest counts, and the GPU has at least what that one has.
_IN_KERNEL_NAMES = re.compile(
    r"(?:^|[_ <])(?:(?P<generation>volta|turing|ampere|nvjet)_|cutlass_(?P<cutlass>\d{2,3})_)"
    r"|_ISA(?P<isa>9[0-9a-f]{2})_|(?<![A-Za-z])sm_?(?P<sm>\d{2,3})(?!\d)|Sm(?P<tag>\d{2,3})(?!\d)|gfx(?P<gfx>9[0-9a-f]{2})(?![0-9a-f])"
)
_GENERATIONS = {"volta": "sm_70", "turing": "sm_75", "ampere": "sm_80", "nvjet": "sm_90"}


def architecture_of_kernels(kernels: Iterable[str]) -> Architecture | None:
    """The newest architecture for which kernels were compiled by their names; None if no name says it."""
    found = [_ARCHITECTURES.get(_named_by(match)) for name in kernels for match in _IN_KERNEL_NAMES.finditer(name)]
    known = [architecture for architecture in found if architecture is not None]
    return max(known, key=lambda architecture: capability_of(architecture.name) or (0, 0), default=None)


def _named_by(match: re.Match[str]) -> str:
    """The architecture that a part of a kernel's name stands for: "sm_80", "gfx942"."""
    found = {kind: text for kind, text in match.groupdict().items() if text}
    kind, text = next(iter(found.items()))
    if kind == "generation":
        return _GENERATIONS[text]
    return f"gfx{text}" if kind in ("isa", "gfx") else f"sm_{text}"


def capability_of(name: str) -> tuple[int, int] | None:
    """(8, 0) for "sm_80", (9, 4) for "gfx942"; None for a name in the form of no vendor."""
    matches = (re.fullmatch(vendor.architecture_names, name) for vendor in VENDORS if vendor.architecture_names)
    return next(((int(match[1]), int(match[2])) for match in matches if match), None)


def architecture(vendor: Vendor, major: int, minor: int) -> Architecture | None:
    """Facts that follow from the compute capability alone; None if they do not: 9.0 stands for all from gfx900 to
    gfx90a. An NVIDIA capability newer than the table inherits what every capability since 9.0 has.
    """
    found = [architecture for architecture in _ARCHITECTURES.values() if architecture.vendor is vendor]
    found = [architecture for architecture in found if capability_of(architecture.name) == (major, minor)]
    if len(found) == 1:
        return found[0]
    return _nvidia(f"sm_{major}{minor}", True, True, True) if vendor is NVIDIA and major >= 9 else None


def geforce_ratio(device_name: str, arch: Architecture | None, dtype: str) -> float | None:
    """How many times the FP32 rate a GeForce card's Tensor Cores reach in a dtype; None for others and other dtypes.

    With FP32 accumulation, GeForce cards have half the Tensor Core rate of professional cards (NVIDIA, whitepapers of
    the GA102, Ada and Blackwell RTX architectures).
    """
    if arch is None or arch.name not in _GEFORCE or "geforce" not in device_name.lower():
        return None
    return {"tf32": 1.0, "fp16": 2.0, "bf16": 2.0}.get(dtype)


# CUDA C++ Programming Guide, "Arithmetic Instructions": results per clock and multiprocessor in FP64, of those in FP32.
_FP64_RATIO = {
    **dict.fromkeys(("sm_60", "sm_70", "sm_80", "sm_90"), 1 / 2),
    **dict.fromkeys(("sm_61", "sm_75"), 1 / 32),
    **dict.fromkeys(("sm_86", "sm_89", "sm_120"), 1 / 64),
}


def fp64_ratio(arch: Architecture | None) -> float | None:
    """The rate in FP64 as a share of that in FP32; None if it is unknown."""
    return None if arch is None else _FP64_RATIO.get(arch.name)


# GB/s in one direction of 16 lanes, PCI Express Base Specification: generation 3, 4 and 5. By NVIDIA's datasheets.
_PCIE_GB_PER_S = {
    **dict.fromkeys(("sm_60", "sm_61", "sm_70", "sm_75"), 15.8),
    **dict.fromkeys(("sm_80", "sm_86", "sm_89"), 31.5),
    **dict.fromkeys(("sm_90", "sm_100", "sm_103", "sm_120"), 63.0),
}
_PAYLOAD_SHARE = 0.8  # of it, at least, that large copies reach: packets have headers


def pinned_gb_per_s(arch: Architecture | None) -> float | None:
    """About how fast a device reads pinned memory of the host over PCIe; None if it is unknown."""
    rate = _PCIE_GB_PER_S.get(arch.name) if arch is not None else None
    return None if rate is None else _PAYLOAD_SHARE * rate


def needed_multiple(dtype: str, arch: Architecture | str | None) -> tuple[int, int]:
    """Multiples, in elements, that N and K should have: ``(minimum for Tensor Cores, for the full rate)``.

    16 bytes to use Tensor Cores well at all, 128 bytes for the full rate on A100 and later (NVIDIA, "Matrix
    Multiplication Background User's Guide", table 1); AMD asks for no more than the 16 bytes of a wide load.
    Raises KeyError for a dtype not in ``DTYPE_BYTES``.
    """
    size = DTYPE_BYTES[dtype]
    name = arch.name if isinstance(arch, Architecture) else (arch or "")
    digits = name.removeprefix("sm_")
    full = 128 if digits != name and digits.isdigit() and int(digits) >= 80 else 16
    return int(16 / size), int(full / size)
