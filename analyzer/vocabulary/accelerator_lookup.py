"""Which row of the peak table a device is: matched by the name that `deviceProperties` gives, never guessed.

An unknown name, a MIG slice or a memory size that does not belong to the card give None. Users add devices or correct
figures in their settings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from traceopt.analyzer.vocabulary.accelerator import FIGURES, Accelerator, accelerators
from traceopt.analyzer.vocabulary.architectures import DTYPES, GIB, capability_of
from traceopt.result.words.vendors import vendor_of

# A slice of a GPU has a share of its rates that the name does not tell.
_SLICE = re.compile(r"\bMIG\b|-\d+[QCAB]\b|\b\d+g\.\d+gb\b|GRID|vGPU|\b[CSD]PX\b", re.IGNORECASE)
_LAPTOP = re.compile(r"Laptop|Max-Q|Mobile", re.IGNORECASE)  # slower than the desktop card of the same name


def _fits(row: Accelerator, name: str, capability: str | None, memory_bytes: int | None) -> bool:
    if not re.search(row.pattern, name, re.IGNORECASE):
        return False
    if _LAPTOP.search(name) and not _LAPTOP.search(row.name):
        return False
    if capability is not None and capability_of(row.arch) != tuple(map(int, capability.split("."))):
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

    ``compute_capability`` ("8.0") and ``memory_bytes`` (total, as reported) rule out rows that do
    not fit; where two cards share a name and the memory is not given, the bandwidth is left out.
    ``overrides`` are the user's settings: by a device's name (whole words of it, without case) the figures that
    replace the table's or add a device, by the names of ``FIGURES``. The one named last wins.
    """
    name = device_name or ""
    found: Accelerator | None = None
    if name and not _SLICE.search(name):
        rows = [row for row in accelerators() if _fits(row, name, compute_capability, memory_bytes)]
        found = rows[0] if rows else None
        sizes = {row.hbm_gb_per_s for row in rows if row.memory_gib is not None}
        if found and memory_bytes is None and len(sizes) > 1:  # A100-PG509-200: 40 GB or 80 GB
            found = replace(found, hbm_gb_per_s=None, memory_gib=None)
    for key, figures in (overrides or {}).items():
        if re.search(rf"(?<!\w){re.escape(key)}(?!\w)", name, re.IGNORECASE):
            found = _corrected(found or _unknown(name), figures)
    return found


def _unknown(name: str) -> Accelerator:
    """A device that only the settings know; its architecture follows from the trace."""
    return Accelerator(name, re.escape(name), vendor_of((), name).key, "", {})


def _corrected(found: Accelerator, figures: Mapping[str, Any]) -> Accelerator:
    given = {figure: float(figures[figure]) for figure in FIGURES if figure in figures}
    rates = {**found.peak_tflops, **{figure: rate for figure, rate in given.items() if figure in DTYPES}}
    return replace(
        found,
        peak_tflops=rates,
        hbm_gb_per_s=given.get("hbm_gb_per_s", found.hbm_gb_per_s),
        link_gb_per_s=given.get("link_gb_per_s", found.link_gb_per_s),
        from_settings=found.from_settings.union(given),
    )
