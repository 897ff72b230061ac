"""Each rank is recorded on its own; DataLoader workers and forked children are not recorded."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from runs import PORT, TORCH, Run, Trace

ACCELERATE = ("accelerate", "launch", "--multi_gpu", "--num_processes", "2", "--main_process_port", PORT)
ZERO_STAGE = "2" if TORCH > (2, 1) else "0"  # gloo of 2.1 cannot gather what ZeRO has split
PLAIN = ("--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no")  # otherwise it warns about each

# `make crowd` also has spawned ranks.
LAUNCHED = [
    ("torchrun", "--nproc-per-node", "2", "--standalone", "ranks.py"),
    (*ACCELERATE, *PLAIN, "ranks.py"),  # the flag is for several processes, with a GPU or without
    ("ranks.py", "fork"),
]


@pytest.mark.parametrize("words", [pytest.param(words, marks=pytest.mark.run(*words)) for words in LAUNCHED])
def test_each_rank_writes_its_own_files(run: Run, words: tuple[str, ...]) -> None:
    assert words
    assert run.code == 0, run.stderr
    assert run.stdout == "both done\n"
    check_ranks(run, fetches=1)
    for trace in run.traces:
        [model] = trace.metadata["models"]
        assert model["class"].endswith("DistributedDataParallel")


def check_ranks(run: Run, fetches: int) -> None:
    assert sorted((trace.metadata["rank"], trace.cycle) for trace in run.traces) == [
        (0, "detail"), (0, "timing"), (1, "detail"), (1, "timing"),
    ]  # fmt: skip
    for trace in run.traces:
        assert f"_rank{trace.metadata['rank']}." in trace.path.name
        assert trace.metadata["environment"]["world_size"] == 2
        assert trace.document["distributedInfo"]["rank"] == trace.metadata["rank"]
        assert list(trace.steps) == ([8, 9, 10, 11, 12] if trace.cycle == "timing" else [17, 18])
        for step in trace.steps.values():
            assert (step["fetch"], step["update"]) == (fetches, 1)


@pytest.mark.skipif(find_spec("deepspeed") is None, reason="DeepSpeed is not installed; make test-torch has it")
@pytest.mark.run("deepspeed", "--num_gpus", "2", "--master_port", PORT, "deepspeed_ranks.py", ZERO_STAGE)
def test_the_launcher_of_deepspeed(run: Run) -> None:
    assert run.code == 0, run.stderr
    check_ranks(run, fetches=2)


@pytest.mark.run("bash", "run.sh")
def test_a_shell_script(run: Run) -> None:
    assert (run.code, run.stdout) == (4, "before\nafter 0\n")
    assert [trace.cycle for trace in run.traces] == ["timing", "detail"]


@pytest.mark.run("processes.py", "fork", "3")
def test_forked_workers_are_timed_and_not_recorded(run: Run) -> None:
    """Workers of the second epoch are forked during a recording: steps 5 to 12, with epochs of ten steps."""
    assert (run.code, run.stdout) == (0, "watched 0.0\n")
    assert [trace.cycle for trace in run.traces] == ["timing", "detail"]
    check_workers(run.cycle("detail"), "fork", iterators=3)


QUICK = ("--preset", "quick")


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(method, marks=pytest.mark.run("processes.py", method, "1", options=QUICK))
        for method in ("spawn", "forkserver")
    ],
)
def test_other_workers_are_timed_and_not_recorded(run: Run, method: str) -> None:
    assert (run.code, run.stdout) == (0, "watched 0.0\n")
    assert [trace.cycle for trace in run.traces] == ["timing", "detail"]
    check_workers(run.cycle("detail"), method, iterators=1)


def check_workers(trace: Trace, start_method: str, iterators: int) -> None:
    [loader] = trace.metadata["loaders"]
    assert (loader["num_workers"], loader["batch_size"], loader["iterators"]) == (2, 4, iterators)
    assert loader["start_method"] == start_method
    workers = trace.metadata["loader_workers"]
    assert len(workers) == 2 * iterators
    for worker in workers:
        assert (worker["workers"], worker["loader"], worker["dataset"]) == (2, 0, "__main__.Slow")
        assert 20_000 < worker["batch_us"] < 200_000
        assert worker["cpu_us"] > 0


@pytest.mark.run("processes.py", "children", "3")
def test_children_of_the_script_end_as_they_would_and_leave_nothing(run: Run) -> None:
    """Some are forked during a recording; one is spawned and must find the functions of __main__."""
    assert (run.code, run.stdout) == (0, "[1, 4, 9]\n")
    assert [trace.cycle for trace in run.traces] == ["timing", "detail"]
    assert len({trace.metadata["pid"] for trace in run.traces}) == 1
