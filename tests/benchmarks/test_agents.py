"""The evaluation for assistants: readers read what the outputs say, and traceopt's outputs hold most right answers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.agents import readers
from benchmarks.agents.cases import REAL, SCENARIOS, Truth
from benchmarks.agents.evaluate import PAGE, Row, evaluate, section, table
from benchmarks.agents.readers import Answers
from benchmarks.marked import with_part

TRUTH = Truth("input", ("DL001",), "data.py:41", 8.0)
QUICK = ("healthy", "slow_loader", "misaligned_vocab", "launch_bound")


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return evaluate(QUICK, ())


def test_there_are_twenty_cases() -> None:
    assert len(SCENARIOS) + len(REAL) == 20


def test_right_answers_per_token(rows: list[Row]) -> None:
    score = {}
    for output in readers.READERS:
        mine = [row for row in rows if row.output == output]
        right = sum(len(row.right) for row in mine)
        score[output] = right / sum(len(row.asked) for row in mine), 1_000 * right / sum(row.tokens for row in mine)
    ours, others = list(score.values())[:2], list(score.values())[2:]
    assert min(share for share, _ in ours) > 0.8
    assert min(share for share, _ in ours) > max(share for share, _ in others)
    assert min(density for _, density in ours) > max(density for _, density in others)


def test_it_is_deterministic(rows: list[Row]) -> None:
    assert [row for row in rows if row.case == "slow_loader"] == evaluate(["slow_loader"], ())


def test_a_wrong_answer_is_not_counted() -> None:
    assert Answers("input", "DL001", ["train.py:1", "data.py:41"], 9.5).right(TRUTH) == ["limit", "fix", "line", "gain"]
    assert Answers("compute", "TC001", ["train.py:1"], 11.0).right(TRUTH) == []
    assert Answers("input", None).right(Truth("compute", ())) == ["fix"]
    assert Truth("compute", ()).questions == ["limit", "fix"]


def test_the_reader_of_the_table_looks_for_the_usual_signs() -> None:
    head, gpu = "Name  CPU total  CPU total %  # of Calls", "Name  CUDA total  CUDA total %  # of Calls"
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__  90.000ms  80.00%  10"
    kernel = "ampere_sgemm_128x64_tn  50.000ms  99.00%  25"
    assert readers.read_operator_table(f"{head}\n{loader}\n\n{gpu}\n{kernel}") == Answers("input", "DL001", [], 9.0)
    assert readers.read_operator_table(f"{head}\naten::mm  9.000ms  80.00%  10\n\n{gpu}\n{kernel}").fix == "TC001"


def test_the_page_says_which_answers_are_wrong(rows: list[Row]) -> None:
    rows = [replace(row, right=[one for one in row.right if one != "gain"]) for row in rows]
    text = section(rows)
    assert "\n".join(table(rows)) in text
    assert "`launch_bound`: gain" in text
    assert text in with_part(PAGE.read_text(), "agents/evaluate.py", text), "it has its place there"
