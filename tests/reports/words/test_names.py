"""Names of places that fit into a table."""

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
