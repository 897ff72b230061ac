"""Steps without ProfilerStep marks: the longest regular period of what repeats in the loop."""

from __future__ import annotations

import numpy as np
import pytest

from fixtures.real_traces import SHARED
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.reading.trace_reader import read_trace
from traceopt.analyzer.timeline.marks.marks import find_marks
from traceopt.analyzer.timeline.steps import Steps
from traceopt.testing.events import Json, annotation, kernel, op, read

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
SGD, ADAM = "Optimizer.step#SGD.step", "Optimizer.step#Adam.step"
REGION = "Torch-Compiled Region: 0/0"
PART_US, OPS = 100, 9  # of each part of an iteration


def work(until: float) -> list[Json]:
    return [op("aten::mm", at, 5) for at in np.arange(0, until, 10).tolist()]


def steps_of(*events: Json) -> Steps:
    return Facts(read(events)).recorded_steps


def part(letter: str, at: float) -> list[Json]:
    """What a letter stands for: L loads, F and f are passes of two sizes, B is a backward pass, S and A update, C is
    compiled code, a pause or any other letter only takes time.
    """
    match letter:
        case "L":
            return [annotation(LOADER, at, 90)]
        case "F" | "f" | "C":
            many = OPS if letter == "F" else OPS // 2
            ops = [
                op("aten::mm", at + 1 + 10 * i, 9, **{"Sequence number": 1, "Fwd thread id": 0}) for i in range(many)
            ]
            return [*ops, op(REGION, at, 95)] if letter == "C" else ops
        case "B":
            names = ["autograd::engine::evaluate_function: MmBackward0", "MmBackward0", "aten::mm"]
            return [op(names[i % 3], at + 10 * i, 9, tid=2, **{"Fwd thread id": 1}) for i in range(OPS)]
        case "S" | "A":
            return [op("aten::add_", at + 10, 5), annotation(SGD if letter == "S" else ADAM, at, 90)]
    return []


def recorded(loop: str) -> Steps:
    """The steps of a recording in which each letter takes PART_US, and a digit that many times as long."""
    now, events = 0.0, []
    for letter in loop.replace(" ", ""):
        events += part(letter, now)
        now += PART_US * (int(letter) if letter.isdigit() else 1)
    return steps_of(*events)


@pytest.mark.parametrize(
    ("loop", "source", "parts"),
    [
        ("LFBS" * 5, "data_loader", [4] * 4),
        ("FBS" * 5, "optimizer", [3] * 4),
        ("FB" * 5, "backward", [2] * 4),
        ("CB" * 5, "compiled_region", [2] * 4),
        ("C." * 5, "compiled_region", [2] * 4),
        ("CFB" * 5 + "C", "compiled_region", [3] * 5),  # the last is cut
        # two models with one batch: of two optimizers, of one kind of optimizer, with and without a loader
        ("LFBS fBA" * 5, "data_loader", [7] * 4),
        ("FBS fBA" * 5, "optimizer", [6] * 4),
        ("LFFBS fBS" * 6, "data_loader", [8] * 5),
        ("FFBS fBS" * 6, "optimizer", [7] * 5),
        # gradient accumulation: by the updates, by the loader alone, and by what follows the last pass
        ("LFB LFB LFB LFB S" * 5, "optimizer", [13] * 4),
        ("FB FB FB FFFB" * 5, "backward", [10] * 4),
        ("C.C.C.CFF" * 5, "compiled_region", [9] * 4),
        # a batch of two loaders
        ("LLFBF" * 6, "data_loader", [5] * 5),
        # a cold start, and steps that save or evaluate
        ("F999 BS" + "FBS" * 5, "optimizer", [3] * 5),
        ("L9999FB" + "LFB" * 5, "data_loader", [39, *[3] * 4]),
        ("FBS FBS FBS FBS FBS9" * 2, "optimizer", [3, 3, 3, 3, 12, 3, 3, 3, 3]),
        ("LFBS" * 6 + "9LFBS" + "LFBS" * 5, "data_loader", [4, 4, 4, 4, 4, 13, 4, 4, 4, 4, 4]),
        # few: the last iteration ends with the last operator
        ("C9999B" + "CB" * 2, "compiled_region", [38, 2, 1.89]),
        ("LFFS" * 3, "data_loader", [4, 4, 3.9]),
        ("FBS" * 3, "optimizer", [3, 3]),
    ],
)
def test_the_longest_regular_period(loop: str, source: str, parts: list[float]) -> None:
    steps = recorded(loop)
    assert steps.source == source
    assert (steps.duration / 1e3 / PART_US).tolist() == pytest.approx(parts)


@pytest.mark.parametrize(
    "loop",
    [
        "F" * 9,  # nothing repeats but operators
        "FB" * 2,
        "LFBS" * 2,
        "FB9999FB FB",  # two backward passes, one of a cold start
        "FF" + "C" * 9 + "FF",  # layers of one model
        "F B F B F B F B S",  # one update
        "LFBS" + "FB" * 5,  # a loader, and what is not of its loop
        "LFBS" * 4 + "9" * 9 + "F",  # a small part of the recording
        "LFB LFFFFB LB9999 LFFFB LF LFFFB9",  # as irregular in time as in work
    ],
)
def test_else_the_recording_is_one_window(loop: str) -> None:
    steps = recorded(loop)
    assert (steps.source, steps.count) == ("window", 1)


def test_a_cold_first_iteration_is_not_typical() -> None:
    steps = recorded("C9999B" + "CB" * 3)
    assert steps.typical_rows.tolist() == [1, 2]


def test_an_epoch_is_no_step() -> None:
    """An annotation that holds several batches and updates."""
    marks = [annotation("epoch", 1_200 * i, 1_199) for i in range(4)]
    events = [event for i, letter in enumerate("LFBS" * 12) for event in part(letter, PART_US * i)]
    assert find_marks(read([*marks, *events])).source == "data_loader"
    inner = [annotation("train_step", 400 * i, 399) for i in range(12)]
    assert find_marks(read([*inner, *events])).source == "annotation"
    accumulated = [event for i, letter in enumerate("LFBLFBLFBF.S" * 4) for event in part(letter, PART_US * i)]
    assert find_marks(read([*marks, *accumulated])).source == "annotation"


@pytest.mark.parametrize("name", [LOADER, "a phase of mine"])
def test_no_step_is_empty(name: str) -> None:
    spans = [(0, 90), (100, 90), (100, 0), (200, 90), (300, 0), (300, 90), (400, 90)]
    marks = find_marks(read([annotation(name, start, length) for start, length in spans] + work(490)))
    assert marks.source == ("data_loader" if name == LOADER else "annotation")
    assert (marks.end > marks.start).all()


def test_an_annotation_that_repeats_stands_for_the_step() -> None:
    loop = [annotation("train_step", 100 * i, 98) for i in range(5)]
    inner = [annotation("forward", 100 * i + 10, 30) for i in range(5)]
    steps = steps_of(*loop, *inner, *work(498))
    assert (steps.source, steps.names) == ("annotation", [f"train_step {i}" for i in range(1, 6)])
    assert steps.duration.tolist() == [100_000] * 4 + [98_000]


def test_what_the_loop_does_between_two_annotations_belongs_to_the_step() -> None:
    """It loads the next batch there, for example. The last range has no next one, so its step is not whole."""
    loop = [annotation("train_step", 100 * i, 80) for i in range(5)]
    steps = steps_of(*loop, *work(500))
    assert steps.names == [f"train_step {i}" for i in range(1, 5)]
    assert steps.start.tolist() == [0, 100_000, 200_000, 300_000]
    assert steps.duration.tolist() == [100_000] * 4


@pytest.mark.parametrize(
    "annotations",
    [
        [annotation("train_step", 100 * i, 80) for i in range(2)],  # too few
        [annotation("train_step", 100 * i, 30) for i in range(5)],  # fills too little of the time
        [annotation("train_step", 20 * i, 18) for i in range(5)],  # covers too little of the trace
        [annotation("train_step", 100 * i, 95 if i else 10) for i in range(4)] + [annotation("train_step", 400, 399)],
        [annotation("train_step", 100 * i, 150) for i in range(4)],  # overlap
        [annotation("nccl:all_reduce", 100 * i, 90) for i in range(5)],  # part of a step
        [annotation("Optimizer.zero_grad#SGD.zero_grad", 100 * i, 90) for i in range(5)],
        [annotation(f"block {i}", 100 * i, 90) for i in range(5)],
        [],
    ],
)
def test_else_the_whole_trace_is_one_window(annotations: list[Json]) -> None:
    steps = steps_of(*annotations, *work(490), kernel("k", 5, 10, 1))
    assert (steps.source, steps.names, steps.count) == ("window", ["whole trace"], 1)
    assert steps.span == (0, max(485_000, *(1_000 * int(a["ts"] + a["dur"]) for a in annotations), 0))


def test_an_optimizer_inside_another_one_is_no_second() -> None:
    events = [event for i, letter in enumerate("FBS" * 6) for event in part(letter, PART_US * i)]
    inner = [annotation(ADAM, event["ts"] + 10, 60) for event in events if event["name"] == SGD]
    marks = find_marks(read([*events, *inner]))
    assert marks.names == [f"{SGD} {i}" for i in range(1, 6)]


@pytest.mark.real_traces
@pytest.mark.parametrize(
    ("file", "source", "typical_us", "steps"),
    [
        ("traces/public/param_resnet_2080ti.json.gz", "data_loader", 322_000, 29),
        ("traces/public/param_linear_2080ti.json.gz", "optimizer", 25_600, 39),
        ("traces/public/tl_ddp_resnet18_mi300.json.gz", "optimizer", 1_053_000, 4),
        ("unseen/wings_4090d_eager.json.gz", "compiled_region", 5_040, 3),
        ("unseen/kin_v100_nw4_a.json.gz", "profiler_step", 117_000, 6),  # the last with the stop of the profiler
        ("unseen/tbfeb_nw0.json.gz", "profiler_step", 152_500, 6),  # the first cut by work from before
        ("unseen/shrey_s0p0.json.gz", "profiler_step", 1_072, 1),  # and an empty mark
        ("traces/tracelens/perf_model/normalization/normalization_layer_test.json.gz", "window", 1_181_000, 1),
    ],
)
def test_steps_of_real_jobs(file: str, source: str, typical_us: float, steps: int) -> None:
    path = SHARED / file
    if not path.is_file():
        pytest.skip(f"{file} is not among the real traces")
    with path.open("rb") as stream:
        facts = Facts(read_trace(stream, file))
    assert (facts.recorded_steps.source, facts.recorded_steps.count) == (source, steps)
    assert facts.step_ns / 1e3 == pytest.approx(typical_us, rel=0.005)
