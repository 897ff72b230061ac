"""The timeline of the report: its lanes, their names, and the step it shows."""

from __future__ import annotations

import pytest
from support.traces import GetExample

from traceopt.result.sections.timeline_rows import Lane


def lanes_of(example: GetExample, scenario: str) -> list[Lane]:
    timeline = example(scenario).result.timeline
    assert timeline is not None
    return timeline.lanes


@pytest.mark.parametrize("scenario", ["exposed_allreduce", "pageable_copy", "exposed_copy"])
def test_other_kinds_of_work_have_their_own_lanes(example: GetExample, scenario: str) -> None:
    """Even if it runs on the compute stream. A few short copies stay among the kernels."""
    lanes = lanes_of(example, scenario)
    titles = [lane.name for lane in lanes if lane.name.startswith("GPU")]
    order = ["GPU compute", "GPU communication", "GPU copies"]
    assert titles == sorted(titles, key=order.index)
    assert len({lane.key for lane in lanes}) == len(lanes)
    for lane in lanes:
        if lane.name == "GPU compute":
            other = sum(span.duration_us for span in lane.spans if span.category != "compute")
            assert other < 0.02 * sum(span.duration_us for span in lane.spans)
        elif lane.name.startswith("GPU"):
            assert {span.category for span in lane.spans} == {"comm" if "comm" in lane.name else "copy"}
    assert titles[0] == "GPU compute"
    assert ("GPU communication" in titles) == (scenario == "exposed_allreduce")


def test_the_host_lane_shows_stalls(example: GetExample) -> None:
    training = lanes_of(example, "five_faults")[0]
    assert {"loader", "logging", "runtime"} <= {span.category for span in training.spans}
    on_cpu = lanes_of(example, "cpu_only")
    assert {"loader", "forward", "backward", "optimizer"} <= {span.category for span in on_cpu[0].spans}


def test_a_long_copy_of_pageable_memory_is_no_launching(example: GetExample) -> None:
    """The host is in the copy call while the GPU copies: the row says so, as the part of the step does."""
    (copy, *_) = sorted(lanes_of(example, "pageable_copy")[0].spans, key=lambda span: -span.duration_us)
    assert (copy.name, copy.category) == ("Copying pageable memory on the host", "copy")
