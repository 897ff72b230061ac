"""Captions say where peak rates come from, and what a table lacks."""

from __future__ import annotations

import json

import pytest
import sample
from msgspec.structs import replace

from traceopt.reports.html.page import render_html
from traceopt.reports.text.markdown import render_markdown
from traceopt.reports.text.terminal import render_terminal
from traceopt.reports.words.fixes.headline import lead
from traceopt.reports.words.run_words import identity
from traceopt.reports.words.table_captions import gemm_caption
from traceopt.result.document import BeforeAndAfter, Result
from traceopt.result.sections.run import PeakRate

NB = "\u00a0"
REACHED = f"The step reaches 30.8{NB}TFLOP/s. MFU: 3.1% of the bf16 peak of 989{NB}TFLOP/s"


def in_terminal(result: Result) -> str:
    return render_terminal(result, width=100, color=False, unicode=True)


def with_peaks(*peaks: PeakRate) -> Result:
    """The sample, whose step is measured by the bf16 peak and whose products are in fp32."""
    result = sample.rich()
    assert result.run.device is not None
    bf16 = next((peak for peak in peaks if peak.figure == "bf16"), None)
    efficiency = replace(
        result.efficiency, peak_source=bf16.source if bf16 else None, peak_verified=bf16.verified if bf16 else None
    )
    device = replace(result.run.device, peaks=list(peaks))
    return replace(result, run=replace(result.run, device=device), efficiency=efficiency)


def rate(figure: str, verified: bool | None) -> PeakRate:
    return PeakRate(figure, 989.0, "TFLOP/s", "your settings" if verified is None else "A data sheet", verified)


@pytest.mark.parametrize(
    ("peaks", "end"),
    [
        ([rate("bf16", True), rate("fp32", True)], f"{REACHED}."),
        ([rate("bf16", False), rate("fp32", True)], f"{REACHED} (peak unverified)."),
        ([rate("bf16", None), rate("fp32", True)], f"{REACHED} (peak from your settings)."),
        ([rate("bf16", True), rate("fp32", False), rate("int8", False)], f"{REACHED}. Peak unverified: fp32."),
        ([rate("bf16", None), rate("fp32", None)], "(peak from your settings). Peak from your settings: fp32."),
    ],
)
def test_the_gemm_caption_says_where_peaks_come_from(peaks: list[PeakRate], end: str) -> None:
    assert gemm_caption(with_peaks(*peaks)).endswith(end)


def test_a_document_of_an_earlier_version_has_no_peak_remark() -> None:
    document = json.loads(with_peaks(rate("bf16", False)).to_json())
    for name in ("peak_source", "peak_verified"):
        del document["efficiency"][name]
    del document["run"]["device"]["peaks"]
    earlier = Result.from_json(json.dumps(document).encode())
    assert gemm_caption(earlier).endswith(f"{REACHED}.")


def test_the_gemm_caption_says_how_much_the_table_lacks() -> None:
    assert gemm_caption(replace(sample.rich(), gemm_known_share=0.11)).startswith("The table holds 11% of the time")
    for share in (None, 0.95):
        assert "The table holds" not in gemm_caption(replace(sample.rich(), gemm_known_share=share))


@pytest.mark.parametrize(("share", "says"), [(0.39, "off by up to 39%."), (0.01, ""), (None, "")])
def test_a_large_replay_error_stands_beside_the_number(share: float | None, says: str) -> None:
    result = sample.rich()
    assert result.combined is not None
    text = "".join(lead(replace(result, combined=replace(result.combined, replay_error_share=share))))
    assert says in text
    assert ("off by" in text) == bool(says)


def test_what_to_expect_without_the_profiler_stands_beside_the_recorded_step() -> None:
    result = sample.rich()
    assert result.combined is not None
    bare = replace(result.combined, unrecorded=BeforeAndAfter(102_000.0, 48_400.0))
    assert f"Without the profiler: 102.0 → about 48{NB}ms." in "".join(lead(replace(result, combined=bare)))
    assert "Without the profiler" not in "".join(lead(result))


@pytest.mark.parametrize(
    ("paths", "script", "title"),
    [
        (["logs/a.json", "logs/b.json"], "train.py", "train.py: 2 files"),
        (["logs/a.json", "logs/b.json"], None, "logs: 2 files"),
        (["logs/a.json"], "train.py", "train.py: a.json"),
        (["logs/a.json"], None, "a.json"),
    ],
)
def test_a_recording_is_titled_with_its_script(paths: list[str], script: str | None, title: str) -> None:
    rich = sample.rich()
    result = replace(rich, run=replace(rich.run, paths=paths, script=script))
    assert identity(result) == title
    assert f"<b>{title}</b>" in render_html(result, static=True)
    assert title in in_terminal(result)
    assert title in render_markdown(result)


def test_the_name_of_a_script_is_escaped() -> None:
    rich = sample.rich()
    result = replace(rich, run=replace(rich.run, script="<b>\x1b[31m.py"))
    page = render_html(result, static=True)
    assert "<b>&lt;b&gt;" in page
    assert not any("\x1b" in text for text in (page, in_terminal(result), render_markdown(result)))
