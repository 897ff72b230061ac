"""Names of places and kernels that fit into a table."""

from __future__ import annotations

import pytest

from traceopt.reports.words import names


@pytest.mark.parametrize(
    ("path", "short"),
    [
        ("model/vit.py:57", "model/vit.py:57"),
        ("library/model_hub/huggingface/adapters/pipeline/model.py:40", "…/adapters/pipeline/model.py:40"),
        ("x" * 40 + ".py:7", "…" + "x" * 30 + ".py:7"),
    ],
)
def test_long_paths_keep_their_end(path: str, short: str) -> None:
    assert names.short_path(path) == short


def test_an_unknown_place_is_not_recorded() -> None:
    assert names.where(None) == "not recorded"


def test_names_that_are_cut_still_differ() -> None:
    gemms = [f"cutlass_80_wmma_tensorop_bf16_s161616gemm_128x128_32x2_{layout}_align1" for layout in ("nn", "nt", "tn")]
    assert names.told_apart(["short", gemms[0]], 20) == ["short", "cutlass_80_wmma_ten…"]
    assert names.told_apart(gemms, 30) == [f"cutlass_80_wmma…32x2_{layout}_align1" for layout in ("nn", "nt", "tn")]
    assert names.told_apart([f"{one}{one}" for one in gemms], 20, "...")[1] == "cutlass_80...nt_a..."
