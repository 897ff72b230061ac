"""The contents of a trace: the two cycles, the key `traceopt`, and that readers of gzip and JSON accept it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from runs import SCRIPTS, Run

from traceopt.api import analyze
from traceopt.capture.recording.trace_file import save


@pytest.mark.run("equality.py", "--lr", "0.1", "two words", "-m")
def test_timing_comes_without_extras_and_detail_with_all(run: Run) -> None:
    timing, detail = run.traces
    assert (timing.cycle, detail.cycle) == ("timing", "detail")
    assert not any(e.get("cat") == "python_function" for e in timing.document["traceEvents"])
    assert any(e.get("cat") == "python_function" for e in detail.document["traceEvents"])
    assert any("Input Dims" in e.get("args", {}) for e in detail.document["traceEvents"])


@pytest.mark.run("equality.py", "--lr", "0.1", "two words", "-m")
def test_metadata_describes_the_run(run: Run) -> None:
    for trace in run.traces:
        metadata = trace.metadata
        assert metadata["schema"] == 1
        assert metadata["torch_version"].startswith("2.")
        assert metadata["environment"]["threads"] == 1
        assert metadata["environment"]["variables"]["OMP_NUM_THREADS"] == "1"
        assert metadata["checkpoint"]["saves"] == 1
        [model] = metadata["models"]
        assert (model["class"], model["parameters"]) == ("torch.nn.modules.container.Sequential", 306)
        [optimizer] = metadata["optimizers"]
        assert optimizer["class"] == "torch.optim.adamw.AdamW"
        assert optimizer["dtypes"] == {"float32": 306}
        [loader] = metadata["loaders"]
        assert (loader["num_workers"], loader["sampler"]) == (0, "torch.utils.data.sampler.RandomSampler")
        assert loader["updates"] == loader["batches"] == 40
        assert metadata["updates"] == 81  # backward passes and updates, and a backward pass at the end
        assert loader["batch"]["tensors"] > 0


@pytest.mark.run("equality.py", "--lr", "0.1", "two words", "-m")
def test_every_trace_has_the_ledger_of_the_whole_run(run: Run) -> None:
    """The head of the first file was written at step 13 and replaced when the run ended."""
    for trace in run.traces:
        ledger = trace.metadata["ledger"]
        assert len(ledger["step_us"]) == len(ledger["fetch_us"]) == 40
        assert [window["from"] for window in ledger["windows"]] == [8, 17]
        assert all(fetch <= step for step, fetch in zip(ledger["step_us"], ledger["fetch_us"], strict=True))
        until = ledger["until_backward_us"]
        assert all(0 < before < step for step, before in zip(ledger["step_us"], until, strict=True))


@pytest.mark.run("equality.py", "--lr", "0.1", "two words", "-m")
def test_the_lines_of_calls_are_kept_of_the_detail_cycle(run: Run) -> None:
    source = (SCRIPTS / "equality.py").read_text().splitlines()
    calls = run.cycle("detail").metadata["call_lines"]
    python = [e for e in run.cycle("detail").document["traceEvents"] if e.get("cat") == "python_function"]
    python.sort(key=lambda e: e["args"]["Python id"])
    assert calls["count"] == len(python)
    lines = {python[row]["name"]: line for row, line in zip(calls["rows"], calls["lines"], strict=True)}
    [backward] = {line for name, line in lines.items() if "_tensor.py" in name and name.endswith(" backward")}
    assert ".backward()" in source[backward - 1]
    assert "call_lines" not in run.cycle("timing").metadata


@pytest.mark.run("loops.py", "plain", options=("--analyze", "--preset", "quick"))
def test_both_cycles_of_a_folder_are_one_result(run: Run) -> None:
    timing, detail = (run.cycle(name).path for name in ("timing", "detail"))
    result = analyze([str(run.folder)])
    assert [Path(file.path).name for file in result.run.files] == [timing.name, detail.name]
    assert len(result.ranks) == 1
    assert result.run.recorded.shapes
    assert result.run.recorded.stacks
    alone = analyze([str(timing)])
    assert replace(result.step, series=None) == replace(alone.step, series=None)  # the parts need the frames
    assert not alone.run.recorded.stacks
    assert analyze([str(detail)]).step.count == 2


@pytest.mark.run("loops.py", "plain", options=("--analyze", "--preset", "quick"))
def test_a_damaged_cycle_leaves_the_other(run: Run, tmp_path: Path) -> None:
    for trace in run.traces:
        content = trace.path.read_bytes()
        (tmp_path / trace.path.name).write_bytes(content if trace.cycle == "timing" else content[:1000])
    result = analyze([str(tmp_path)])
    assert result.step.count == 3
    assert len(result.run.files) == 1
    [warning] = result.warnings
    assert run.cycle("detail").path.name in warning


class Exporter:
    """Replaces the profiler: writes what Kineto would."""

    def __init__(self, text: str) -> None:
        self.text = text

    def export_chrome_trace(self, path: str) -> None:
        Path(path).write_text(self.text)


def read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return document


def test_the_head_can_be_exchanged_without_reading_the_body(tmp_path: Path) -> None:
    body = {"traceEvents": [{"name": f"op {i}", "ts": i} for i in range(50_000)]}
    file = save(Exporter(json.dumps(body)), tmp_path, "host_1", {"cycle": {"name": "timing"}})
    assert read(file.path) == {"traceopt": {"cycle": {"name": "timing"}}, **body}
    for head in ({"text": '" \\ \n é 😀' * 100}, {}, {"ledger": list(range(100_000))}):
        file.replace_head(head)
        assert read(file.path) == {"traceopt": head, **body}
    assert [path.name for path in tmp_path.iterdir()] == [file.path.name]


@pytest.mark.parametrize("text", ["", "not JSON"])
def test_an_export_that_failed_leaves_no_file(tmp_path: Path, text: str) -> None:
    with pytest.raises(OSError, match="the profiler wrote no"):
        save(Exporter(text), tmp_path, "host_1", {})
    assert list(tmp_path.iterdir()) == []
