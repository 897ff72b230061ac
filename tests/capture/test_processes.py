"""Ranks are recorded each on its own; DataLoader workers and forked children are left alone."""

from __future__ import annotations

import pytest
from runs import Run, Trace


@pytest.mark.run("torchrun", "--nproc-per-node", "2", "--standalone", "ranks.py")
def test_each_rank_of_torchrun_writes_its_own_files(run: Run) -> None:
    assert run.code == 0, run.stderr
    assert run.stdout == "both done\n"
    assert sorted((trace.metadata["rank"], trace.cycle) for trace in run.traces) == [
        (0, "detail"), (0, "timing"), (1, "detail"), (1, "timing"),
    ]  # fmt: skip
    for trace in run.traces:
        assert f"_rank{trace.metadata['rank']}." in trace.path.name
        assert trace.metadata["environment"]["world_size"] == 2
        [model] = trace.metadata["models"]
        assert model["class"].endswith("DistributedDataParallel")
        assert trace.document["distributedInfo"]["rank"] == trace.metadata["rank"]


@pytest.mark.run("processes.py", "fork", "3")
def test_forked_workers_are_timed_and_not_recorded(run: Run) -> None:
    """Those of the second epoch are forked while a recording goes on: steps 5 to 12 of epochs of ten steps."""
    assert (run.code, run.stdout) == (0, "watched 0.0\n")
    assert [trace.cycle for trace in run.traces] == ["timing", "detail"]
    check_workers(run.cycle("detail"), "fork", iterators=3)


@pytest.mark.run("processes.py", "spawn", "1", options=("--preset", "quick"))
def test_spawned_workers_are_timed_and_not_recorded(run: Run) -> None:
    assert (run.code, run.stdout) == (0, "watched 0.0\n")
    assert [trace.cycle for trace in run.traces] == ["timing", "detail"]
    check_workers(run.cycle("detail"), "spawn", iterators=1)


def check_workers(trace: Trace, start_method: str, iterators: int) -> None:
    [loader] = trace.metadata["loaders"]
    assert (loader["num_workers"], loader["batch_size"], loader["iterators"]) == (2, 4, iterators)
    assert loader["start_method"] == start_method
    workers = trace.metadata["loader_workers"]
    assert len(workers) == 2 * iterators
    for worker in workers:
        assert worker["workers"] == 2
        assert 20_000 < worker["batch_us"] < 200_000
        assert worker["cpu_us"] > 0


@pytest.mark.run("processes.py", "children", "3")
def test_children_of_the_script_end_as_they_would_and_leave_nothing(run: Run) -> None:
    """Some are forked while a recording goes on; one is spawned and must find the functions of __main__."""
    assert (run.code, run.stdout) == (0, "[1, 4, 9]\n")
    assert [trace.cycle for trace in run.traces] == ["timing", "detail"]
    assert len({trace.metadata["pid"] for trace in run.traces}) == 1
