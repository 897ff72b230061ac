"""Traces of different jobs are told apart, those of one job's ranks are not."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import traceopt
from traceopt.analyzer.recordings.runs import pick_run
from traceopt.api import analyze, find_runs
from traceopt.errors import InputError

NOON_S = 1_770_000_000


def write(
    path: Path,
    *,
    rank: int | None = None,
    world_size: int | None = None,
    start_s: float | None = NOON_S,
    process: int = 1,
    **more: Any,
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    document: dict[str, Any] = {"schemaVersion": 1, **more}
    if rank is not None:
        document["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": world_size, "pg_config": [{}]}
    if start_s is not None:
        document["baseTimeNanoseconds"] = int(start_s * 1e9)
    document["traceEvents"] = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": process, "tid": 1, "ts": 5.0 + 100 * i, "dur": 50.0}
        for i in range(5)
    ]
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    return path


def runs(folder: Path) -> dict[str, list[str]]:
    return {run.name: [Path(one.source.place).name for one in run.recordings] for run in find_runs(str(folder))}


def test_ranks_are_one_run(tmp_path: Path) -> None:
    for rank in range(4):
        write(tmp_path / f"node{rank}" / "trace.json.gz", rank=rank, world_size=4, start_s=NOON_S + 30 * rank)
    assert list(map(len, runs(tmp_path).values())) == [4]
    assert "different runs" not in " ".join(analyze(str(tmp_path)).warnings)


def test_files_of_several_processes_that_differ_in_a_number_are_ranks(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / f"trace{number}.json.gz", process=7 + number)
    assert len(runs(tmp_path)) == 1


@pytest.mark.parametrize(
    ("names", "more"),
    [
        (("eager", "compiled"), {}),
        (("trace1", "trace2"), {"process": 7}),  # one process wrote both
        (("trace1", "trace2"), {"start_s": None}),
    ],
)
def test_other_files_without_a_rank_are_different_runs(
    names: tuple[str, str], more: dict[str, Any], tmp_path: Path
) -> None:
    for number, name in enumerate(names):
        write(tmp_path / f"{name}.json.gz", **{"process": number, **more})
    assert sorted(runs(tmp_path)) == sorted(names)


def test_what_is_no_trace_is_no_run(tmp_path: Path) -> None:
    write(tmp_path / "trace.json.gz")
    (tmp_path / "settings.json").write_text("{}")
    assert len(runs(tmp_path)) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"rank": 0, "world_size": 2}, {"rank": 0, "world_size": 2}),  # the same rank twice
        ({"rank": 0, "world_size": 2}, {"rank": 1, "world_size": 8}),
        ({"rank": 0, "world_size": 2}, {"rank": 1, "world_size": 2, "start_s": NOON_S + 86_400}),
        ({}, {"start_s": NOON_S + 300}),
    ],
)
def test_other_times_ranks_and_sizes_are_other_runs(one: dict[str, Any], other: dict[str, Any], tmp_path: Path) -> None:
    write(tmp_path / "first.json.gz", **one)
    write(tmp_path / "second.json.gz", **other)
    assert len(runs(tmp_path)) == 2


def test_the_newest_is_analyzed_and_the_others_are_named(tmp_path: Path) -> None:
    write(tmp_path / "main" / "trace.json.gz", start_s=NOON_S + 3_600)
    write(tmp_path / "branch" / "trace.json.gz")
    result = analyze(str(tmp_path))
    assert [Path(file.path).parent.name for file in result.run.files] == ["main"]
    assert result.warnings[0] == (
        "2 different runs were found. This is the newest of them, main (2026-02-02 03:40 UTC). "
        "The others: branch (2026-02-02 02:40 UTC). Choose with --run NAME, or analyze each with --all."
    )
    picked = traceopt.analyze(str(tmp_path), run="branch")
    assert [Path(file.path).parent.name for file in picked.run.files] == ["branch"]
    with pytest.raises(InputError, match=r"no run is called brunch; did you mean 'branch'\?"):
        analyze(str(tmp_path), run="brunch")


def test_names_are_those_of_folders_or_files(tmp_path: Path) -> None:
    write(tmp_path / "a" / "trace.json.gz")
    write(tmp_path / "b" / "first.json.gz", start_s=NOON_S + 900)
    write(tmp_path / "b" / "second.json.gz", start_s=NOON_S + 1_800)
    write(tmp_path / "c" / "first.json.gz", start_s=NOON_S + 2_700)
    assert list(runs(tmp_path)) == ["c", "second", "first", "a"]


def test_names_are_unique(tmp_path: Path) -> None:
    for folder in ("x/logs", "y/logs"):
        write(tmp_path / folder / "trace.json.gz", start_s=NOON_S + len(folder) * 1_000 + ord(folder[0]) * 1_000)
    assert sorted(runs(tmp_path)) == ["logs", "logs-2"]


def test_cycles_of_one_process_are_different_runs(tmp_path: Path) -> None:
    for span in (1_770_000_000_000, 1_770_000_005_000):
        write(tmp_path / f"host_7.{span}.pt.trace.json.gz", start_s=span / 1e3)
    assert len(runs(tmp_path)) == 2


def test_one_file_is_not_opened_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "trace.json.gz")
    monkeypatch.setattr("traceopt.analyzer.recordings.heads._head", None)
    (run,) = find_runs(str(tmp_path))
    assert pick_run([run], None) == (run, None)
