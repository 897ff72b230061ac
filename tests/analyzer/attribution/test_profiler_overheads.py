"""The profiler's own start is no fault of the program: it has a cause of its own, and no rule prices it."""

from __future__ import annotations

import gzip

import pytest
from support.quality import notes

from fixtures.real_traces import SHARED
from traceopt.analyzer.vocabulary.causes.table import PROFILER
from traceopt.rules.catalogue.lb002_launch_bound import LaunchBound
from traceopt.testing import A100, Machine, answer
from traceopt.testing.assertions import facts_of
from traceopt.testing.events import MAIN, Json, kernel, op, read, runtime, span

AUTOGRAD = 2


def overhead(name: str, start: float, duration: float) -> Json:
    return span("overhead", name, start, duration, 0) | {"pid": -1}


def held_up(*events: Json) -> dict[str, int | str | None]:
    """The thread that each overhead holds up."""
    trace = read(list(events))
    calls = zip(trace.runtime.name.tolist(), trace.runtime.thread.tolist(), strict=True)
    return {trace.names[code]: trace.threads[thread].tid for code, thread in calls if trace.names[code] != "cudaMalloc"}


@pytest.mark.parametrize(
    ("events", "thread"),
    [
        ([op("aten::arange", 0, 900)], MAIN),
        ([op("aten::arange", 0, 900), op("aten::empty", 300, 5)], None),  # it goes on meanwhile
        ([op("aten::arange", 0, 400)], None),
        ([op("aten::arange", 0, 100)], None),
        ([op("backward", 0, 900), op("aten::mm", 50, 700, AUTOGRAD)], AUTOGRAD),  # the last that did anything
        ([op("backward", 50, 700), op("aten::mm", 0, 900, AUTOGRAD)], MAIN),
    ],
)
def test_the_thread_that_an_overhead_holds_up(events: list[Json], thread: int | None) -> None:
    calls = [runtime("cudaMalloc", 800, 1, 0, tid) for tid in (MAIN, AUTOGRAD)]
    found = held_up(
        *events, *calls, overhead("Activity Buffer Request", 200, 400), overhead("Command Buffer Full", 250, 9)
    )
    assert found == ({} if thread is None else {"Activity Buffer Request": thread})


def profiled(*, starts: bool) -> Machine:
    """A step of short kernels. In its first operator the profiler starts, which also slows the first launch."""
    machine = Machine(A100)
    with machine.step():
        if starts:
            machine.work(700, "aten::arange")
            machine.events.append(overhead("Activity Buffer Request", machine.now - 660, 650))
            number = machine.call("cudaLaunchKernel", 600)
            machine.events.append(kernel("arange", machine.now, 2, number))
        for _ in range(60):
            machine.work(20, "aten::add")
            machine.launch(2)
        machine.synchronize()
    return machine


def test_its_start_and_the_first_launch_have_a_cause_of_their_own() -> None:
    facts = facts_of(profiled(starts=True))
    assert facts.idle.total_ns(PROFILER) == pytest.approx(1_250_000, rel=0.01)
    assert facts_of(profiled(starts=False)).idle.total_ns(PROFILER) == 0
    assert "1.2 ms of the recording while the profiler sets itself up" in notes(facts)["TQ004"]


def test_no_rule_prices_it() -> None:
    (with_start,), (without,) = (answer(LaunchBound, profiled(starts=starts))[1] for starts in (True, False))
    assert with_start.saving is not None
    assert without.saving is not None
    assert with_start.saving.est_us == pytest.approx(without.saving.est_us, rel=0.05)
    assert all((one.us_per_step or 0) < 100 for one in with_start.evidence if "arange" in one.what)


@pytest.mark.real_traces
def test_of_a_real_decoding_step() -> None:
    """Its first launches are held up for 1.24 ms; 0.62 ms more are the launch of the graph itself."""
    path = SHARED / "unseen" / "sgl_dsr1_b300_decode.json.gz"
    if not path.is_file():
        pytest.skip(f"{path.name} is not there")
    facts = facts_of(gzip.decompress(path.read_bytes()))
    (finding,) = answer(LaunchBound, facts)[1]
    assert facts.idle.total_ns(PROFILER) == pytest.approx(1_236_000, rel=0.01)
    assert finding.saving is not None
    assert finding.saving.est_us <= 1_000
    assert all((one.us_per_step or 0) < 100 for one in finding.evidence if "arange" in one.what)
