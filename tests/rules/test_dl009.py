"""DL009 workers-for-tiny-items: build batches in the training process."""

from __future__ import annotations

import pytest
from support.cpu_steps import Events, cpu_answer

from traceopt.result.document import Check
from traceopt.result.finding import Finding
from traceopt.testing import events as build

WAIT_US = 3_000


def waited(
    code: str, build_us: float, workers: int = 2, wait_us: float = WAIT_US, **more: object
) -> tuple[Check, list[Finding]]:
    """Steps of 10 ms that wait for a batch first. A worker takes `build_us` to build it, but longer for the first."""

    def events(t: float, _: int) -> Events:
        kind = "MultiProcessing" if workers else "SingleProcess"
        yield build.annotation(f"enumerate(DataLoader)#_{kind}DataLoaderIter.__next__", t, wait_us)
        yield build.op("aten::mm", t + wait_us, 9_900 - wait_us)

    loader = {"num_workers": workers, "dataset": "Waves", "batch_size": 8, "batches": 100, "updates": 100}
    times = {"batches": 50, "batch_us": build_us + 200, "batch_cpu_us": build_us, "longest_batch_us": build_us + 10_000}
    own = {
        "environment": {"cpu_count": 4, "threads": 1},
        "loaders": [loader],
        "loader_workers": [{"worker": 0, "workers": 2, "loader": 0, **times}] if workers else [],
        "updates": 100,
        **more,
    }
    return cpu_answer(code, events, traceopt=own)


def test_fires_if_the_wait_is_longer_than_building() -> None:
    _, [found] = waited("DL009", build_us=500)
    saving = found.saving or pytest.fail("no saving")
    # Without workers, the model has the machine to itself for as long as they computed.
    assert saving.est_us == pytest.approx(WAIT_US - 500 + 0.21 * 500, rel=0.02)
    assert saving.low_us < saving.est_us < saving.high_us
    assert "Building them takes only 0.50 ms" in found.why
    assert found.fix.settings == {"DataLoader.num_workers": "0"}


def test_recorded_steps_may_take_their_batches_from_a_full_queue() -> None:
    """The workers filled it while the profiler started: what the other steps wait is what counts."""
    unrecorded = {"step_us": [6_000.0] * 40, "fetch_us": [3_000.0] * 40}
    ledger = unrecorded | {"windows": [{"cycle": "timing", "warmup_from": 5, "from": 6, "until": 10}]}
    _, [found] = waited("DL009", build_us=500, wait_us=100, ledger=ledger)
    assert found.why.startswith("While nothing is recorded, the loop waits 3.0 ms of each 6.0 ms step for batches")
    assert found.saving is not None
    assert found.saving.share == pytest.approx((3_000 - 500 + 0.21 * 500) / 6_000, rel=0.02)


def test_more_workers_are_no_fix_for_it() -> None:
    check, findings = waited("DL001", build_us=500)
    assert not findings
    assert (check.reason or "").endswith("would build these batches faster than it gets them (DL009).")


@pytest.mark.parametrize(
    ("build_us", "workers", "wait_us"),
    [
        (12_000, 2, WAIT_US),  # the workers do what they are for
        (WAIT_US - 100, 2, WAIT_US),
        (100, 2, 200),
        (500, 0, WAIT_US),
    ],
)
def test_silent(build_us: float, workers: int, wait_us: float) -> None:
    assert not waited("DL009", build_us, workers, wait_us)[1]


def test_a_trace_without_a_recording_tells_nothing() -> None:
    def events(t: float, _: int) -> Events:
        yield build.annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", t, WAIT_US)
        yield build.op("aten::mm", t + WAIT_US, 5_000)

    assert not cpu_answer("DL009", events)[1]
