"""Notes of Dynamo and Inductor that a CPU cannot make, and of other versions of torch: fakes of their modules."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from types import SimpleNamespace
from typing import Any

import pytest

from traceopt.analyzer.run_log.compilations import read_compilations
from traceopt.capture.metadata.compiler.cuda_graphs import describe_recordings
from traceopt.capture.metadata.compiler.dynamo_notes import MOST_BREAKS, describe_dynamo


def node(**children: Any) -> Any:
    return SimpleNamespace(children=children)


def fake_trees(monkeypatch: pytest.MonkeyPatch, manager: Any) -> None:
    def get_manager(device: int, create_if_none_exists: bool = True) -> Any:
        assert not create_if_none_exists
        return manager if device == 0 else None

    cuda = SimpleNamespace(is_initialized=lambda: True, device_count=lambda: 2)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setitem(sys.modules, "torch._inductor.cudagraph_trees", SimpleNamespace(get_manager=get_manager))


def fake_dynamo(monkeypatch: pytest.MonkeyPatch, **parts: Any) -> None:
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", SimpleNamespace(**parts))


def test_recordings_of_the_same_code_at_the_same_place_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    roots = {"forward": [node(backward=[node(), node(), node()]), node(backward=[node()])]}
    fake_trees(monkeypatch, SimpleNamespace(roots=roots))
    assert describe_recordings() == {"recorded": 6, "again": 3}


def test_without_graphs_nothing_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_trees(monkeypatch, None)
    assert describe_recordings() is None


def test_skipped_graphs_have_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    counters = defaultdict(Counter, frames=Counter(ok=1), inductor=Counter(cudagraph_skips=1, pattern_matcher_count=5))
    metrics = SimpleNamespace(compile_id="0/0", co_name="forward", cudagraph_skip_reason="cpu device (x)")
    fake_dynamo(monkeypatch, counters=counters, graph_break_reasons=[], _compilation_metrics=[metrics])
    notes = describe_dynamo()
    assert notes is not None
    assert notes["inductor"] == {"cudagraph_skips": 1}
    known = read_compilations(notes)
    assert known is not None
    assert [(one.reason, one.count) for one in known.graph_skips] == [("cpu device (x)", 1)]


def test_a_torch_with_other_notes_still_has_its_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_dynamo(monkeypatch, counters={"graph_break": Counter({"print": 2}), "frames": Counter(ok=3)})
    notes = describe_dynamo()
    assert notes == {"graph_break": {"print": 2}, "frames": {"ok": 3}}
    known = read_compilations(notes)
    assert known is not None
    assert [(one.text.title, one.count, one.site) for one in known.breaks] == [("print", 2, None)]
    assert (known.count, known.missing, known.total_ns) == (3, 3, None)


def test_breaks_without_end_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = SimpleNamespace(filename="train.py", lineno=1, name="f")
    reasons = [SimpleNamespace(reason=f"reason {number}", user_stack=[frame]) for number in range(MOST_BREAKS + 9)]
    fake_dynamo(monkeypatch, counters={"frames": Counter(ok=1)}, graph_break_reasons=reasons * 2)
    notes = describe_dynamo()
    assert notes is not None
    assert len(notes["breaks"]) == MOST_BREAKS
    assert {row["count"] for row in notes["breaks"]} == {2}
