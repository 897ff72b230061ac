"""Every row of the peak table says where its figures come from: a figure that its source does not state fails here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from traceopt.analyzer.vocabulary.accelerator import FIGURES, Accelerator, accelerators
from traceopt.analyzer.vocabulary.architectures import DTYPES
from traceopt.result.words.vendors import vendor_called

DOCS = Path(__file__).resolve().parents[3] / "docs"

each_row = pytest.mark.parametrize("row", accelerators(), ids=[row.name for row in accelerators()])


def numbers(text: str) -> set[float]:
    return {float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)}


@each_row
def test_rows_are_consistent(row: Accelerator) -> None:
    re.compile(row.pattern)
    assert set(row.peak_tflops) <= set(DTYPES)
    assert set(row.figures) <= set(FIGURES)
    assert all(rate > 0 for rate in row.figures.values())
    assert row.architecture is not None or row.name.startswith("Radeon")
    if row.architecture is not None:
        assert row.vendor == row.architecture.vendor.key
        assert row.has_tf32 or "tf32" not in row.peak_tflops
        assert row.has_bf16 or "bf16" not in row.peak_tflops
        assert row.architecture.has_fp8 or "fp8" not in row.peak_tflops
    assert row.unverified <= set(row.figures)
    assert not row.from_settings


def test_names_are_unique() -> None:
    names = [row.name for row in accelerators()]
    assert len(names) == len(set(names))


@each_row
def test_every_figure_is_in_the_statement_of_a_source(row: Accelerator) -> None:
    assert row.sources
    for source in row.sources:
        assert source.title.strip()
        assert source.states.strip()
        assert source.title.startswith(vendor_called(row.vendor).name)
    stated = set[float]().union(*(numbers(source.states) for source in row.sources))
    figures = {**row.figures, **({"memory": row.memory_gib} if row.memory_gib else {})}
    assert {name: value for name, value in figures.items() if value not in stated} == {}


@each_row
def test_a_verified_figure_was_read_somewhere(row: Accelerator) -> None:
    read = set[float]().union(*(numbers(source.states) for source in row.sources if source.read_in.strip()))
    verified = {name: value for name, value in row.figures.items() if row.is_verified(name)}
    assert {name: value for name, value in verified.items() if value not in read} == {}


@each_row
def test_a_wider_type_is_not_faster(row: Accelerator) -> None:
    """A rate with sparsity, or of another type, is a factor of two off."""
    order = [row.peak_tflops[dtype] for dtype in ("fp32", "tf32", "bf16", "fp8", "fp4") if dtype in row.peak_tflops]
    assert order == sorted(order)
    if "fp16" in row.peak_tflops and "fp8" in row.peak_tflops:
        assert row.peak_tflops["fp8"] == pytest.approx(2 * row.peak_tflops["fp16"], rel=0.03)


def test_rates_that_were_wrong_or_missing() -> None:
    """B200 as on the present HGX sheet, an A800 with its slower NVLink, FP4 of Blackwell and CDNA 4."""
    rows = {row.name: row for row in accelerators()}
    assert (rows["B200"].peak("fp32"), rows["B200"].peak("fp64"), rows["B200"].peak("fp4")) == (75, 37, 9000)
    assert rows["A800 SXM 80GB"].link_gb_per_s == rows["H800 SXM"].link_gb_per_s == 400
    assert (rows["GB200"].peak("fp4"), rows["B300"].peak("fp4"), rows["GB300"].peak("fp4")) == (10000, 13500, 15000)
    assert (rows["MI350X"].peak("fp4"), rows["MI355X"].peak("fp4")) == (9227.5, 10066.3)


def test_the_page_of_devices_has_each() -> None:
    page = (DOCS / "devices.md").read_text(encoding="utf-8")
    assert all(f"| {row.name} |" in page for row in accelerators())
