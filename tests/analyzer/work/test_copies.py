"""Copies by kind: bytes, rates, and exposed time."""

from __future__ import annotations

import numpy as np
import pytest

from traceopt.analyzer.arrays.intervals import Intervals
from traceopt.analyzer.timeline.gpu_work import GpuWork
from traceopt.analyzer.work.copies import copy_kind, find_copies
from traceopt.testing.events import Json, annotation, kernel, read, span


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "HtoD pageable"),
        ("Memcpy HtoD (Pinned -> Device)", "HtoD pinned"),
        ("Memcpy DtoH (Device -> Pageable)", "DtoH pageable"),
        ("Memcpy DtoH (Device -> Pinned)", "DtoH pinned"),
        ("Memcpy DtoD (Device -> Device)", "DtoD"),
        ("Memcpy PtoP (Device -> Device)", "PtoP"),
        ("Memcpy HtoD (Host -> Device)", "HtoD"),  # HIP
        ("CopyHostToDevice", "CopyHostToDevice"),  # HIP, older
    ],
)
def test_kind(name: str, kind: str) -> None:
    assert copy_kind(name) == kind


def memcpy(name: str, start: float, duration: float, stream: int = 9, **args: int) -> Json:
    return span("gpu_memcpy", name, start, duration, stream, device=0, stream=stream, correlation=0, **args)


def copies(*events: Json) -> dict[str, tuple[int, int, int, int | None, float | None]]:
    window = Intervals(np.array([0]), np.array([1_000_000]))
    gpu = GpuWork(read([annotation("ProfilerStep#0", 0, 1000), *events]), window, window)
    return {c.kind: (c.calls, c.duration_ns, c.exposed_ns, c.bytes, c.gb_per_s) for c in find_copies(gpu)}


def test_exposed_is_without_compute() -> None:
    found = copies(
        kernel("gemm", 100, 100, 1),
        memcpy("Memcpy HtoD (Pageable -> Device)", 150, 100, bytes=1_000_000),
        memcpy("Memcpy HtoD (Pageable -> Device)", 300, 100, bytes=3_000_000),
        memcpy("Memcpy HtoD (Pinned -> Device)", 120, 50, bytes=1_000_000),
    )
    assert found["HtoD pageable"] == (2, 200_000, 150_000, 4_000_000, 20.0)
    assert found["HtoD pinned"] == (1, 50_000, 0, 1_000_000, 20.0)
    assert list(found) == ["HtoD pageable", "HtoD pinned"]  # longest first


def test_unknown_bytes_are_not_zero() -> None:
    """HIP may record no bytes, or zeros."""
    found = copies(
        memcpy("Memcpy DtoD (Device -> Device)", 100, 10), memcpy("Memcpy HtoD (Host -> Device)", 200, 10, bytes=0)
    )
    assert found["DtoD"] == (1, 10_000, 10_000, None, None)
    assert found["HtoD"] == (1, 10_000, 10_000, None, None)


def test_outside_of_the_window() -> None:
    assert copies(memcpy("Memcpy DtoD (Device -> Device)", 2000, 10, bytes=5)) == {}
