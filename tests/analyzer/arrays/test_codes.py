"""Numbers for texts in the order in which they first appear."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from traceopt.analyzer.arrays.codes import Codes


@given(st.lists(st.text(max_size=3)))
def test_codes_number_values_by_first_sight(values: list[str]) -> None:
    codes: Codes[str] = Codes()
    found = codes.encode(values, len(values))
    assert codes.values() == list(dict.fromkeys(values))
    assert [codes.values()[code] for code in found] == values
    assert len(codes) == len({*values})
    assert [codes.of(value) for value in values] == found.tolist()
