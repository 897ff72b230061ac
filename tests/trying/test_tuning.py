"""The course of `traceopt tune`, on a machine whose runs take no time: rounds, searched values, when it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from machine import Machine, a_change, a_run
from msgspec.structs import replace
from projects import FASTER, Project, copies, wait_for_the_hanging_run

from traceopt.api import analyze
from traceopt.reports.words.comparing.trial_words import notes
from traceopt.result.trial import TriedChange
from traceopt.try_script.tuning import is_known
from traceopt.trying.changes import Change
from traceopt.trying.expectation import Recording
from traceopt.trying.measured_run import Failure, MeasuredRun
from traceopt.trying.rounds import Rounds
from traceopt.trying.session import Session
from traceopt.trying.tuning.course import Plan, _in_order, tune
from traceopt.trying.tuning.halving import best_of
from traceopt.trying.tuning.searched import Search, StepTimes, searches, step_times

TRACES = Path(__file__).parents[2] / "fixtures" / "traces"
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


def test_the_highest_expected_gain_for_its_runs_comes_first_but_after_what_it_needs() -> None:
    small, large, needy = (a_change(name, us) for name, us in (("small", 50.0), ("large", 200.0), ("needy", 300.0)))
    compiled = replace(a_change("compiled", 240.0), switches={"compile": {}})
    changes = [compiled, replace(needy, needs=("small",)), small, large]
    assert [change.name for change in _in_order(changes)] == ["large", "compiled", "small", "needy"]


@pytest.mark.parametrize(("factor", "verdict"), [(1.3, "slower"), (0.7, "keep"), (1.0, "no_gain")])
def test_a_tuning_measures_no_longer_than_until_it_is_known_whether_a_change_is_kept(
    factor: float, verdict: str
) -> None:
    """Nothing was predicted: `traceopt try` measures until the gain itself is known."""

    def rounds(enough: Callable[[Rounds], bool]) -> int:
        machine = Machine(0.02, a=factor)
        session = Session(machine.run, budget_s=600.0, enough=enough, clock=lambda: machine.now_s)
        session.try_all([named("a")])
        assert session.tried[0].verdict == verdict
        return len(session.tried[0].rounds)

    assert rounds(is_known) < rounds(lambda known: known.settled)


def test_the_best_value_is_found_measured_and_kept() -> None:
    values = [named(name) for name in ("one", "two", "four", "eight")]
    plan = Plan(None, searches=[Search("threads", values)])
    session, _ = tuned(Machine(noise=0.002, original=1.0, one=0.9, two=0.6, four=0.62, eight=1.2), [plan])
    assert [(row.name, row.verdict) for row in session.tried][:1] == [("two", "keep")]
    assert "Kept without a patch, for you to make: two." in notes(session.tried), "the table may cut the name"


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


def test_a_search_whose_values_all_fail_says_why() -> None:
    def run(sides: Sequence[Sequence[Change]], /) -> list[MeasuredRun | Failure | None]:
        return [Failure("it ended with exit code 1") if side else a_run(1000.0) for side in sides]

    session = Session(run, budget_s=600.0)
    tune(session, run, lambda _: Plan(None, searches=[Search("modes", [named("a"), named("b")])]), list, [], ORIGINAL)
    [row] = session.tried
    assert (row.verdict, row.reason) == ("fails", "a, b: it ended with exit code 1")


def names_of(times: StepTimes, *, gpu: bool = False, compiled: bool = False, numerics: bool = False) -> list[str]:
    return [search.name for search in searches(times, cores=6, gpu=gpu, compiled=compiled, numerics=numerics)]


def test_what_is_searched() -> None:
    assert names_of(StepTimes(1000.0)) == ["threads", "torch.compile"]
    convolving = StepTimes(1000.0, convolutions=500.0)
    assert names_of(convolving, compiled=True) == ["the memory format", "threads"]
    assert names_of(convolving, compiled=True, gpu=True, numerics=True) == [
        "the memory format",
        "cuDNN",
        "the allocator",
        "matmul precision",
    ]
    assert "gradient buckets" in names_of(StepTimes(1000.0, exposed_reductions=100.0))


def test_the_setting_that_can_gain_most_for_its_runs_comes_first() -> None:
    assert names_of(StepTimes(1000.0, loading=950.0))[0] == "the data loader"
    assert names_of(StepTimes(1000.0, loading=50.0, convolutions=20.0))[0] == "threads"


def test_times_that_settings_can_shorten() -> None:
    convolving, reducing = (analyze([str(TRACES / name)]) for name in ("h100/nchw_conv", "exposed_allreduce"))
    times = step_times(convolving)
    assert 0.2 * times.whole < times.convolutions < 0.4 * times.whole
    assert step_times(reducing).exposed_reductions > 0 == times.exposed_reductions


def test_workers_are_also_tried_with_the_threads_that_they_leave() -> None:
    [loader, *_] = searches(StepTimes(1000.0, 950.0), cores=6, gpu=False, compiled=True, numerics=False)
    pairs = [(one.switches["loader_workers"], one.environment.get("OMP_NUM_THREADS")) for one in loader.values]
    assert {(2, "4"), (4, "2"), (6, "1"), (6, None)} <= set(pairs)
    [on_gpu, *_] = searches(StepTimes(1000.0, 950.0), cores=6, gpu=True, compiled=True, numerics=False)
    assert not any(one.environment for one in on_gpu.values)


def test_cuda_graphs_are_only_for_gpus() -> None:
    def modes(gpu: bool) -> list[object]:
        found = searches(StepTimes(1000.0), cores=1, gpu=gpu, compiled=False, numerics=False)
        values = next(search.values for search in found if search.name == "torch.compile")
        return [value.switches["compile"] for value in values]

    assert modes(gpu=False) == [{}, {"mode": "max-autotune"}, {"dynamic": True}]
    assert {"mode": "reduce-overhead"} in modes(gpu=True)


def test_a_setting_that_can_shorten_less_than_the_noise_is_not_searched() -> None:
    small = Search("gradient buckets", [named("a")], 5.0)
    session, _ = tuned(Machine(a=0.5), [Plan(Recording(1000.0), searches=[small])])
    [row] = session.tried
    assert (row.name, row.verdict) == ("values of gradient buckets", "not_tried")
    assert row.reason == "it can shorten 0.5% of the step at most"


def compiled_in(seconds: float, run_steps: int | None) -> TriedChange:
    """A change whose first steps take so much longer, and which then saves 200 us in a step of 1 ms."""

    def run(sides: Sequence[Sequence[Change]], /) -> list[MeasuredRun]:
        return [replace(a_run(800.0), extra_us=seconds * 1e6) if side else a_run(1000.0) for side in sides]

    session = Session(run, budget_s=600.0, run_steps=run_steps)
    session.try_all([named("compiled")])
    return session.tried[0]


def test_what_compiling_takes_is_counted_against_the_run() -> None:
    long, short, unknown = compiled_in(30.0, 200_000), compiled_in(30.0, 100_000), compiled_in(30.0, None)
    assert [row.verdict for row in (long, short, unknown)] == ["keep", "no_gain", "keep"]
    assert unknown.reason == "its first steps take 30.0 s longer, which 150,000 steps win back"
    assert short.reason == f"{unknown.reason}; the run has 100,000"
    assert compiled_in(0.5, 10).reason is None, "as little as the noise of first steps"


def test_the_value_with_the_shortest_run_wins_not_the_one_with_the_shortest_step() -> None:
    def run(sides: Sequence[Sequence[Change]], /) -> list[MeasuredRun]:
        steps = {"": 1000.0, "default": 800.0, "max-autotune": 700.0}
        names = [side[-1].name if side else "" for side in sides]
        extra_us = {"max-autotune": 6e6}
        used = ("compile",)
        return [replace(a_run(steps[one]), extra_us=extra_us.get(one, 0.0), switches_used=used) for one in names]

    values = [replace(named(name), switches={"compile": {}}) for name in ("default", "max-autotune")]
    found = [best_of(run, [], values, lambda: 1.0, steps) for steps in (None, 1_000_000, 10_000)]
    assert [one and one.name for one in found] == ["max-autotune", "max-autotune", "default"]


def test_the_budget_ends_the_tuning() -> None:
    session, recorded = tuned(Machine(a=0.7, b=0.7), [Plan(None, [named("a")]), Plan(None, [named("b")])], budget_s=3)
    assert [(row.name, row.verdict) for row in session.tried] == [("a", "keep")]
    assert recorded == 1


def test_nothing_is_begun_that_the_budget_cannot_hold() -> None:
    """Two rounds of two runs take 4 s: with 3 s left, neither a change nor what was kept together is measured."""
    machine = Machine(a=0.7, b=0.7, c=0.7)
    rows = machine.tried(named("a"), named("b"), named("c"), budget_s=11.0)
    assert [row.verdict for row in rows] == ["keep", "keep", "not_tried"]
    assert machine.now_s <= 11.0


def test_no_recording_is_begun_that_the_budget_cannot_hold() -> None:
    machine = Machine(original=1.0, a=0.7)
    recorded = []
    session = Session(machine.run, budget_s=30.0, clock=lambda: machine.now_s)

    def make_plan(number: int) -> Plan:
        recorded.append(number)
        return Plan(None, [named("a")])

    tune(session, machine.run, make_plan, list, [], ORIGINAL, recording_s=30.0)
    assert recorded == [1]


def test_the_whole_gain_is_measured_although_the_budget_is_spent() -> None:
    """Time for one change is left for it. What was not reached is named."""
    machine = Machine(original=1.0, a=0.7, b=0.7)
    session = Session(machine.run, budget_s=8.0, longest_s=4.0, clock=lambda: machine.now_s)
    plan = Plan(None, [named("a")], searches=[Search("threads", [named("b")])])
    tune(session, machine.run, lambda _: plan, list, [], ORIGINAL)
    assert [(row.name, row.verdict) for row in session.tried] == [
        ("a", "keep"),
        ("values of threads", "not_tried"),
        ("all kept", "keep"),
    ]


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
