"""The document of one process that drives several GPUs: headline, plan, devices and lanes."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import pytest
from support import several_gpus
from support.findings import document_of
from support.several_gpus import Node

from traceopt.reports.words.run_words import device_phrase, gpus
from traceopt.result.document import Result

A100 = "NVIDIA A100-SXM4-40GB"
RECORDINGS: dict[str, Callable[[], Node]] = {
    "layers on two": several_gpus.split_model,
    "generation on four": several_gpus.generation,
    "pipeline": several_gpus.pipeline,
    "nn.DataParallel": several_gpus.data_parallel,
    "one is idle": lambda: several_gpus.one_works("context"),
    "one copies": lambda: several_gpus.one_works("copies"),
    "different models": several_gpus.different_gpus,
}


@lru_cache
def result(name: str) -> Result:
    facts = RECORDINGS[name]().facts()
    return document_of(facts)


@pytest.mark.parametrize(
    ("name", "devices", "headline"),
    [
        (
            "layers on two",
            f"2 × {A100}",
            "GPU-bound: 2 GPUs take turns, and one of them is busy for 99.6% of the step.",
        ),
        ("generation on four", f"4 × {A100}", "GPU-bound: 4 GPUs take turns, and one of them is busy for 98% of"),
        ("pipeline", f"2 × {A100}", "GPU-bound: at least one of 2 GPUs is busy for 99% of the step, each for 78% on"),
        (
            "nn.DataParallel",
            f"2 × {A100}",
            "Mostly GPU-bound: at least one of 2 GPUs is busy for 88% of the step, each",
        ),
        ("one is idle", A100, "GPU-bound: the GPU is busy for 99% of the step."),
        ("one copies", f"2 × {A100}", "GPU-bound: GPU 0 is busy for 99% of the step."),
        ("different models", f"{A100} and Tesla T4", "GPU-bound: 2 GPUs take turns, and one of them is busy for 99.8%"),
    ],
)
def test_the_headline_speaks_of_the_gpus_that_compute(name: str, devices: str, headline: str) -> None:
    assert device_phrase(result(name)).replace("\xa0", " ") == devices
    assert result(name).verdict.startswith(headline)


@pytest.mark.parametrize(
    ("name", "codes"),
    [("layers on two", ["PH003"]), ("nn.DataParallel", ["CM008"]), ("pipeline", []), ("one copies", [])],
)
def test_the_plan(name: str, codes: list[str]) -> None:
    assert [row.code for row in result(name).plan] == codes


def test_each_gpu_has_a_row_a_line_and_a_lane() -> None:
    rows = result("one copies").gpu.devices
    assert [(row.gpu, row.busy_share > 0.9, row.compute_us_per_step > 0) for row in rows] == [
        (0, True, True),
        (1, False, False),
    ]
    assert gpus(result("one copies"))[1] == "GPU 1: busy 1.0% of the step, copies only"
    timeline = result("generation on four").timeline
    assert timeline is not None
    assert [lane.name for lane in timeline.lanes][1:] == [f"GPU {number} compute" for number in range(4)]


def test_collectives_take_no_longer_than_all_communication() -> None:
    (row,) = result("nn.DataParallel").communication.collectives
    whole = result("nn.DataParallel").communication
    assert whole.us_per_step is not None
    assert whole.exposed_us_per_step is not None
    assert row.us_per_step <= whole.us_per_step
    assert row.exposed_us_per_step <= whole.exposed_us_per_step


def test_a_process_with_one_gpu_has_no_rows() -> None:
    assert result("one is idle").gpu.devices == []
    assert gpus(result("one is idle")) == []


def test_the_threads_of_data_parallel_are_named_for_what_they_run() -> None:
    timeline = result("nn.DataParallel").timeline
    assert timeline is not None
    threads = [lane.name for lane in timeline.table.lanes if lane.kind == "thread"]
    assert threads == ["CPU main thread", "CPU thread", "CPU thread", "CPU autograd thread", "CPU autograd thread"]
