"""The arguments of operators as the timeline shows them: whole, on one line."""

from __future__ import annotations

import json

import pytest

from traceopt.analyzer.vocabulary.formulas.argument_text import MOST_LETTERS, argument_text


@pytest.mark.parametrize(
    ("dims", "types", "text"),
    [
        ("[\n  [\n    128,\n    3,\n 24],\n [64, 3]]", '["float", "float"]', "[128, 3, 24] float, [64, 3] float"),
        ("[[4, 3], [], [], []]", '["float", "Int", "", ""]', "[4, 3] float, Int"),
        ("[[4, 3], [], [2]]", '["float", "", "int"]', "[4, 3] float, –, [2] int"),
        ("[[[4, 3], [2]], []]", '["TensorList", "Scalar"]', "([4, 3], [2]) TensorList, Scalar"),
        ("[[4, 3]]", "", "[4, 3]"),
        ("", "", ""),
        ("nonsense", "[1, 2]", ""),
        ("{}", "7", ""),
    ],
)  # fmt: skip
def test_shapes_and_types_side_by_side(dims: str, types: str, text: str) -> None:
    assert argument_text(dims, types) == text


def test_what_does_not_fit_is_counted() -> None:
    text = argument_text(json.dumps([[128, 3, 224, 224]] * 40), json.dumps(["float"] * 40))
    assert len(text) <= MOST_LETTERS + 15
    shown = text.count("[")
    assert text.endswith(f", and {40 - shown} more")
    assert argument_text(json.dumps([[[8]] * 160]), "") == "([8], [8], [8], [8], and 156 more)"
