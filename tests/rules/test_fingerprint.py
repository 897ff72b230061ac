"""Ids stay when lines, times and folders change, and differ where rule, file or function do."""

from __future__ import annotations

from msgspec.structs import replace

from traceopt.result.finding import Evidence, Finding, Fix, Location, Saving
from traceopt.result.words.effort_and_risk import Effort, Risk
from traceopt.rules.fingerprint import code_of, places, with_ids

FINDING = Finding(
    code="DL001",
    name="dataloader-stall",
    title="Load data in worker processes",
    impact="high",
    confidence="high",
    effort=Effort.ONE_LINE,
    risk=Risk.NONE,
    saving=Saving(1.0, 2.0, 3.0, 0.5, "Measured."),
    why="",
    evidence=[],
    locations=[Location("/work/first/train.py", 10, "main"), Location("data.py", 3, "load")],
    fix=Fix("Use workers."),
)


def ids(*findings: Finding) -> list[str]:
    return [finding.id for finding in with_ids(findings)]


def test_a_line_a_time_a_folder_and_a_title_do_not_count() -> None:
    moved = replace(
        FINDING,
        title="Load the data in worker processes",
        saving=Saving(4.0, 5.0, 6.0, 0.7, "Measured again."),
        locations=[Location("/other/checkout/train.py", 99, "main", 101)],
    )
    assert ids(moved) == ids(FINDING)


def test_rule_file_and_function_count() -> None:
    others = [
        replace(FINDING, code="DL002"),
        replace(FINDING, locations=[Location("/work/first/data.py", 10, "main")]),
        replace(FINDING, locations=[Location("/work/first/train.py", 10, "evaluate")]),
        replace(FINDING, locations=[]),
    ]
    assert len({*ids(FINDING), *(ids(other)[0] for other in others)}) == 5


def test_several_of_a_rule_in_one_function_are_told_apart() -> None:
    first, second, third = ids(FINDING, replace(FINDING, code="HS001"), FINDING)
    assert len({first, second, third}) == 3
    assert ids(FINDING) == [first]


def test_their_order_is_that_of_their_lines_whichever_costs_more() -> None:
    early, late = (replace(FINDING, locations=[Location("train.py", line, "main")]) for line in (10, 20))
    assert ids(late, early) == ids(early, late)[::-1]


def test_the_first_of_two_with_one_id_keeps_it() -> None:
    """The findings of another rank get other ids where they have the same as those of the shown rank."""
    (known,) = with_ids([FINDING])
    other = replace(known, locations=[Location("train.py", 1, "main")])
    assert ids(known, other) == ids(FINDING, FINDING)
    assert ids(known) == [known.id]


def test_the_place_comes_from_the_evidence_where_there_is_no_location() -> None:
    row = Evidence("aten::item", location=Location("loop.py", 7, "step"))
    assert places(replace(FINDING, locations=[], evidence=[Evidence("no place"), row])) == [("loop.py", "step")]
    assert places(FINDING) == [("train.py", "main"), ("data.py", "load")]


def test_a_name_that_is_no_text_has_an_id() -> None:
    assert code_of(*ids(replace(FINDING, locations=[Location("\udcff.py", 1, "f")]))) == "DL001"
