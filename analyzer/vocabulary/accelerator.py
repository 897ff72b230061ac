"""The peak table: dense rates (no sparsity) of accelerators, each with the vendor's document that states it.

TFLOP/s (TOP/s for int8) of the fastest unit that multiplies matrices in that type: Tensor Cores or matrix cores where
they take the type, else the vector units; FP32 accumulation where the document tells them apart. FP4 is with its block
scales (NVFP4, MXFP4). One row is one device as the framework lists it: one die of an MI250X, one GPU of a GB200.

The rows are in accelerators.json. A row takes every figure from the statement of a source. The vendors' sites were out
of reach when the table was written: each source names the public text in which its statement was read. What no such
text confirms is `unverified` in the row, and the report says so.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from msgspec import Struct
from msgspec.json import decode

from traceopt.analyzer.vocabulary.architectures import DTYPES, Architecture, architecture_named

FIGURES: tuple[str, ...] = (*DTYPES, "hbm_gb_per_s", "link_gb_per_s")
SETTINGS = "your settings"  # the source of a figure that the user gave


class Source(Struct, frozen=True):
    """A document of the vendor, and what it says about one device."""

    title: str
    states: str
    """Every figure that a row of the peak table takes from it."""
    edition: str = ""
    """Revision, document number or date; "" where no copy that was read names one."""
    read_in: str = ""
    """The public text in which the statement was read; "" if none was found. The vendors' sites were out of reach."""

    @property
    def name(self) -> str:
        """Title and edition."""
        return f"{self.title}, {self.edition}" if self.edition else self.title


class Accelerator(Struct, frozen=True):
    """One device of the peak table. A figure is named by its dtype, "hbm_gb_per_s" or "link_gb_per_s"."""

    name: str
    pattern: str
    """Regular expression, matched without case anywhere in the device name."""
    vendor: str
    """Key of its row in `result/words/vendors.py`."""
    arch: str
    """ "sm_80", "gfx942"."""
    peak_tflops: dict[str, float]
    """Dense peak per dtype of ``DTYPES``, TOP/s for int8; no key where the vendor states none or the unit is absent."""
    hbm_gb_per_s: float | None = None
    """Peak memory bandwidth, 10^9 bytes a second."""
    sources: tuple[Source, ...] = ()
    unverified: frozenset[str] = frozenset()
    """Figures that no copy of a source confirms."""
    memory_gib: float | None = None
    """Nominal memory, where the row is only right for cards of that size."""
    link_gb_per_s: float | None = None
    """NVLink or Infinity Fabric to the other GPUs of the node, both directions together."""
    from_settings: frozenset[str] = frozenset()
    """Figures that the user gave."""

    @property
    def architecture(self) -> Architecture | None:
        """Facts of the architecture; None for one that no rule knows (AMD's RDNA)."""
        return architecture_named(self.arch)

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

    @property
    def figures(self) -> dict[str, float]:
        """Every figure that is known, by name, in the order of ``FIGURES``."""
        known = {**self.peak_tflops, "hbm_gb_per_s": self.hbm_gb_per_s, "link_gb_per_s": self.link_gb_per_s}
        return {name: value for name in FIGURES if (value := known.get(name)) is not None}

    def source_of(self, figure: str) -> str:
        """Which documents the figure comes from, or "your settings"."""
        if figure in self.from_settings:
            return SETTINGS
        return "; ".join(source.name for source in self.sources)

    def is_verified(self, figure: str) -> bool | None:
        """Whether a copy of the vendor's document confirms the figure; None for the user's own."""
        return None if figure in self.from_settings else figure not in self.unverified

    def caveat(self, *figures: str) -> str:
        """What a sentence that uses these figures adds: "peak unverified", "peak from your settings", or nothing."""
        used = [figure for figure in figures if figure in self.figures]
        if any(self.is_verified(figure) is False for figure in used):
            return "peak unverified"
        return f"peak from {SETTINGS}" if self.from_settings.intersection(used) else ""


@cache
def accelerators() -> tuple[Accelerator, ...]:
    """The table, which is read with the first trace of a GPU. Where several rows match a name, the first one counts, so
    the narrower pattern stands first.
    """
    return decode(Path(__file__).with_name("accelerators.json").read_bytes(), type=tuple[Accelerator, ...])
