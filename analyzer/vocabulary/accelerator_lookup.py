"""Which row of the peak table a device is: matched by the name that `deviceProperties` gives, never guessed.

An unknown name, a MIG slice or a memory size that does not belong to the card give None. Users add devices or correct
figures through `overrides`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from traceopt.analyzer.vocabulary.accelerators import ACCELERATORS
from traceopt.analyzer.vocabulary.architectures import ARCH_CAPABILITIES, DTYPES, GIB, Accelerator

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
        own = ARCH_CAPABILITIES.get(row.arch) or _capability(row.arch)
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
