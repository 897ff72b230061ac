"""CM003 slow-collective: find the late rank or the slow link."""

from __future__ import annotations

from typing import Any

import pytest
from support.collectives import NODE, RULES, after_compute, collective, machine
from support.findings import document_of
from support.planted import PlantedFault

from traceopt.rules.engine import prepare, run_rules
from traceopt.rules.registry import load_rules
from traceopt.testing import Machine, answer, assert_finds, assert_silent


class TestPlanted(PlantedFault):
    code = "CM003"


class TestLinkOfTheNode:
    def test_a_rate_far_below_it_is_slow(self) -> None:
        """100 MB at 17 GB/s: twice what an unknown network is asked for, but far below NVLink's 300 GB/s."""
        finding = assert_finds(RULES["CM003"], after_compute(20_000, 10_000, megabytes=100))
        assert "150 GB/s" in finding.why
        assert finding.saving is not None
        assert finding.saving.high_us == pytest.approx(10_000 - 50 - 175e6 / 150e3, rel=0.02)

    def test_comes_after_what_little_compute_can_hide(self) -> None:
        facts = after_compute(2_000, 10_000, megabytes=100).facts()
        first, *others = run_rules(prepare(load_rules(None)), facts).findings
        assert first.code == "CM001"
        assert "CM003" in [one.code for one in others]

    def test_a_small_collective_that_takes_milliseconds_waits_for_a_rank(self) -> None:
        finding = assert_finds(RULES["CM003"], after_compute(20_000, 5_000, megabytes=0.01))
        assert "so this rank waits for a late one." in finding.fix.text
        finding = assert_finds(RULES["CM003"], after_compute(20_000, 10_000, megabytes=100))
        assert "so a slow link is more likely than a rank that is late now and then." in finding.fix.text
        assert finding.saving is not None
        assert finding.saving.low_us == 0  # it may be a rank that is always late

    @pytest.mark.parametrize(
        "job",
        [
            {"world_size": 16},  # two nodes
            {"devices": NODE[:1]},  # one GPU is visible, so the node's size is unknown
            {"devices": [one | {"name": "NVIDIA A100-PCIE-40GB"} for one in NODE]},  # no NVLink
            {"devices": [one | {"name": "NVIDIA H100 NVL"} for one in NODE]},  # bridges join pairs only
        ],
    )
    def test_an_unknown_link_is_asked_for_less(self, job: dict[str, Any]) -> None:
        _, findings = answer(RULES["CM003"], after_compute(20_000, 10_000, megabytes=100, **job))
        assert findings == []

    def test_a_group_of_two_is_asked_for_its_own_links(self) -> None:
        """Without a switch, two GPUs share only some of their links: 10 GB/s is not far below 43."""
        args = {"megabytes": 100, "Group size": 2}
        _, findings = answer(RULES["CM003"], after_compute(20_000, 10_000, **args))
        assert findings == []

    def test_a_healthy_rate_is_not_slow(self) -> None:
        _, findings = answer(RULES["CM003"], after_compute(20_000, 1_500, megabytes=100))
        assert findings == []

    def test_a_pipeline_stage_may_wait(self) -> None:
        _, findings = answer(
            RULES["CM003"], after_compute(20_000, 10_000, kind="send", name="ncclDevKernel_SendRecv(x)")
        )
        assert findings == []

    def test_an_all_to_all_is_given_the_time_of_the_largest(self) -> None:
        """This rank puts little into every second call; the others may put in as much as it does into the first."""
        rank = machine()
        for _ in range(4):
            with rank.step():
                rank.launch(20_000)
                rank.synchronize()
                for megabytes in (500.0, 1.0):
                    collective(rank, 4_000, "all_to_all", megabytes)
                rank.synchronize()
        _, findings = answer(RULES["CM003"], rank)
        assert findings == []

    def test_an_all_gather_moves_what_the_others_put_in(self) -> None:
        """Each rank puts in 100 MB and receives 700: 4.7 ms at 150 GB/s, so 10 ms are not slow."""
        _, findings = answer(RULES["CM003"], after_compute(20_000, 10_000, kind="_allgather_base", megabytes=100))
        assert findings == []


def late_machine(waits_us: float, every: int = 1, group: str = "0") -> Machine:
    """Each step computes 20 ms while six collectives of 2 ms run; the first of every such step, of `group`, takes
    longer.
    """
    rank = machine(world_size=16)  # on two nodes, so the link is unknown
    for step in range(4):
        with rank.step():
            for bucket in range(6):
                late = not bucket and not step % every
                about = {"Process Group Name": group if late else "0"}
                collective(rank, 2_000 + (waits_us if late else 0), megabytes=100, **about)
            rank.launch(20_000)
            rank.synchronize()
    return rank


class TestWaitForAnotherRank:
    def test_of_a_call_that_takes_longer_than_others_of_its_size(self) -> None:
        """Those behind it are exposed in its place: 16 + 12 ms of collectives beside 20 of compute."""
        facts = late_machine(16_000).facts()
        [finding, *others] = run_rules(prepare(load_rules(None)), facts).findings
        assert (finding.code, finding.title, finding.confidence) == ("CM003", "Find the late rank", "medium")
        assert "take 9 times as long as most of their kind and size (1 per step)" in finding.why
        assert "CM001" not in [one.code for one in others]
        assert finding.saving is not None
        assert finding.saving.low_us == 0
        assert finding.saving.high_us == pytest.approx(8_000, rel=0.05)
        assert "Record all ranks" in finding.fix.text

    def test_a_wait_that_other_work_hides_costs_nothing(self) -> None:
        assert_silent(RULES["CM003"], late_machine(7_000).facts())

    def test_another_group_may_have_a_slower_link(self) -> None:
        assert not len(late_machine(16_000, group="1").facts().late_waits.rows)

    def test_a_wait_in_one_step_is_where_the_recordings_begin(self) -> None:
        assert_silent(RULES["CM003"], late_machine(16_000, every=4).facts())

    def test_overlap_is_promised_for_what_the_bytes_need_alone(self) -> None:
        """Of 22 exposed ms, 16 are the wait."""
        rank = machine(world_size=16)
        for _ in range(4):
            with rank.step():
                rank.launch(30_000)
                rank.synchronize()
                for waits_us in (16_000, 0, 0):
                    collective(rank, 2_000 + waits_us, megabytes=100)
                rank.synchronize()
        finding = assert_finds(RULES["CM001"], rank, saving_us=0.7 * 6_000)
        assert "Another 16.0 ms is the wait for another rank." in finding.why

    def test_the_verdict_says_so(self) -> None:
        assert document_of(late_machine(26_000).facts()).verdict.startswith(
            "The GPU waits for another rank for 47% of the step."
        )
