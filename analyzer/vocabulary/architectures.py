"""What follows from a device's architecture alone: Tensor Cores, types, alignment."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

GIB = 2**30
DTYPES: tuple[str, ...] = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8")
# Bytes of an element. FP4 is without its scales, which add a byte for 16 or 32 elements.
DTYPE_BYTES: Mapping[str, float] = MappingProxyType(
    {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "fp4": 0.5, "int8": 1}
)


class Architecture(Struct, frozen=True):
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
_GEFORCE = ("sm_86", "sm_89", "sm_120")
# What HIP reports as major.minor; 9.0 stands for gfx900, gfx906, gfx908 and gfx90a alike and tells nothing.
_AMD_CAPABILITIES = {(9, 4): "gfx942", (9, 5): "gfx950"}
ARCH_CAPABILITIES = {
    "gfx908": (9, 0),
    "gfx90a": (9, 0),
    "gfx942": (9, 4),
    "gfx950": (9, 5),
    "gfx1100": (11, 0),
    "gfx1201": (12, 0),
}


def architecture_named(name: str) -> Architecture | None:
    """Facts of "sm_80" or "gfx942"; None for a name that is not known."""
    return _ARCHITECTURES.get(name)


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


def geforce_ratio(device_name: str, arch: Architecture | None, dtype: str) -> float | None:
    """How many times the FP32 rate a GeForce card's Tensor Cores reach in a dtype; None for others and other dtypes.

    With FP32 accumulation, GeForce cards have half the Tensor Core rate of professional cards (NVIDIA, whitepapers of
    the GA102, Ada and Blackwell RTX architectures).
    """
    if arch is None or arch.name not in _GEFORCE or "geforce" not in device_name.lower():
        return None
    return {"tf32": 1.0, "fp16": 2.0, "bf16": 2.0}.get(dtype)


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
