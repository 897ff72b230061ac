"""Ranks replayed together reproduce the recorded steps, and a change on one rank affects the others."""

from __future__ import annotations

import io
from statistics import median

import numpy as np
import pytest

from fixtures.generate import GeneratedTrace, generate_ranks
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.ranks.joint_replay import Meetings, Ranks, _JointPass
from traceopt.analyzer.reading.trace_reader import read_trace
from traceopt.analyzer.replay.changes import Change, RemoveHost, ScaleWork
from traceopt.analyzer.replay.retime import Pass, Timing
from traceopt.analyzer.vocabulary.causes.table import COMMUNICATION, DATA_LOADING

NOTHING: list[list[Change]] = [[], []]


def read(traces: list[GeneratedTrace]) -> Ranks:
    return Ranks([Facts(read_trace(io.BytesIO(trace.to_bytes()), f"rank{trace.rank}")) for trace in traces])


def step_ms(ranks: Ranks, changes: list[list[Change]]) -> list[float]:
    return [replayed.step_ns / 1e6 for replayed in ranks.replay(changes)]


@pytest.mark.parametrize("scenario", ["straggler", "load_imbalance", "exposed_allreduce", "small_collectives"])
def test_without_a_change_every_rank_has_its_recorded_step(scenario: str) -> None:
    ranks = read(generate_ranks(scenario))
    assert ranks.meetings > 10
    measured = [facts.step_ns / 1e6 for facts in ranks.facts]
    assert step_ms(ranks, NOTHING) == pytest.approx(measured, rel=0.01)


def test_clocks_that_are_apart_change_nothing() -> None:
    plain, skewed = (read(generate_ranks("straggler", clock_skew_us=skew)) for skew in (0.0, 5e6))
    assert step_ms(plain, NOTHING) == pytest.approx(step_ms(skewed, NOTHING), rel=0.001)


def test_the_others_no_longer_wait_when_the_late_rank_is_mended() -> None:
    traces = generate_ranks("straggler")
    ranks = read(traces)
    late = ranks.facts[1]
    fixed: list[list[Change]] = [[], [RemoveHost(late.flow_areas[DATA_LOADING])]]
    before, after = ranks.replay(NOTHING), ranks.replay(fixed)
    fixed_ms = median(traces[0].planted.fixed_step_us) / 1e3
    assert [one.step_ns / 1e6 for one in after] == pytest.approx([fixed_ms] * 2, rel=0.02)
    waited, waits = (ranks.facts[0].parts_of(one[0])[COMMUNICATION] for one in (before, after))
    assert waits < 0.5 * waited
    alone_ms = Ranks([ranks.facts[0]]).replay([[]])[0].step_ns / 1e6
    assert alone_ms > 1.2 * fixed_ms  # a rank replayed alone cannot know


def test_a_rank_that_gets_slower_holds_up_the_others() -> None:
    ranks = read(generate_ranks("exposed_allreduce"))
    slower: list[list[Change]] = [[], [ScaleWork(ranks.facts[1].gpu.is_compute, 2.0)]]
    first, second = step_ms(ranks, slower)
    assert first == pytest.approx(second, rel=0.02)
    assert first > 1.5 * step_ms(ranks, NOTHING)[0]


def test_faster_links_make_collectives_shorter_but_not_the_waiting_in_them() -> None:
    ranks = read(generate_ranks("straggler"))
    faster: list[list[Change]] = [[ScaleWork(facts.gpu.is_communication, 0.01)] for facts in ranks.facts]
    waited = step_ms(ranks, NOTHING)[0] - step_ms(ranks, faster)[0]
    assert -0.001 <= waited < 2.0  # nothing of the 5 ms that the late rank costs is saved


def test_ranks_that_come_to_two_groups_in_different_orders_both_arrive() -> None:
    empty = np.zeros(0, np.int64)
    done = Timing(empty, empty, empty, empty, empty)

    def visits(*events: int) -> Pass:
        now = 0
        for event in events:
            now = yield 0, event, now
        return done

    met = Meetings(np.array([0, 1]), np.array([0, 1]), np.array([0, 0]))
    together = _JointPass([visits(0, 1), visits(1, 0)], [met, met], [10, 10], [0, 0])
    assert together.run() == [done, done]
