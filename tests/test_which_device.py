"""Every output names the device of a run whose work on it is not in the file, and none calls it a run on the CPU."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from support.command_line import run
from support.traces import AnalyzedTrace

from fixtures.real_traces import SHARED
from traceopt.result.words.vendors import device_name
from traceopt.testing.events import Json, annotation, document, op

FINDINGS_ALONE = ("gitlab",)  # an entry needs a line of the source
FORMATS = ("text", "agent", "json", "markdown", "concise", "github", "sarif", *FINDINGS_ALONE)
CPU_RUN = re.compile(r"CPU-only|CPU run|only the CPU", re.IGNORECASE)


def xprof() -> list[Json]:
    device = {"ph": "M", "pid": 3, "name": "process_name", "args": {"name": "/device:TPU:0"}}
    rows = [{"ph": "X", "pid": 3, "tid": 1, "ts": 100.0 * i, "dur": 90.0, "name": f"fusion.{i}"} for i in range(9)]
    return [device, *rows]


def step(name: str) -> list[Json]:
    return [annotation("ProfilerStep#0", 0, 1_000), op(name, 100, 500), op("aten::item", 700, 290)]


REAL = {
    "faults/traces/29_mps_no_gpu_rows.json.gz": "NVIDIA H100 80GB HBM3",
    "faults/traces/30_tpu_xprof.json": "Google TPU",
    "unseen/cpu_bossb.json.gz": "Apple MPS",
    "unseen/kin_v100_nw4_a.json.gz": "NVIDIA GPU",
    "unseen/units/moe_03_top1_sparse.json.gz": "AMD GPU",
}


@pytest.mark.parametrize(
    ("events", "device"),
    [
        (xprof, "Google TPU"),
        (lambda: step("LinearBackward0"), "Apple MPS"),
        (lambda: step("aten::cudnn_convolution"), "nvidia"),
    ],
)
def test_every_output_names_the_device(events: Callable[[], list[Json]], device: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    trace.write_bytes(document(events()))
    page = tmp_path / "report.html"
    for kind in FORMATS:
        outcome = run("analyze", trace, "--html", page, "--format", kind)
        assert outcome.exit_code == 0, outcome.stderr
        assert not CPU_RUN.search(outcome.output), kind
        assert kind in FINDINGS_ALONE or device.lower() in outcome.output.lower(), kind
    assert device.lower() in page.read_text(encoding="utf-8").lower()
    assert not CPU_RUN.search(page.read_text(encoding="utf-8"))


@pytest.mark.real_traces
@pytest.mark.parametrize(("file", "device"), REAL.items())
def test_of_real_traces(file: str, device: str) -> None:
    path = SHARED / file
    if not path.is_file():
        pytest.skip(f"{file} is not there")
    result = AnalyzedTrace(path).result
    assert result.run.device is not None
    assert device_name(result.run.device.name, result.run.device.vendor) == device
    assert not CPU_RUN.search(result.verdict)
