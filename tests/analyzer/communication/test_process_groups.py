"""Collectives by process group: members, what each is for, rates, and the ranks that come late to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.collectives import COMMUNICATION, NODE, collective
from traceopt.analyzer.communication.process_groups import ProcessGroup
from traceopt.api import analyze
from traceopt.result.sections.rank_rows import CommunicationGroup
from traceopt.testing import Machine

GROUPS = {"1": ("mesh_dp", (0, 2)), "2": ("mesh_tp", (0, 1)), "3": ("undefined", (0, 1, 2, 3))}
GROUPS_OF_RANK_1 = {"1": ("mesh_dp", (1, 3)), "2": ("mesh_tp", (0, 1)), "3": ("undefined", (0, 1, 2, 3))}


def rank(number: int, late_us: float = 0.0, groups: Any = None, groups_of: Any = GROUPS) -> Machine:
    """A rank of a mesh of 2 by 2. Each step sums in its tensor-parallel group, late, then in its data-parallel group,
    while a collective of all ranks runs on another stream.
    """
    declared = [{"pg_name": name, "pg_desc": about, "ranks": ranks} for name, (about, ranks) in groups_of.items()]
    job = {"backend": "nccl", "rank": number, "world_size": 4, "pg_config": declared if groups is None else groups}
    machine = Machine(deviceProperties=NODE, distributedInfo=job)
    start_us, last_us = 0.0, 400.0
    for _ in range(6):
        machine.now, step_us = start_us, start_us
        with machine.step():
            machine.launch(100)
            machine.now = step_us + 200 + late_us
            enters_us = machine.now + 8
            collective(machine, step_us + 500 - enters_us, **{"Process Group Name": "2", "Group size": 2})
            machine.now = step_us + 600
            collective(machine, last_us, megabytes=4.0, **{"Process Group Name": "1", "Group size": 2})
            collective(
                machine, 100, "allgather", stream=COMMUNICATION + 1, **{"Process Group Name": "3", "Group size": 4}
            )
            machine.synchronize()
            machine.now = step_us + 1_200
        start_us = machine.now
    return machine


def of_one(**options: Any) -> dict[str, ProcessGroup]:
    return {group.name: group for group in rank(0, **options).facts().process_groups}


def test_groups_have_their_members_and_what_they_are_for() -> None:
    found = of_one()
    assert {name: (one.parallelism, one.ranks, one.size) for name, one in found.items()} == {
        "1": ("data", (0, 2), 2),
        "2": ("tensor", (0, 1), 2),
        "3": (None, (0, 1, 2, 3), 4),
    }
    assert list(found) == ["1", "2", "3"]  # most exposed first
    assert [calls.name for calls in found["3"].by_kind] == ["all_gather"]


def test_each_group_has_its_own_bytes_and_bus_factor() -> None:
    found = of_one()
    assert found["1"].known_bytes == 6 * 4_000_000
    assert found["1"].link_bytes == found["1"].known_bytes  # an all-reduce of two ranks: 2 (n - 1) / n = 1
    assert found["3"].link_bytes == 3 * 6 * 1_000_000  # an all-gather of four: n - 1


def test_time_beside_another_group() -> None:
    found = of_one()
    assert found["2"].beside_ns == 0
    assert found["1"].beside_ns == found["3"].beside_ns == pytest.approx(6 * 100_000, abs=6_000)


def test_what_runs_while_a_group_communicates() -> None:
    rows = {(one.group.name, one.beside): one for one in rank(0).facts().group_overlaps}
    assert set(rows) == {("1", "3"), ("3", "1")}  # no compute meanwhile
    assert rows["1", "3"].ns == pytest.approx(6 * 100_000, abs=6_000)
    assert rows["1", "3"].of_ns == pytest.approx(6 * 400_000, abs=6_000)


@pytest.mark.parametrize("groups", [[], "none", [{"pg_name": 1}, 7, {"pg_name": "1", "pg_desc": 3, "ranks": ["x"]}]])
def test_a_header_that_declares_nothing_usable(groups: Any) -> None:
    found = of_one(groups=groups)
    assert {name: (one.parallelism, one.ranks, one.size) for name, one in found.items()} == {
        "1": (None, (), 2),
        "2": (None, (), 2),
        "3": (None, (), 4),
    }


def test_a_rank_waits_in_the_group_of_the_late_one(tmp_path: Path) -> None:
    for number, late_us in enumerate((0.0, 150.0, 0.0, 0.0)):
        groups = GROUPS if number % 2 == 0 else GROUPS_OF_RANK_1
        trace = rank(number, late_us, groups_of=groups)
        (tmp_path / f"rank{number}.pt.trace.json").write_bytes(trace.to_bytes())
    rows: dict[str, CommunicationGroup] = {row.name: row for row in analyze(str(tmp_path)).communication.groups}
    assert rows["2"].latest_rank == 1
    assert rows["2"].late_us_per_step == pytest.approx(150, abs=5)
    assert rows["1"].late_us_per_step == pytest.approx(0, abs=5)


def test_of_very_many_groups_the_longest_are_kept() -> None:
    """Each takes a pass over all collectives, and the file may be an attack."""
    machine = Machine(deviceProperties=NODE, distributedInfo={"rank": 0, "world_size": 4})
    with machine.step():
        for number in range(150):
            collective(machine, 10 + number, **{"Process Group Name": str(number), "Group size": 2})
        machine.synchronize()
    names = {group.name for group in machine.facts().process_groups}
    assert names == {str(number) for number in range(50, 150)}
