"""CV001: paddings that give channels-first tensors undo channels_last, so it is not promised where they are many."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.savings.captures import traces
from traceopt.api import analyze
from traceopt.result.finding import Finding

PADDING = "aten::_pad_circular"


def finding(folder: Path, padded_share: float, name: str = PADDING) -> Finding:
    """Of the capture of nchw_conv on an H100, with a padding before so many of its convolutions."""
    paths = []
    for path in map(Path, traces("nchw_conv", "plain")):
        document: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
        events = document["traceEvents"]
        convolutions = [event for event in events if event.get("name") == "aten::convolution"]
        for event in convolutions[: round(padded_share * len(convolutions))]:
            events.append({key: event[key] for key in ("ph", "cat", "pid", "tid")})
            events[-1] |= {"name": name, "ts": event["ts"] - 0.5, "dur": 0.1, "args": {}}
        paths.append(folder / path.name)
        paths[-1].write_bytes(gzip.compress(json.dumps(document).encode(), 1))
    [found] = analyze(list(map(str, paths)), select=["CV001"]).findings
    return found


@pytest.mark.parametrize("name", [PADDING, "aten::reflection_pad2d"])
def test_behind_most_convolutions_nothing_is_promised(tmp_path: Path, name: str) -> None:
    found = finding(tmp_path, 1.0, name)
    assert found.saving is None
    assert "before 100% of the convolutions" in found.why
    assert "channels_last alone may make the step longer" in found.fix.text


def test_behind_some_the_others_count(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    whole, part = finding(tmp_path / "none", 0.0), finding(tmp_path, 0.25)
    assert whole.saving is not None
    assert part.saving is not None
    assert part.saving.est_us == pytest.approx(0.75 * whole.saving.est_us, rel=0.1)
    assert "padding" not in whole.why


def test_zeros_keep_the_layout(tmp_path: Path) -> None:
    assert finding(tmp_path, 1.0, "aten::constant_pad_nd").saving is not None
