"""Ranks are recorded each on its own; DataLoader workers and forked children are left alone."""

from __future__ import annotations

import pytest
from runs import Run


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


@pytest.mark.parametrize("how", [pytest.param(h, marks=pytest.mark.run("processes.py", h)) for h in ("fork", "spawn")])
def test_loader_workers_are_timed_and_not_recorded(run: Run, how: str) -> None:
    """Workers are started while a recording goes on: three epochs of ten steps, and cycles at 5-12 and 15-18."""
    assert (run.code, run.stdout) == (0, "watched 0.0\n")
    assert [trace.cycle for trace in run.traces] == ["timing", "detail"]
    metadata = run.cycle("detail").metadata
    [loader] = metadata["loaders"]
    assert (loader["num_workers"], loader["batch_size"], loader["iterators"]) == (2, 4, 3)
    assert loader["start_method"] == how
    assert len(metadata["loader_workers"]) == 6
    for worker in metadata["loader_workers"]:
        assert worker["workers"] == 2
        assert 20_000 < worker["batch_us"] < 200_000
        assert worker["cpu_us"] > 0


@pytest.mark.run("processes.py", "forks")
def test_a_forked_child_ends_as_it_would_and_leaves_nothing(run: Run) -> None:
    assert (run.code, run.stdout) == (0, "watched 0.0\n")
    assert len(run.traces) == 2
    assert len({trace.metadata["pid"] for trace in run.traces}) == 1


@pytest.mark.run("processes.py", "pool")
def test_a_pool_of_spawned_processes_finds_main(run: Run) -> None:
    assert run.stdout == "[1, 4, 9]\nwatched 0.0\n"
    assert len(run.traces) == 2
