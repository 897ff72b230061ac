"""Where objects were constructed: the user's line, and the library that called the constructor."""

from __future__ import annotations

import pytest

from traceopt.analyzer.run_log.constructions import (
    Construction,
    find_framework,
    read_construction,
    read_framework_settings,
)
from traceopt.analyzer.tables.trace import Trace
from traceopt.result.finding import Location
from traceopt.testing import events as build

MAIN = "train.py(30): main"
OF_TRAINER = ["transformers/trainer.py(928): get_train_dataloader", "transformers/trainer.py(1576): train", MAIN]
OF_ACCELERATE = ["accelerate/data_loader.py(441): __init__", "accelerate/accelerator.py(1558): prepare", MAIN]


def built(line: int, function: str, library: str | None = None) -> Construction:
    return Construction(Location("train.py", line, function), library)


def test_a_constructor_that_the_script_calls() -> None:
    assert read_construction([["train.py(12): data", MAIN]]) == built(12, "data")


def test_a_constructor_that_a_library_calls_is_at_the_line_that_calls_the_library() -> None:
    assert read_construction([OF_TRAINER]) == built(30, "main", "transformers")


def test_of_a_replaced_loader_the_first_construction_counts() -> None:
    assert read_construction([OF_ACCELERATE, ["train.py(12): data", MAIN]]) == built(12, "data")
    assert read_construction([OF_ACCELERATE, OF_TRAINER]) == built(30, "main", "transformers")
    assert read_construction([OF_ACCELERATE]) == built(30, "main", "accelerate")


@pytest.mark.parametrize("odd", [None, 3, "train.py(3): x", [], [[]], [[3, None]], [["nothing"]], [{"a": 1}]])
def test_odd_stacks_are_ignored(odd: object) -> None:
    assert read_construction(odd) is None


def test_settings_of_an_unknown_framework_or_class_are_left_out() -> None:
    row = {"framework": "transformers", "class": "TrainingArguments", "built": [[MAIN]]}
    [found] = read_framework_settings([row, row | {"framework": "x"}, row | {"class": "x(y)"}, row | {"built": 1}, 4])
    assert (found.framework, found.class_name, found.built) == (
        "Hugging Face Trainer",
        "TrainingArguments",
        built(30, "main"),
    )


def frames(*names: str) -> Trace:
    return build.read([build.annotation("ProfilerStep#0", 0, 100), *(build.python(name, 0, 100) for name in names)])


def test_the_frames_name_the_framework_that_runs_the_steps() -> None:
    trainer, accelerate = "transformers/trainer.py(2013): training_step", "accelerate/optimizer.py(152): step"
    settings = read_framework_settings([{"framework": "accelerate", "class": "Accelerator", "built": [[MAIN]]}])
    assert find_framework(frames(MAIN, accelerate, trainer), []) == "Hugging Face Trainer"
    assert find_framework(frames(MAIN, accelerate), []) == "Accelerate"
    assert find_framework(frames("lightning/pytorch/loops/fit_loop.py(232): advance"), []) == "Lightning"
    assert find_framework(frames(MAIN), settings) is None  # constructed, but another loop runs
    assert find_framework(frames(), settings) == "Accelerate"
