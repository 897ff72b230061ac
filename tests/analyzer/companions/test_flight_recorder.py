"""Dumps of the flight recorder: recorded by gloo, and generated with planted faults; each fault and its fixed twin."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import traceopt
from fixtures.flight_dumps import FAULTY_RANK, dumps, write
from fixtures.generate import generate
from traceopt.analyzer.companions.flight_recorder.recording import FlightRecording, read_flight_recorder
from traceopt.analyzer.reading.source_search import find_sources
from traceopt.cli import cli
from traceopt.errors import InputError
from traceopt.reports.html.page import render_html
from traceopt.reports.text.markdown import render_markdown
from traceopt.reports.words.fixes.fix_cards import groups
from traceopt.result.document import Result
from traceopt.result.words.rank_lists import ranks_text

RECORDED = Path(__file__).parents[3] / "fixtures" / "flight_recorder"


def read(folder: Path) -> FlightRecording:
    return read_flight_recorder([file.source for file in find_sources([str(folder)]).companions], [])


def found(folder: Path) -> list[tuple[str, list[int], list[int | None]]]:
    result = traceopt.analyze(str(folder))
    return [(one.code, one.ranks, [place.line for place in one.locations]) for one in result.findings]


@pytest.mark.parametrize(("fault", "impact"), [("missing", "high"), ("order", "high"), ("late", "info")])
def test_a_hang_has_high_impact_without_a_saving(fault: str, impact: str, tmp_path: Path) -> None:
    (finding,) = traceopt.analyze(str(write(tmp_path, dumps(8, fault, steps=12)))).findings
    assert (finding.saving, finding.impact) == (None, impact)


def test_a_hang_comes_first_beside_a_trace(tmp_path: Path) -> None:
    generate("slow_loader", steps=2).write(tmp_path / "trace.json")
    result = traceopt.analyze(str(write(tmp_path, dumps(8, "missing"))))
    assert result.verdict.startswith("The job hangs: 7 ranks are waiting for rank ")
    assert result.step.source == "profiler_step"
    assert groups(result).noted[0].finding.code == "FR001"


def test_a_circle_names_all_its_ranks(tmp_path: Path) -> None:
    assert found(write(tmp_path, dumps(8, "circle"))) == [("FR002", [0, 1, 2, 3], [60, 50])]


@pytest.mark.parametrize("ranks", [2, 8])
def test_a_healthy_job_has_no_finding(ranks: int, tmp_path: Path) -> None:
    folder = write(tmp_path, dumps(ranks, steps=12))
    assert found(folder) == []
    assert (
        traceopt.analyze(str(folder)).verdict
        == f"No rank was waiting for another, according to the dumps of {ranks} ranks."
    )


def test_a_rank_that_waits_elsewhere_is_not_the_cause(tmp_path: Path) -> None:
    (hang,) = read(write(tmp_path, dumps(8, "blocked"))).hangs
    assert [last.rank for last in hang.culprits] == [FAULTY_RANK]
    assert [(call.waiting, call.missing) for call in hang.calls] == [((0, 1, 3), (2,))]
    assert hang.waiting == (0, 1, 3, 4, 5, 6, 7)


def test_many_ranks(tmp_path: Path) -> None:
    made = read(write(tmp_path, dumps(256, "blocked", steps=3)))
    assert [[last.rank for last in hang.culprits] for hang in made.hangs] == [[FAULTY_RANK]]
    assert len(made.hangs[0].waiting) == 255


@pytest.mark.parametrize("fault", ["none", "blocked", "size"])
def test_old_calls_that_the_ring_buffer_has_lost_do_not_matter(fault: str, tmp_path: Path) -> None:
    whole = found(write(tmp_path / "whole", dumps(8, fault, steps=30)))
    cut = found(write(tmp_path / "cut", dumps(8, fault, steps=30, kept=20)))
    assert cut == whole


def test_a_rank_that_has_lost_its_calls_of_a_group_is_not_missing(tmp_path: Path) -> None:
    made = dumps(8, "missing")
    made[FAULTY_RANK]["entries"] = [
        entry for entry in made[FAULTY_RANK]["entries"][2:] if entry["process_group"][0] != "0"
    ]
    assert [call.missing for call in read(write(tmp_path, made)).stuck] == [()]


def test_recorded_dumps() -> None:
    assert found(RECORDED / "missing_rank")[0][:2] == ("FR001", [2])
    assert found(RECORDED / "missing_rank")[0][2] != []
    assert found(RECORDED / "missing_rank_json") == [("FR001", [2], [])]
    assert found(RECORDED / "all_ranks") == []


def test_json_gives_the_same_ranks(tmp_path: Path) -> None:
    made = dumps(8, "size", stacks=False)
    assert found(write(tmp_path, made, as_json=True)) == [("FR002", [FAULTY_RANK], [])]


def test_shapes_of_equal_size_and_unequal_all_to_all_are_no_mismatch(tmp_path: Path) -> None:
    made = dumps(4)
    for entry in made[1]["entries"]:
        entry["input_sizes"] = entry["output_sizes"] = [[8 * 1024]]
    for rank, dump in made.items():
        dump["entries"][-1] |= {"profiling_name": "nccl:all_to_all_single", "input_sizes": [[rank]]}
    assert read(write(tmp_path, made)).mismatches == []


def p2p(name: str, sequence: int, record_id: int, *, ended: bool) -> dict[str, Any]:
    return {
        "record_id": record_id,
        "process_group": ("0", "default_pg"),
        "profiling_name": f"nccl:{name}",
        "is_p2p": True,
        "p2p_seq_id": sequence,
        "time_created_ns": 1,
        "state": "completed" if ended else "scheduled",
    }


def pipeline(*entries: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    groups = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(len(entries))))}}
    return {rank: {"version": "2.10", "pg_config": groups, "entries": mine} for rank, mine in enumerate(entries)}


def test_a_receive_without_a_send_names_the_peer(tmp_path: Path) -> None:
    made = pipeline(
        [p2p("send 0->1", 1, 0, ended=True)], [p2p("recv 1<-0", 1, 0, ended=True), p2p("recv 1<-0", 2, 1, ended=False)]
    )
    (hang,) = read(write(tmp_path, made)).hangs
    assert [(last.rank, last.operation) for last in hang.culprits] == [(0, "send 0->1")]


def test_a_pair_in_transfer_waits_for_no_one(tmp_path: Path) -> None:
    made = pipeline([p2p("send 0->1", 1, 0, ended=False)], [p2p("recv 1<-0", 1, 0, ended=False)])
    assert read(write(tmp_path, made)).hangs == []


def test_a_batch_has_the_state_of_the_call_that_ends_it(tmp_path: Path) -> None:
    batch = [
        p2p("send 0->1", 1, 0, ended=False),
        p2p("recv 0<-1", 1, 1, ended=False),
        p2p("coalesced", 1, 2, ended=True),
    ]
    assert read(write(tmp_path, pipeline(batch, []))).stuck == []


def test_groups_of_one_name_are_told_apart_by_their_members(tmp_path: Path) -> None:
    made = dumps(8, "missing")
    for dump in made.values():
        dump["pg_config"]["1"] = dump["pg_config"].pop("1", None) or dump["pg_config"].pop("2") | {"name": "1"}
        for entry in dump["entries"]:
            entry["process_group"] = ("0" if entry["process_group"][0] == "0" else "1", entry["process_group"][1])
    groups = read(write(tmp_path, made)).groups
    assert sorted(group.ranks for group in groups) == [(0, 1, 2, 3), tuple(range(8)), (4, 5, 6, 7)]


def test_the_dump_with_stacks_is_used_of_two(tmp_path: Path) -> None:
    made = dumps(4, "missing")
    write(tmp_path, made)
    write(tmp_path, {rank: dict(dump) for rank, dump in dumps(4, "missing", stacks=False).items()}, as_json=True)
    result = traceopt.analyze(str(tmp_path))
    assert result.flight_recorder is not None
    assert (result.flight_recorder.dumps, result.flight_recorder.stacks) == (4, True)
    assert any("4 ranks have several dumps" in warning for warning in result.warnings)


def test_all_dumps_stay_together_beside_traces(tmp_path: Path) -> None:
    write(tmp_path, dumps(4, "missing"))
    for rank in (1, 0):
        trace = {"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": []}
        trace["traceEvents"] = [
            {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 100 * i, "dur": 50}
            for i in range(5)
        ]
        (tmp_path / f"trace_rank{rank}.json").write_text(json.dumps(trace))
    result = traceopt.analyze(str(tmp_path))
    assert result.flight_recorder is not None
    assert result.flight_recorder.dumps == 4
    assert [one.ranks for one in result.findings if one.code == "FR001"] == [[FAULTY_RANK]]


def test_every_format_tells_the_hang(tmp_path: Path) -> None:
    folder = write(tmp_path, dumps(8, "blocked"))
    result = traceopt.analyze(str(folder))
    assert result.verdict == "The job hangs: 7 ranks are waiting for rank 2, first in all_reduce of group tp."
    assert Result.from_json(result.to_json()) == result
    page = render_html(result)
    assert 'id="flight-recorder"' in page
    assert "ranks 0-1 and 3" in page
    assert "waiting in all" in render_markdown(result)


def test_hostile_names_stay_text_and_short(tmp_path: Path) -> None:
    bad = "<script>alert(1)</script>\x1b[31m\n" + "x" * 1_000_000
    made = dumps(4, "missing")
    for dump in made.values():
        dump["pg_config"][bad] = dump["pg_config"]["0"]
        for entry in dump["entries"]:
            if entry["process_group"][0] == "0":
                entry |= {"process_group": (bad, bad), "profiling_name": f"nccl:{bad}"}
                entry["frames"] = [{"name": bad, "filename": bad, "line": 1}]
    result = traceopt.analyze(str(write(tmp_path, made)))
    assert [one.code for one in result.findings] == ["FR001"]
    page = render_html(result)
    assert "<script>alert(1)" not in page
    assert len(page) < 200_000
    assert "\x1b" not in render_markdown(result)


def broken(**changes: Any) -> bytes:
    return pickle.dumps(dumps(2)[1] | changes)


SHARED = [dumps(2)[1]["entries"][0] | {"input_sizes": [[1]] * 10_000}] * 10_000  # 20 KB that would be 100 million lists


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(broken(entries=5), id="entries-are-a-number"),
        pytest.param(broken(entries=[{"record_id": 1}]), id="entry-without-a-name"),
        pytest.param(broken(entries=[dumps(2)[1]["entries"][0] | {"collective_seq_id": 2**70}]), id="huge-number"),
        pytest.param(broken(entries=[dumps(2)[1]["entries"][0] | {"duration_ms": float("nan")}]), id="nan"),
        pytest.param(broken(entries=[dumps(2)[1]["entries"][0] | {"frames": [{"name": []}]}]), id="list-as-a-name"),
        pytest.param(broken(pg_config={"0": {"ranks": "__import__('os')"}}), id="code-as-ranks"),
        pytest.param(broken()[:200], id="cut"),
        pytest.param(pickle.dumps([1, "pg_config"]), id="no-dictionary"),
        pytest.param(broken(entries=SHARED), id="shared-lists"),
        pytest.param(broken(entries=[dumps(2)[1]["entries"][0] | {"time_created_ns": -(2**63)}]), id="far-away-time"),
        pytest.param(b'{"pg_status": {}, "record_id"', id="cut-json"),
    ],
)
def test_a_damaged_dump_ends_in_one_line(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "nccl_trace_rank_1"
    path.write_bytes(data)
    answer = CliRunner().invoke(cli, ["analyze", str(path)])
    assert answer.exit_code == 2
    assert "rank_1" in answer.stderr
    assert len(answer.stderr.splitlines()) <= 4  # one sentence, wrapped


def test_a_damaged_dump_among_others_is_a_warning(tmp_path: Path) -> None:
    write(tmp_path, dumps(4, "missing"))
    (tmp_path / "nccl_trace_rank_3").write_bytes(broken(entries=5))
    result = traceopt.analyze(str(tmp_path))
    assert [one.code for one in result.findings] == ["FR001"]
    assert any("nccl_trace_rank_3" in warning for warning in result.warnings)


def test_a_dump_without_a_rank_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "dump.pickle"
    path.write_bytes(pickle.dumps(dumps(2)[0]))
    with pytest.raises(InputError, match="does not say its rank"):
        read(path)


def test_lists_of_ranks() -> None:
    assert ranks_text([3]) == "rank 3"
    assert ranks_text([0, 1, 2, 7]) == "ranks 0-2 and 7"
    assert ranks_text(range(0, 40, 2)) == "ranks 0, 2, 4, 6, 8, 10 and 14 more"
