"""The course of `traceopt tune`, on a machine whose runs take no time: rounds, searched values, when it ends."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from machine import Machine, a_change
from projects import FASTER, Project, copies, wait_for_the_hanging_run

from traceopt.trying.changes import Change
from traceopt.trying.expectation import Recording
from traceopt.trying.session import Session
from traceopt.trying.tuning.course import Plan, tune
from traceopt.trying.tuning.halving import best_of
from traceopt.trying.tuning.searched import Search, searches

ORIGINAL = Change("original", "revision", "", "revision", environment={"what": "original"})


def named(name: str) -> Change:
    return Change(name, "environment", name, "environment", environment={name: "1"})


def tuned(machine: Machine, plans: Sequence[Plan], *, budget_s: float = 600.0) -> tuple[Session, int]:
    """The session after a tuning whose recordings offer these plans, and the number of recordings."""
    recorded = 0

    def make_plan(number: int) -> Plan:
        nonlocal recorded
        recorded = number
        return plans[min(number, len(plans)) - 1]

    session = Session(machine.run, budget_s=budget_s, clock=lambda: machine.now_s)
    tune(session, machine.run, make_plan, list, [], ORIGINAL)
    return session, recorded


def test_the_next_bottleneck_shows_in_the_next_round() -> None:
    first, second = named("a"), named("b")
    plans = [Plan(None, [first]), Plan(None, [first, second]), Plan(None, [first, second])]
    session, recorded = tuned(Machine(original=1.0, a=0.7, b=0.8), plans)
    rows = [(row.tuning_round, row.name, row.verdict, row.on_top_of) for row in session.tried]
    assert rows[:2] == [(1, "a", "keep", []), (2, "b", "keep", ["a"])]
    assert recorded == 3, "the last recording offers nothing new"
    total = session.tried[-1]
    assert (total.kind, total.tuning_round) == ("all", None)
    assert total.gain_share == pytest.approx(1 - 0.7 * 0.8, abs=0.01)


def test_a_prediction_below_the_noise_is_not_tried() -> None:
    plan = Plan(Recording(1000.0), [a_change("small", 5.0)])
    session, recorded = tuned(Machine(small=0.9), [plan])
    assert (session.tried, recorded) == ([], 1)


def test_the_best_value_is_found_measured_and_kept() -> None:
    values = [named(name) for name in ("one", "two", "four", "eight")]
    plan = Plan(None, searches=[Search("threads", values)])
    session, _ = tuned(Machine(noise=0.002, original=1.0, one=0.9, two=0.6, four=0.62, eight=1.2), [plan])
    assert [(row.name, row.verdict) for row in session.tried][:1] == [("two", "keep")]


def test_no_value_is_tried_further_if_none_is_faster() -> None:
    machine = Machine(one=1.1, two=1.0)
    assert best_of(machine.run, [], [named("one"), named("two")], lambda: 1.0) is None
    assert machine.now_s == 4.0, "two runs for each value"
    assert best_of(machine.run, [], [named("one")], lambda: 0.0) is None


def test_a_search_that_finds_nothing_says_so() -> None:
    session, _ = tuned(Machine(one=1.1), [Plan(None, searches=[Search("threads", [named("one")])])])
    [row] = session.tried
    assert (row.name, row.verdict) == ("values of threads", "no_gain")
    assert row.reason == "none was faster in a run next to the script without it: one"


def test_what_is_searched() -> None:
    on_cpu = searches(cores=6, gpu=False, has_loader=True, numerics=False)
    assert [search.name for search in on_cpu] == ["the data loader", "threads"]
    assert [value.name for value in on_cpu[1].values] == [f"OMP_NUM_THREADS={count}" for count in (1, 2, 4, 6)]
    names = [search.name for search in searches(cores=1, gpu=True, has_loader=False, numerics=True)]
    assert names == ["the allocator", "cuDNN", "matmul precision"]


def test_the_budget_ends_the_tuning() -> None:
    session, recorded = tuned(Machine(a=0.7, b=0.7), [Plan(None, [named("a")]), Plan(None, [named("b")])], budget_s=3)
    assert [(row.name, row.verdict) for row in session.tried] == [("a", "keep")]
    assert recorded == 1


def test_the_command(project: Project, tmp_path: Path) -> None:
    """The stand-in leaves no trace, so there is no plan: the changes of the user are tried, and kept as one diff."""
    faster = project.diff("faster.diff", *FASTER)
    out = tmp_path / "kept.diff"
    options = ("--patch", str(faster), "--env", "SLOWDOWN=0.8", "--patch-out", str(out), "--budget", "1")
    rows = project.rows(*options, command="tune")
    assert [(row["tuning_round"], row["kind"], row["verdict"]) for row in rows] == [
        (1, "patch", "keep"),
        (1, "environment", "keep"),
        (None, "all", "keep"),
    ]
    assert rows[2]["gain_share"] == pytest.approx(1 - 0.7 * 0.8, abs=0.02)
    assert [line for line in out.read_text().splitlines() if line[0] in "+-"][2:] == [f"-{FASTER[0]}", f"+{FASTER[1]}"]


def test_what_was_proven_is_kept_after_a_signal(project: Project, tmp_path: Path) -> None:
    faster = project.diff("faster.diff", *FASTER)
    out = tmp_path / "kept.diff"
    options = ("--patch", str(faster), "--env", "HANG=1", "--patch-out", str(out))
    with project.start(*options, command="tune") as process:
        wait_for_the_hanging_run(project)
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 143
    assert f"+{FASTER[1]}" in out.read_text()
    assert not copies(project)
