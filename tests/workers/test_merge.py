"""The document of many ranks does not depend on their order, and missing ranks are named."""

from __future__ import annotations

import math
import random
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace
from small_job import RANKS

from traceopt import api
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.ranks.missing_ranks import missing_ranks
from traceopt.analyzer.reading.source_search import find_sources
from traceopt.analyzer.recordings.cycle_pairs import find_recordings
from traceopt.api import analyze
from traceopt.document.merge import MergedRun
from traceopt.document.rank_answer import RankAnswer
from traceopt.document.rank_document import rank_document
from traceopt.document.timeline.timeline import spans_of_step
from traceopt.result.document import Result
from traceopt.result.finding import Finding, Fix, Location
from traceopt.result.sections.timeline_rows import Timeline
from traceopt.workers import rank_analysis
from traceopt.workers.rank_analysis import analyze_rank
from traceopt.workers.rank_task import RankOptions, RankTask


@pytest.fixture(scope="module")
def answers(job: Path) -> list[bytes]:
    recordings = find_recordings(find_sources([str(job)]).sources)
    return [analyze_rank(RankTask(recording, RankOptions())) for recording in recordings]


def merged(answers: dict[int, bytes]) -> Result:
    merge = MergedRun()
    for index, answer in answers.items():
        assert merge.add(index, answer) is None
    return document_of(merge)


def document_of(merge: MergedRun) -> Result:
    assert merge.shown is not None
    return merge.around(merge.shown)


def test_ranks_come_in_any_order(answers: list[bytes]) -> None:
    expected = merged(dict(enumerate(answers))).to_json()
    for seed in range(4):
        places = list(range(RANKS))
        random.Random(seed).shuffle(places)  # noqa: S311
        assert merged({place: answers[place] for place in places}).to_json() == expected


def test_the_lowest_rank_is_shown_and_rows_come_as_the_files(answers: list[bytes]) -> None:
    result = merged(dict(enumerate(answers)))
    assert result.run.shown_rank == 0
    assert [row.rank for row in result.ranks] == [file.rank for file in result.run.files] == [4, 5, 0, 1, 2, 3]
    assert result.run.ranks == list(range(RANKS))


def found(rank: int, *findings: tuple[str, str | None, str]) -> list[Finding]:
    """Findings from (code, place, why)."""
    return [
        Finding(
            code, "name", "Title", "low", "high", "Low", "None", None, why, [],
            [] if place is None else [Location(place, 1)], Fix("Do."), ranks=[rank],
        )
        for code, place, why in findings
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("of_ranks", "expected"),
    [
        ([[("A1", "x", "0")], [("A1", "x", "1")]], [("A1", "0", [0, 1])]),
        ([[("A1", "x", "0")], [("A1", "y", "1")]], [("A1", "0", [0]), ("A1", "1", [1])]),
        ([[("A1", None, "0")], [("A1", "y", "1")]], [("A1", "0", [0, 1])]),
        ([[("A1", "x", "0")], [("A1", None, "1")]], [("A1", "0", [0, 1])]),
        ([[("A1", None, "0"), ("A1", None, "0b")], [("A1", None, "1")]], [("A1", "0", [0, 1]), ("A1", "0b", [0])]),
        ([[], [("B1", "x", "1")], [("B1", "x", "2"), ("A1", None, "2")]], [("A1", "2", [2]), ("B1", "1", [1, 2])]),
    ],
    ids=["same", "other place", "no place first", "no place later", "twice", "not on the first"],
)
def test_findings_of_ranks(
    answers: list[bytes], of_ranks: list[list[tuple[str, str | None, str]]], expected: list[tuple[str, str, list[int]]]
) -> None:
    template = RankAnswer.of(answers[0])
    packed = {}
    for rank, findings in enumerate(of_ranks):
        whole = template.whole()
        run = replace(whole.run, ranks=[rank], shown_rank=rank)
        document = replace(whole, run=run, findings=found(rank, *findings), plan=[])
        packed[rank] = RankAnswer.packed(document, template.summary, [])
    for order in (packed, dict(reversed(packed.items()))):
        assert [(one.code, one.why, one.ranks) for one in merged(order).findings] == expected


@pytest.mark.parametrize(
    ("trains", "shown", "codes"),
    [
        ((False, True, True), 1, ["A1"]),
        ((True, False, True), 0, ["A0"]),
        ((False, False, True), 2, ["A2"]),
        ((False, False, False), 0, ["A0", "A1", "A2"]),
    ],
)
def test_of_processes_without_a_rank_those_that_train_count(
    answers: list[bytes], trains: tuple[bool, ...], shown: int, codes: list[str]
) -> None:
    template = RankAnswer.of(answers[0])
    assert template.summary is not None
    packed = {}
    for index, trained in enumerate(trains):
        whole = template.whole()
        run = replace(whole.run, ranks=[], shown_rank=None)
        fixes = found(0, (f"A{index}", None, "")) if index == shown or not trained else []
        document = replace(whole, run=run, verdict=f"process {index}", findings=fixes, plan=[])
        summary = replace(template.summary, rank=None, path=f"p{index}", trains=trained)
        packed[index] = RankAnswer.packed(document, summary, [])
    for order in (packed, dict(reversed(packed.items()))):
        merge = MergedRun()
        assert [merge.add(index, answer) for index, answer in order.items()] == [None] * 3
        result = document_of(merge)
        assert result is not None
        assert (result.verdict, [one.code for one in result.findings]) == (f"process {shown}", codes)
        left_out = [f"p{index}" for index, trained in enumerate(trains) if not trained and any(trains)]
        assert [warning.split(":")[0] for warning in merge.warnings] == left_out


@pytest.mark.parametrize(
    ("world_sizes", "known", "gone"),
    [
        ([8, None, 8], [1, 2, None, 6], "5 of 8 ranks are missing: no trace was read for ranks 0, 3-5, 7"),
        ([10**9], [7], "999,999,999 of 1,000,000,000 ranks are missing: no trace was read for ranks 0-6, 8-999999999"),
        ([2], [0, 9], "Rank 1 of 2 is missing: no trace was read for it"),
        (
            [24],
            range(0, 24, 2),
            "12 of 24 ranks are missing: no trace was read for ranks 1, 3, 5, 7, 9, 11, 13, 15, 17, 19 and more",
        ),
    ],
)  # fmt: skip
def test_missing_ranks(world_sizes: list[int | None], known: list[int | None], gone: str) -> None:
    assert missing_ranks(world_sizes, known) == gone


@pytest.mark.parametrize(
    ("world_sizes", "known"),
    [([4, 4], [0, 1, 2, 3]), ([None], [None]), ([None, None], [0, 5]), ([1], [0]), ([8], [None]), ([-3], [0])],
)
def test_nothing_is_missing(world_sizes: list[int | None], known: list[int | None]) -> None:
    assert missing_ranks(world_sizes, known) is None


@pytest.mark.parametrize("without_first", [False, True])
def test_of_many_ranks_only_the_lowest_has_its_whole_document(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_first: bool
) -> None:
    folder = Path(shutil.copytree(job, tmp_path / "job"))
    if without_first:
        (first,) = (file.path for file in analyze(str(folder), jobs=1).run.files if file.rank == 0)
        Path(first).unlink()
    whole = analyze(str(folder), jobs=1)
    monkeypatch.setattr(api, "MANY", 2)
    asked = list[bool]()
    monkeypatch.setattr(rank_analysis, "rank_document", lambda *args: asked.append(True) or rank_document(*args))
    assert analyze(str(folder), jobs=1).to_json() == whole.to_json()
    assert len(asked) == 1
    assert whole.rank_views


def test_spans_of_ranks_that_the_report_cannot_show_are_not_made(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int | None] = []

    def spans(facts: Facts, sharing: int = 1) -> Timeline:
        made.append(facts.trace.meta.rank)
        return spans_of_step(facts, sharing)

    monkeypatch.setattr("traceopt.document.rank_document.spans_of_step", spans)
    monkeypatch.setattr(api, "MANY", 2)
    monkeypatch.setattr("traceopt.document.merge.MOST_KEPT", 1)
    few = analyze(str(job)).to_json()
    few_made = len(made)
    monkeypatch.setattr(MergedRun, "most_exposed_us", math.inf)
    assert analyze(str(job)).to_json() == few
    assert few_made < len(made) - few_made == RANKS - 1  # the lowest one has more than spans
