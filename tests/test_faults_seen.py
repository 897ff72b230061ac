"""Traces that were read wrongly once: what is right about each."""

from __future__ import annotations

from functools import cache

import pytest

from fixtures.real_traces import SHARED
from traceopt.api import analyze
from traceopt.result.document import Result

pytestmark = pytest.mark.real_traces
TRACES = SHARED / "faults" / "traces"
WHOLE = "gz-extra-60000.json.gz"  # a valid file, of which others are damaged copies


@cache
def analyzed(name: str) -> Result:
    return analyze(str(TRACES / name), debug=True)


@pytest.mark.parametrize(
    ("name", "words", "notes", "first"),
    [
        ("05_overflowing_kernel_dur.json.gz", "idle for 25%", {"TQ006", "TQ013"}, "HS001"),
        ("06_gpu_clock_800us_early.json.gz", "idle for 26%", {"TQ006", "TQ013"}, "HS001"),
        ("29_mps_no_gpu_rows.json.gz", "cannot be judged", {"TQ001", "TQ006"}, None),
        ("30_tpu_xprof.json", "cannot be judged", {"TQ002", "TQ007"}, None),
        ("51_two_devices_props.json.gz", "None of the 2 GPUs works for 27%", {"TQ006"}, "HS001"),
        ("g10_host_alloc_each_step.json", "Allocating pinned host memory", set(), "MM003"),
        ("g14b_fp64_rtx3090.json", "use FP32", set(), "TC005"),
        ("g1_index_backward.json", "index_select", set(), "EF018"),
        ("g7_model_parallel_two_gpus.json", "2 GPUs take turns", set(), None),
        ("gpu-shift-50ms.json.gz", "idle for 47%", {"TQ013"}, "DL001"),
        ("gz-member-missing.json.gz", "Part of the file is lost", {"TQ003"}, None),
        (WHOLE, "idle for 47%", set(), "DL001"),
        ("hole-9.json.gz", "Part of the file is lost", {"TQ003"}, None),
        ("noise-5.json.gz", "may not be those of the run", {"TQ003"}, "DL001"),
        ("ts-1e308-all.json.gz", "cannot be judged", {"TQ001", "TQ002", "TQ003"}, None),
        ("unit-ns-durgpu.json.gz", "idle for 47%", {"TQ013"}, "DL001"),
    ],
)
def test_the_first_line_the_notes_and_the_first_fix_are_right(
    name: str, words: str, notes: set[str], first: str | None
) -> None:
    result = analyzed(name)
    assert words in result.verdict
    assert {note.code for note in result.quality.notes} == notes
    assert next((row.code for row in result.plan), None) == first


@pytest.mark.parametrize("name", ["gpu-shift-50ms.json.gz", "unit-ns-durgpu.json.gz"])
def test_a_corrected_copy_gives_the_numbers_of_the_whole_file(name: str) -> None:
    corrected, whole = analyzed(name), analyzed(WHOLE)
    near = [pytest.approx(part.us_per_step, abs=20) for part in whole.breakdown]  # a clock is known to some us
    assert [part.us_per_step for part in corrected.breakdown] == near
    assert [row.code for row in corrected.plan] == [row.code for row in whole.plan]
    assert [row.saving_us for row in corrected.plan] == [pytest.approx(row.saving_us, abs=20) for row in whole.plan]
