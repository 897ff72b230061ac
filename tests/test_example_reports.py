"""The reports of the examples can be read, and name no computer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from examples.make_reports import PACKED, without_host
from traceopt.result.encoding import packing

REPORTS = sorted((Path(__file__).resolve().parents[1] / "examples").glob("*/*.html"))


def test_each_example_has_both() -> None:
    assert len(REPORTS) == 8


@pytest.mark.parametrize("report", REPORTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_all_that_is_packed_in_it_can_be_read(report: Path) -> None:
    page = report.read_text(encoding="utf-8")
    assert json.loads(packing.embedded_result(page))["findings"]
    packed = PACKED.findall(page)
    assert len(packed) >= 3
    for text in packed:
        packing.unpack(text)


def test_the_name_of_the_computer_is_replaced_also_in_packed_documents() -> None:
    document = {"files": [f"ab_{number}.json" for number in range(500)]}
    packed = packing.pack(json.dumps(document).encode())
    letters = packed[-9:-7]  # the name of a computer may be in a packed text by chance
    for host in ("ab", letters):
        page = without_host(f'<p>{host}_1</p><script>{{"document": "{packed}"}}</script>', host)
        assert "<p>host_1</p>" in page
        [again] = PACKED.findall(page)
        read = json.loads(packing.unpack(again))
        assert read["files"][7] == ("host_7.json" if host == "ab" else "ab_7.json")
