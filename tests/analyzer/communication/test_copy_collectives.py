"""Collectives that the copy engines run are communication, other copies are not."""

from __future__ import annotations

import pytest

from traceopt.analyzer.facts import Facts
from traceopt.testing.events import Json, annotation, op, read, runtime, span

TO_PEER = "Memcpy PtoP (Device -> Device)"
ON_DEVICE = "Memcpy DtoD (Device -> Device)"


def copied(around: str, copy: str) -> Facts:
    """A step whose only GPU work is a copy of 1 MB that an operator launched."""
    link = {"device": 0, "stream": 7, "correlation": 1, "bytes": 1_000_000}
    events: list[Json] = [
        annotation("ProfilerStep#0", 0, 1_000),
        op(around, 100, 50, **{"Input Dims": [[250_000]], "Input type": ["float"]}),
        runtime("cudaMemcpyAsync", 110, 5, 1),
        span("gpu_memcpy", copy, 200, 100, 7, **link) | {"pid": 0},
    ]
    return Facts(read(events))


@pytest.mark.parametrize(
    ("around", "copy"),
    [
        ("symm_mem::_low_contention_all_gather", ON_DEVICE),
        ("symm_mem::_low_contention_all_gather", TO_PEER),
        ("nccl:_all_gather_base", TO_PEER),
    ],
)
def test_copies_of_a_collective_are_communication(around: str, copy: str) -> None:
    facts = copied(around, copy)
    assert facts.gpu.communication.total == facts.gpu.busy.total == 100_000
    assert facts.gpu.copies.total == 0
    assert facts.copies == []
    (calls,) = facts.collectives
    assert (calls.name, calls.calls, calls.known_bytes) == ("all_gather", 1, 1_000_000)


@pytest.mark.parametrize(
    ("around", "copy"),
    [
        ("aten::copy_", ON_DEVICE),
        ("aten::copy_", TO_PEER),
        ("nccl:_all_gather_base", ON_DEVICE),  # into the buffer of the collective
        ("symm_mem::_low_contention_all_gather", "Memcpy HtoD (Pinned -> Device)"),
    ],
)
def test_other_copies_are_copies(around: str, copy: str) -> None:
    facts = copied(around, copy)
    assert facts.gpu.copies.total == 100_000
    assert facts.gpu.communication.total == 0
    assert [(one.calls, one.bytes) for one in facts.copies] == [(1, 1_000_000)]
    assert facts.collectives == []
