"""`traceopt compare --against`: when the answer is certain, and the whole command on a script without torch."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from machine import Machine, a_change, a_run
from projects import FASTER, SCRIPT, Project, refused, wait_for_the_hanging_run

from traceopt.try_script.two_sides import LEAST_PAIRS, is_certain
from traceopt.trying.rounds import MOST_ROUNDS, Rounds, measure

TRACE = Path(__file__).parents[2] / "fixtures" / "traces" / "slow_loader.json.gz"


def rounds_on(noise: float, seed: int, factor: float, *limits: float) -> Rounds:
    machine = Machine(noise, seed, other=factor)
    return measure(
        machine.run,
        [],
        [a_change("other")],
        wanted_us=lambda _: None,
        time_left=lambda: 600 - machine.now_s,
        enough=lambda rounds: is_certain(rounds, limits),
    )


@pytest.mark.parametrize("seed", range(20))
def test_5_percent_more_is_found_in_5_pairs_and_an_unchanged_script_is_the_same(seed: int) -> None:
    """On a machine whose runs differ by half a percent."""
    slower, same = rounds_on(0.005, seed, 1.05), rounds_on(0.005, seed, 1.0)
    assert slower.change().verdict == "slower"
    assert LEAST_PAIRS <= len(slower.before) <= 5
    assert same.change().verdict == "within_noise"
    assert len(same.before) < MOST_ROUNDS


def test_a_gate_asks_for_more_pairs_near_its_limit() -> None:
    near, far = rounds_on(0.01, 1, 1.06, 0.05), rounds_on(0.01, 1, 1.2, 0.05)
    assert len(far.before) == LEAST_PAIRS < len(near.before)


def test_disturbed_rounds_settle_nothing() -> None:
    busy = [a_run(1000.0, wait) for wait in (0.0, 0.5, 0.5)]
    assert not is_certain(Rounds(busy, [a_run(2000.0)] * 3), [])


def test_the_command_tells_a_slower_working_tree(project: Project) -> None:
    before = project.script.read_text()
    project.script.write_text(before.replace(FASTER[0], "STEP_US = 1100.0"))
    options = ("--against", "HEAD", "--fail-on", "step_time=+5%", "--json", "-")
    with project.start(*options, command="compare", TRACE=str(TRACE)) as process:
        out, err = process.communicate(timeout=120)
    project.script.write_text(before)
    assert process.returncode == 1, err
    found = json.loads(out)
    assert found["step"]["verdict"] == "slower"
    assert found["step"]["change_share"] == pytest.approx(0.1, abs=0.01)
    assert {run["label"] for run in found["base"]["runs"]} == {"commit HEAD"}
    assert [gate["status"] for gate in found["gates"]] == ["failed"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--against", "HEAD", "--in-turn"), "leave out"),
        (("--against", "nothing-of-this-name"), "nothing-of-this-name"),
        ((), "expected BASE and HEAD"),
    ],
)
def test_what_cannot_be_compared_is_one_line(project: Project, options: tuple[str, ...], reason: str) -> None:
    assert reason in refused(project, *options, SCRIPT, command="compare")


def test_an_interruption_before_any_pair_says_so(project: Project) -> None:
    with project.start("--against", "HEAD", command="compare", TRACE=str(TRACE), HANG="1") as process:
        wait_for_the_hanging_run(project)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted before both sides were timed" in err
