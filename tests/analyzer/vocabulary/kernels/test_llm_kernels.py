"""Families of kernels of language-model engines: invented members of each get its kind, Tensor Core use and type."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.tables import said, table

from fixtures.real_traces import KERNELS, TRACES, load
from traceopt.analyzer.vocabulary.kernels.kernel_names import ELIGIBLE_KINDS, KernelClass, classify

MEMBERS = table(Path(__file__).with_name("llm_kernels.tsv"))


def as_row(name: str, dtype: str) -> list[str]:
    found = classify(name)
    return [found.kind, said(found.tensor_core), "any" if dtype == "any" else said(found.dtype), name]


def test_members_of_a_family() -> None:
    assert [as_row(name, dtype) for _, _, dtype, name in MEMBERS] == MEMBERS


def _rows() -> list[dict[str, str]]:
    """The shared list: name, class, Tensor Core use and type as an expert reads them; "-" where not said."""
    with KERNELS.open(encoding="utf-8", newline="") as file:
        lines = (line for line in file if not line.startswith("#"))
        return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


def _as_read(found: KernelClass) -> dict[str, str]:
    return {"class": found.kind, "tensor_core": str(found.tensor_core), "dtype": str(found.dtype)}


@pytest.mark.real_traces
def test_names_of_2025_and_2026_are_right() -> None:
    rows = _rows()
    assert len(rows) >= 120
    assert {row["name"] for row in rows}.isdisjoint(row[-1] for row in MEMBERS)
    wrong = []
    for row in rows:
        found = _as_read(classify(row["name"]))
        if any(row[key] not in ("-", value) for key, value in found.items()):
            wrong.append((row["name"][:80], found))
    assert len(wrong) <= 0.05 * len(rows), wrong


def _kernels(path: Path) -> list[dict[str, Any]]:
    try:
        document = load(path)
    except (OSError, ValueError):
        return []  # no trace, or damaged on purpose
    events = document.get("traceEvents", []) if isinstance(document, dict) else document
    return [e for e in events if isinstance(e, dict) and str(e.get("cat", "")).lower() == "kernel" and e["ph"] == "X"]


# torch.cuda._sleep: a kernel that only waits, which is no known kind of work. It fills HTA's event_sync trace.
NO_WORK = "spin_kernel"


@pytest.mark.real_traces
def test_little_gpu_time_of_real_traces_is_of_unknown_kind() -> None:
    shares, waiting = {}, set()
    for path in sorted(TRACES.rglob("*.gz")):
        time: Counter[str] = Counter()
        for event in _kernels(path):
            unknown = classify(event["name"]).kind == "other"
            idle = NO_WORK in event["name"]
            waiting |= {path.name} if idle else set()
            time["other" if unknown and not idle else "known"] += float(event.get("dur", 0))
        if time.total():
            shares[path.name] = time["other"] / time.total()
    assert len(shares) >= 25
    assert {name: share for name, share in shares.items() if share > 0.02} == {}
    assert waiting <= {"event_sync_trace.json.gz"}


def test_eligible_kinds_of_the_families_say_whether_they_use_tensor_cores() -> None:
    assert {kind for kind, uses, *_ in MEMBERS if uses != "-"} <= ELIGIBLE_KINDS
