"""`traceopt cut` and `traceopt view`: one step as a small trace, and a trace for the Perfetto UI."""

from __future__ import annotations

import gzip
import json
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from support.command_line import run

from fixtures.generate import generate_ranks
from fixtures.nsight import Export
from fixtures.real_traces import TRACES
from traceopt.api import analyze
from traceopt.testing import A100, Machine
from traceopt.viewing import perfetto
from traceopt.viewing.one_trace import one_trace
from traceopt.viewing.step_cut import FULL_DURATION

STEPS = 6
BASE_US = 1_700_000_000_000_000  # as in files that count from 1970: there, a double holds a quarter of a microsecond


def machine() -> Machine:
    """Each step loads data, launches a kernel that runs into the next step, and has a flow to it."""
    machine = Machine(A100, with_stack=1)
    for _ in range(STEPS):
        with machine.step():
            with machine.python("train.py(12): load"):
                machine.work(1_000, "aten::stack")
            machine.launch(500)
            machine.work(200, "aten::add")
            machine.launch(900)
    frame = {"ph": "X", "cat": "python_function", "name": "train.py(1): main", "pid": 1, "tid": 1}
    machine.events.append(frame | {"ts": 0.0, "dur": machine.now})
    for event in [
        e for e in machine.events if e.get("cat") in ("cuda_runtime", "kernel") and "correlation" in e["args"]
    ]:
        place = {key: event[key] for key in ("pid", "tid", "ts")}
        arrow = {"ph": "s" if event["cat"] == "cuda_runtime" else "f", "id": event["args"]["correlation"], "bp": "e"}
        machine.events.append(place | arrow | {"cat": "ac2g", "name": "ac2g"})
    for event in machine.events:
        if "ts" in event:
            event["ts"] += BASE_US
    machine.events.insert(0, {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}})
    return machine


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("viewing") / "trace.json"
    path.write_bytes(machine().to_bytes())
    return path


def events(text: bytes, *categories: str) -> list[dict[str, Any]]:
    return [event for event in json.loads(text)["traceEvents"] if event.get("cat") in categories]


@pytest.fixture(scope="module")
def whole(trace: Path) -> bytes:
    return trace.read_bytes()


@pytest.fixture(scope="module")
def step(trace: Path) -> bytes:
    outcome = run("cut", trace, "--step", "3", "-o", "-")
    assert outcome.exit_code == 0, outcome.stderr
    return outcome.stdout_bytes


def test_a_cut_has_the_header_and_the_metadata_events(whole: bytes, step: bytes) -> None:
    header, cut = json.loads(whole), json.loads(step)
    del header["traceEvents"]
    assert {key: cut[key] for key in header} == header
    assert [event["name"] for event in cut["traceEvents"] if event["ph"] == "M"] == ["process_name"]


def test_a_cut_has_one_step(step: bytes) -> None:
    (marked,) = (event for event in events(step, "user_annotation") if event["name"].startswith("ProfilerStep"))
    assert marked["name"] == "ProfilerStep#3"
    assert len(events(step, "cpu_op")) == 2


def test_a_cut_has_the_kernels_that_the_step_launched(step: bytes) -> None:
    launches = {event["args"]["correlation"] for event in events(step, "cuda_runtime")}
    kernels = {event["args"]["correlation"] for event in events(step, "kernel")}
    assert len(launches) == 2
    assert launches <= kernels


def test_flows_have_both_ends(step: bytes) -> None:
    ends = {end: {e["id"] for e in events(step, "ac2g") if e["ph"] == end} for end in "sf"}
    assert ends["s"] == ends["f"] == {event["args"]["correlation"] for event in events(step, "cuda_runtime")}


def test_a_frame_around_the_training_is_shortened_to_the_step(step: bytes) -> None:
    (frame,) = (event for event in events(step, "python_function") if event["name"].endswith("main"))
    (marked,) = (event for event in events(step, "user_annotation") if event["name"].startswith("ProfilerStep"))
    assert frame["ts"] == pytest.approx(marked["ts"], abs=1)
    assert frame["dur"] < frame["args"][FULL_DURATION] / 3


def test_a_cut_is_a_trace(trace: Path, tmp_path: Path) -> None:
    small = tmp_path / "step.json.gz"
    assert run("cut", trace, "--step", "ProfilerStep#3", "-o", small).exit_code == 0
    assert gzip.decompress(small.read_bytes()) == run("cut", trace, "--step", "3", "-o", "-").stdout_bytes
    result = run("analyze", small, "--no-html", "--format", "json")
    assert result.exit_code == 0, result.stderr


@pytest.mark.real_traces
def test_a_cut_of_a_file_of_2021_has_the_kernels_that_ran_later(tmp_path: Path) -> None:
    """Its categories have other names: Runtime, Kernel."""
    (whole,) = (TRACES / "kineto/resnet50_num_workers_0").iterdir()
    part = tmp_path / "step.json"
    assert run("cut", whole, "--step", "7", "-o", part).exit_code == 0
    steps, cut = analyze(str(whole)).step, analyze(str(part))
    assert cut.step.count == 1
    assert cut.step.typical_us == pytest.approx(steps.per_step_us[2], rel=0.01)
    assert not any("dropped events" in note.text for note in cut.quality.notes)


def test_a_bare_list_of_events_can_be_cut(whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bare.json"
    path.write_text(json.dumps(json.loads(whole)["traceEvents"]))
    assert len(events(run("cut", path, "--step", "3", "-o", "-").stdout_bytes, "cpu_op")) == 2


@pytest.mark.parametrize("wanted", ["99", "Step", "²"])
def test_an_unknown_step_is_one_line_with_the_steps(trace: Path, tmp_path: Path, wanted: str) -> None:
    outcome = run("cut", trace, "--step", wanted, "-o", tmp_path / "step.json")
    assert outcome.exit_code == 2
    assert "ProfilerStep#" in outcome.stderr
    assert "and 1 more" in outcome.stderr
    assert not (tmp_path / "step.json").exists()


def test_damaged_events_are_counted(whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "truncated.json"
    path.write_bytes(whole[: whole.rindex(b'"ac2g"')])
    outcome = run("cut", path, "--step", "3", "-o", tmp_path / "step.json")
    assert outcome.exit_code == 0, outcome.stderr
    assert "damaged event" in outcome.stderr
    json.loads((tmp_path / "step.json").read_bytes())


def test_the_input_is_never_overwritten(trace: Path, whole: bytes) -> None:
    assert run("cut", trace, "--step", "3", "-o", trace).exit_code == 2
    assert trace.read_bytes() == whole


def test_several_traces_are_not_one(trace: Path, tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_bytes(trace.read_bytes())
    outcome = run("cut", tmp_path, "--step", "3", "-o", tmp_path / "step.json")
    assert outcome.exit_code == 2
    assert "holds 2 traces" in outcome.stderr


@pytest.mark.parametrize("command", ["view", "cut"])
def test_an_export_of_nsight_systems_is_one_line(command: str, tmp_path: Path) -> None:
    documents = [one.document for one in generate_ranks("exposed_allreduce")]
    path = Export(documents).write(tmp_path / "report.sqlite")
    more = ("--step", "3", "-o", tmp_path / "step.json") if command == "cut" else ("--no-browser",)
    outcome = run(command, path, *more)
    assert outcome.exit_code == 2
    assert outcome.stderr.startswith(f"traceopt: error: {path} is an export of Nsight Systems, which only")
    assert outcome.stderr.count("\n") == 1


@pytest.fixture
def served(trace: Path) -> Iterator[perfetto.TraceServer]:
    with perfetto.TraceServer(one_trace(str(trace)), port=0) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def ask(
    server: perfetto.TraceServer, method: str, path: str, host: str | None = None
) -> tuple[int, dict[str, str], bytes]:
    connection = HTTPConnection(perfetto.HOST, server.server_port, timeout=30)
    connection.request(method, path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    return answer.status, dict(answer.getheaders()), answer.read()


def test_perfetto_may_read_the_trace(served: perfetto.TraceServer, whole: bytes) -> None:
    status, headers, body = ask(served, "GET", "/trace.json")
    assert (status, body) == (200, whole)
    assert headers["Access-Control-Allow-Origin"] == "https://ui.perfetto.dev"
    assert served.server_address[0] == "127.0.0.1"
    assert ask(served, "OPTIONS", "/trace.json")[0] == 204


@pytest.mark.parametrize("path", ["/", "/../trace.json", "/trace.json/..", "/etc/passwd", "/trace.json?x"])
def test_only_the_trace_is_served(served: perfetto.TraceServer, path: str) -> None:
    assert ask(served, "GET", path)[0] == 404


def test_another_host_name_is_refused(served: perfetto.TraceServer) -> None:
    assert ask(served, "GET", "/trace.json", host="attacker.example")[0] == 404
    assert ask(served, "POST", "/status")[0] == 501  # the UI asks whether this is a trace processor


def test_a_taken_port_is_one_line(trace: Path) -> None:
    with socket.socket() as other:
        other.bind((perfetto.HOST, 0))
        other.listen()
        with pytest.raises(Exception, match="is in use"):
            perfetto.TraceServer(one_trace(str(trace)), port=other.getsockname()[1])


@pytest.mark.parametrize("opens", [True, False])
def test_view_says_when_there_is_no_browser(trace: Path, monkeypatch: pytest.MonkeyPatch, opens: bool) -> None:
    class Interrupted:
        def __init__(self, _: object) -> None: ...
        def __enter__(self) -> Interrupted:
            return self

        def __exit__(self, *_: object) -> None: ...
        def serve_forever(self) -> None:
            raise KeyboardInterrupt

    asked: list[str] = []
    monkeypatch.setattr(perfetto, "TraceServer", Interrupted)
    monkeypatch.setattr("webbrowser.open", lambda link: bool(asked.append(link)) or opens)
    outcome = run("view", trace)
    assert outcome.exit_code == 0
    assert asked == ["https://ui.perfetto.dev/#!/?url=http://127.0.0.1:9001/trace.json"]
    assert asked[0] in outcome.stderr
    assert ("No browser" in outcome.stderr) is not opens
    assert "No browser" in run("view", trace, "--no-browser").stderr
