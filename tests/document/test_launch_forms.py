"""However a file links launches to their work, it gives the same document."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.traces import AnalyzedTrace

from fixtures.generate import generate
from fixtures.real_traces import TRACES
from traceopt.analyzer.vocabulary.event_categories import ARROWS

REAL = "public/sid_h100_a1.json.gz"  # shorter than a block: the order of its names does not depend on where blocks end

Event = dict[str, Any]


def _as_rocm(event: Event) -> None:
    """As ROCm's older profiler writes it, but without arrows."""
    if "correlation" in event.get("args", {}):
        event["args"]["External id"] = event["args"].pop("correlation")
    if event.get("cat") in ARROWS:
        event["id"] = 0  # joins nothing


def _with_arrows(event: Event) -> None:
    """Nothing but arrows links launches to work."""
    if "correlation" in event.get("args", {}):
        event["args"] = {
            key: value for key, value in event["args"].items() if key not in ("correlation", "External id")
        }


def _with_arrows_and_operators(event: Event) -> None:
    """Beside the arrows there are the External ids of operators, which their launches share."""
    event.get("args", {}).pop("correlation", None)


@pytest.mark.parametrize("form", [_as_rocm, _with_arrows, _with_arrows_and_operators])
@pytest.mark.parametrize("name", ["launch_bound", pytest.param(REAL, marks=pytest.mark.real_traces)])
def test_equal_documents(form: Callable[[Event], None], name: str, tmp_path: Path) -> None:
    trace = json.loads(gzip.decompress((TRACES / name).read_bytes()) if name == REAL else generate(name).to_bytes())
    documents = []
    for change in (lambda _: None, form):
        for event in trace["traceEvents"]:
            change(event)
        path = tmp_path / "trace.json"
        path.write_text(json.dumps(trace))
        document = json.loads(AnalyzedTrace(path).result.to_json())
        del document["run"]["files"]
        documents.append(document)
    assert documents[0]["findings"]
    assert documents[1] == documents[0]
