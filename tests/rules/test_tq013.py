"""TQ013 impossible-times: record times that agree with each other."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from support.traces import GENERATED, REAL, TWINS, AnalyzedTrace, GetExample, over

from traceopt.result.document import NOT_JUDGED, Result

ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")


def changed(whole: AnalyzedTrace, to: Path, shift_us: float = 0.0, factor: float = 1.0) -> Result:
    """The document of the trace with other times of the GPU."""
    document = orjson.loads(whole.path.read_bytes())
    for event in document["traceEvents"]:
        if event.get("cat") in ON_GPU:
            event["ts"] += shift_us
            event["dur"] *= factor
    to.write_bytes(orjson.dumps(document))
    return AnalyzedTrace(to).result


def note(result: Result) -> str | None:
    return next((one.text for one in result.quality.notes if one.code == "TQ013"), None)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"shift_us": -50_000}, "The clock of GPU 0 is 50.0 ms behind the host's, which is corrected"),
        ({"shift_us": 800}, "The clock of GPU 0 is 0.80 ms ahead of the host's, which is corrected"),
        ({"factor": 1_000}, "durations are divided by 1,000: they are in nanoseconds"),
    ],
)
def test_fires_on_times_that_are_corrected(
    example: GetExample, tmp_path: Path, change: dict[str, float], said: str
) -> None:
    """The document is that of the trace with right times."""
    whole = example("slow_loader")
    result = changed(whole, tmp_path / "trace.json", **change)
    assert said in str(note(result))
    assert result.verdict == whole.result.verdict
    assert result.quality.verdict == "limited"
    assert [finding.code for finding in result.findings] == [one.code for one in whole.result.findings]
    assert len(result.plan) == len(whole.result.plan) > 0
    for row, expected in zip(result.breakdown, whole.result.breakdown, strict=True):
        assert row.name == expected.name
        assert row.share == pytest.approx(expected.share, abs=0.001)


@pytest.mark.parametrize("factor", [100, 0.001])
def test_fires_on_another_unit_and_nothing_is_judged(example: GetExample, tmp_path: Path, factor: float) -> None:
    result = changed(example("slow_loader"), tmp_path / "trace.json", factor=factor)
    assert note(result)
    assert str(result.verdict).startswith(NOT_JUDGED)
    assert (result.plan, result.findings, result.quality.verdict) == ([], [], "unusable")


@over(GENERATED, TWINS, REAL)
def test_silent_on_times_that_agree(trace: AnalyzedTrace) -> None:
    assert note(trace.result) is None
