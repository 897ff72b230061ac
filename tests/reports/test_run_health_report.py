"""Run health in the reports: the chart of all steps, and the lines on the GPUs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import traceopt
from traceopt.reports.html.charts.run_chart import draw_memory, draw_run
from traceopt.testing import A100, Machine


def trace_of(folder: Path, step_us: list[float], **more: Any) -> Path:
    machine = Machine(A100)
    machine.metadata["traceopt"] = {"ledger": {"step_us": step_us}, **more}
    for _ in range(3):
        with machine.step():
            machine.launch(5_000)
            machine.synchronize()
    path = folder / "trace.json"
    path.write_bytes(machine.to_bytes())
    return path


def test_the_chart_marks_the_change(tmp_path: Path) -> None:
    result = traceopt.analyze(str(trace_of(tmp_path, [1000.0] * 600 + [1500.0] * 400)))
    chart = draw_run(result)
    assert chart is not None
    assert "step 600" in chart.caption
    assert chart.change_left is not None
    assert 59 < chart.change_left < 61
    assert len(chart.points.split()) == 240
    drawn = result.figures.run
    assert drawn.data[0].y[0] < drawn.data[0].y[-1]
    assert drawn.layout.shapes[0].x0 == 600


def test_no_chart_without_enough_steps(tmp_path: Path) -> None:
    assert draw_run(traceopt.analyze(str(trace_of(tmp_path, [1000.0] * 50)))) is None


def test_memory_of_the_gpu_and_of_the_process_is_drawn(tmp_path: Path) -> None:
    steps = list(range(1_000))
    read = {"steps": steps, "device_bytes": [step << 20 for step in steps], "process_bytes": [1 << 30, None] * 500}
    result = traceopt.analyze(str(trace_of(tmp_path, [1000.0] * 1_000, step_memory=read)))
    device, process = draw_memory(result)
    assert len(device.points.split()) == 240
    assert (device.first_step, device.top_bytes) == (0, pytest.approx(1.1 * (999 << 20)))
    assert process.top_bytes == pytest.approx(1.1 * (1 << 30))
    lines = result.figures.run_memory.data
    assert [(line.name, line.y[-1]) for line in lines] == [
        ("Tensors on the GPU", pytest.approx(999 / 1024)),
        ("Resident memory of the process", 1.0),
    ]
    page = result.to_html()
    assert 'id="run-memory"' in page
    assert "the bottom 0." in page
    few = {"steps": steps[:10], "device_bytes": steps[:10]}
    assert draw_memory(traceopt.analyze(str(trace_of(tmp_path, [1000.0] * 1_000, step_memory=few)))) == []


def test_samples_are_read_with_the_trace(tmp_path: Path) -> None:
    trace_of(tmp_path, [1000.0] * 10)
    gpu: dict[str, Any] = {"index": 0, "sm_mhz": 1900, "celsius": 71, "use_percent": 95, "power_w": 620.0}
    rows = [{"traceopt_gpu_samples": 1, "host": "a", "gpus": [{"index": 0, "name": "H100", "max_sm_mhz": 1980}]}]
    rows += [{"s": second, "gpus": [gpu]} for second in range(10)]
    (tmp_path / "a.gpu_samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = traceopt.analyze(str(tmp_path))
    line = "GPU 0 (H100), busy in 10 of 10 samples: 1,900 of 1,980 MHz, 620 W, at most 71 °C."
    assert line in result.to_html()
    assert result.gpu_samples is not None
    assert result.gpu_samples.gpus[0].shared_samples is None
    joules = 620 * (result.step.typical_us or 0) / 1e6
    assert result.gpu_samples.joules_per_step == pytest.approx(joules, rel=1e-3)
    assert f"A step takes {joules:.1f} J on one GPU." in result.to_html()
