"""Captions say where peak rates come from, and what a table lacks."""

from __future__ import annotations

import json

import pytest
import sample
from msgspec.structs import replace

from traceopt.reports.words.sentences import gemm_caption
from traceopt.result.document import PeakRate, Result

NB = "\u00a0"
REACHED = f"The step reaches 30.8{NB}TFLOP/s, 3.1% of the bf16 peak of 989{NB}TFLOP/s"


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
