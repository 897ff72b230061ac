"""Slices lead to lines of the user's code: through frames, call stacks, and the forward of a backward operator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import traceopt.capture.script.hooks
from traceopt.analyzer.timeline.call_sites import CallSites
from traceopt.analyzer.timeline.call_tree import build_slices
from traceopt.analyzer.vocabulary.python_frames import (
    is_library,
    is_model_code,
    is_place,
    parse_frame,
    shown_frame,
)
from traceopt.result.finding import Location
from traceopt.testing.events import PID, Json, annotation, op, python, read, runtime, span


def sites(events: list[Json]) -> dict[str, str]:
    """Call site of each slice by name, as "file:line function"; "" for none."""
    trace = read(events)
    slices = build_slices(trace)
    found = CallSites(trace, slices)
    out = {}
    for row, site in zip(slices.name, found.of(np.arange(len(slices))), strict=True):
        place = found.sites[site] if site >= 0 else None
        out[trace.names[row]] = f"{place.file}:{place.line} {place.function}" if place else ""
    return out


@pytest.mark.parametrize(
    ("name", "site"),
    [
        ("train.py(97): log_metrics", Location("train.py", 97, "log_metrics")),
        ("/home/ann/proj/train.py(3): <module>", Location("~/proj/train.py", 3, "<module>")),
        ("/Users/ann/a b/train.py(3): f", Location("~/a b/train.py", 3, "f")),
        ("/root/train.py(3): f", Location("~/train.py", 3, "f")),
        (r"C:\Users\ann\proj\train.py(3): f", Location("~/proj/train.py", 3, "f")),
        (r"models\net.py(3): f", Location("models/net.py", 3, "f")),
        ("/data/home/ann/train.py(3): f", Location("/data/home/ann/train.py", 3, "f")),
        ("copy(2).py(3): f", Location("copy(2).py", 3, "f")),
        ("runs/one/../../train.py(3): f", Location("train.py", 3, "f")),
        ("../train.py(3): f", Location("../train.py", 3, "f")),
        ("<built-in method item of Tensor object at 0x7f>", None),
        ("nn.Module: Linear_0", None),
        ("train.py", None),
        ("", None),
    ],
)
def test_frames_are_parsed(name: str, site: Location | None) -> None:
    assert parse_frame(name) == site


CHECKOUT = Path(__file__).parents[3].as_posix()
OWN_FILE = Path(traceopt.capture.script.hooks.__file__).as_posix()
USERS = [
    "train.py(1): f",
    "/workspace/project/train.py(1): f",
    "moca/library/profiling/profile.py(53): profile_function",
    "/home/ann/proj/models/net.py(10): forward",
    r"C:\work\train.py(1): f",
    r"models\net.py(1): f",
    "/tmp/ipykernel_123/456.py(3): <module>",  # noqa: S108
    "<ipython-input-3-abc>(1): <module>",
    "profile.py(1): main",
    "test.py(1): main",
    "torchlike/model.py(1): f",
    "/root/.cache/huggingface/modules/transformers_modules/org/modeling_own.py(1): forward",
    "zeta/nn/attention.py(1): forward",  # a package with a name that nobody listed
    "/home/ann/typing_tools.py(1): f",
    "/home/ann/proj/capture/hooks.py(1): fetch",
    f"{CHECKOUT}/examples/ddp/train.py(1): main",
]
LIBRARIES = [
    "torch/nn/modules/module.py(1501): _call_impl",
    r"torch\nn\modules\module.py(1501): _call_impl",
    "/opt/pytorch/pytorch/torch/nn/modules/module.py(1): f",
    "/usr/lib/python3.10/threading.py(973): _bootstrap",
    "/home/ann/venv/lib/python3.11/site-packages/torch/_ops.py(4): f",
    r"C:\py\Lib\site-packages\torch\_ops.py(4): f",
    "/usr/lib/python3/dist-packages/numpy/core.py(3): f",
    "threading.py(973): _bootstrap",
    "multiprocessing/queues.py(1): get",
    "typing_extensions.py(1): f",
    "packaging/version.py(348): __init__",
    "loguru/_handler.py(300): _queued_writer",
    "torch_guard.py(202): wrapper",  # of aiter, which puts its own folder on the path
    "distutils/version.py(1): f",  # of older Pythons
    r"C:\Users\ann\AppData\Local\Programs\Python\Python310\lib\contextlib.py(3): inner",
    r"C:\Users\ann\anaconda3\lib\logging\__init__.py(3): info",
    "/work/pytorch/torch/functional.py(3): einsum",
    "transformers/trainer.py(1): f",
    "tqdm/std.py(1): __iter__",
    "<frozen importlib._bootstrap>(1): f",
    "<string>(1): f",
    "<eval_with_key>.3(5): forward",
    "traceopt/capture/hooks.py(1): fetch",
    f"{OWN_FILE}(1): fetch",  # as recorded from a checkout
    f"{CHECKOUT}/traceopt/run_script.py(1): main",
    "/data/tools/capture/script/hooks.py <importlib._bootstrap>(343): fetch",  # from a checkout on another machine
    "/tmp/torchinductor_root/dn/cdnig.py(16165): call",  # noqa: S108
    "/work/triton-custom/python/triton/runtime/jit.py(364): __getitem__",
    "<built-in function len>",
    "nn.Module: Linear_0",
    "",
]


@pytest.mark.parametrize("name", USERS)
def test_frames_of_the_user(name: str) -> None:
    assert not is_library(name)


@pytest.mark.parametrize("name", LIBRARIES)
def test_frames_of_libraries(name: str) -> None:
    assert is_library(name)


MODELS = [
    "transformers/models/owlv2/modeling_owlv2.py(410): forward",
    "transformers/models/owlv2/image_processing_owlv2.py(368): preprocess",
    "/home/ann/venv/lib/python3.11/site-packages/timm/models/vision_transformer.py(70): forward",
    r"C:\py\Lib\site-packages\torchvision\models\resnet.py(89): forward",
    "diffusers/pipelines/flux/pipeline_flux.py(652): __call__",
    "sentence_transformers/models/Pooling.py(9): forward",
    "vllm/model_executor/models/llama.py(9): forward",
    "trl/models/modeling_value_head.py(9): forward",
]
NO_MODELS = [
    "transformers/modeling_utils.py(9): from_pretrained",
    "transformers/modeling_outputs.py(9): __init__",
    "transformers/models/auto/auto_factory.py(9): from_pretrained",
    "transformers/models/gpt2/configuration_gpt2.py(9): __init__",
    "transformers/trainer.py(9): training_step",
    "transformers/utils/generic.py(824): wrapper",
    "timm/models/_builder.py(9): build_model_with_cfg",
    "diffusers/pipelines/pipeline_utils.py(9): progress_bar",
    "diffusers/utils/torch_utils.py(202): is_compiled_module",
    "torch/nn/modules/linear.py(9): forward",
    "packaging/version.py(348): __init__",
    "models/modeling_mine.py(9): forward",  # the user's own
]


@pytest.mark.parametrize("name", MODELS)
def test_models_of_libraries(name: str) -> None:
    assert is_library(name)
    assert is_model_code(name)
    assert is_place(name)


@pytest.mark.parametrize("name", NO_MODELS)
def test_no_models_of_libraries(name: str) -> None:
    assert not is_model_code(name)
    assert is_place(name) is not is_library(name)


def test_a_file_of_a_package_is_named_without_the_folder_of_packages() -> None:
    site = parse_frame("/home/ann/venv/lib/python3.11/site-packages/timm/models/vit.py(70): forward")
    assert site == Location("timm/models/vit.py", 70, "forward")


@pytest.mark.parametrize(
    ("frame", "shown"),
    [
        (f"{OWN_FILE}(1): fetch", "traceopt/capture/script/hooks.py(1): fetch"),
        (f"{CHECKOUT}/traceopt/run_script.py(2): main", "traceopt/run_script.py(2): main"),
        ("/opt/env/lib/python3.12/site-packages/traceopt/capture/a.py(3): f", "traceopt/capture/a.py(3): f"),
        ("/home/ann/proj/train.py(4): load", "~/proj/train.py(4): load"),
        ("train.py(5): load", "train.py(5): load"),
        ("<built-in method item>", "<built-in method item>"),
    ],
    ids=["checkout", "package of a checkout", "installed", "home", "script", "builtin"],
)
def test_a_frame_is_shown_without_the_folders_of_the_machine(frame: str, shown: str) -> None:
    assert shown_frame(frame) == shown


def test_the_innermost_frame_of_the_user() -> None:
    found = sites(
        [
            python("train.py(50): main", 0, 100),
            python("train.py(10): step", 1, 50),
            python("torch/nn/modules/module.py(1501): _call_impl", 2, 40),
            python("nn.Module: Linear_0", 3, 38),
            op("aten::linear", 5, 20),
            runtime("cudaLaunchKernel", 6, 2, 1),
            python("<built-in method item>", 60, 10),
            op("aten::item", 61, 5),
            op("aten::elsewhere", 5, 20, tid=2),
            op("aten::later", 150, 5),
        ]
    )
    assert found["aten::linear"] == found["cudaLaunchKernel"] == found["nn.Module: Linear_0"] == "train.py:10 step"
    assert found["aten::item"] == "train.py:50 main"
    assert found["train.py(10): step"] == "train.py:10 step"
    assert found["aten::elsewhere"] == found["aten::later"] == ""


def test_models_come_before_the_line_that_calls_them_in_call_stacks_of_2021() -> None:
    packages = "/home/ann/env/lib/python3.7/site-packages"
    stack = f"{packages}/torch/nn/functional.py(1690): linear;{packages}/torchvision/models/resnet.py(89): forward;"
    trace = read([span("Operator", "aten::linear", 0, 50, **{"Call stack": stack + "train.py(46): <module>"})])
    found = CallSites(trace, build_slices(trace))
    (site,) = found.of(np.array([0]))
    assert found.sites[site] == Location("torchvision/models/resnet.py", 89, "forward")
    assert found.user_caller_of("torchvision/models/resnet.py", "forward") == Location("train.py", 46, "<module>")
    assert found.user_caller_of("train.py", "<module>") is None


def test_call_stacks_of_2021() -> None:
    library = "/home/ann/env/lib/python3.7/site-packages/torch/nn/functional.py(1690): linear"
    user = "/home/ann/proj/net.py(12): forward;/home/ann/proj/train.py(46): <module>"
    found = sites(
        [
            span("Operator", "aten::linear", 0, 50, **{"Call stack": f"{library};{user}"}),
            span("Operator", "aten::t", 1, 5, **{"Call stack": ""}),
            span("Operator", "aten::addmm", 10, 20, **{"Call stack": library}),
            runtime("cudaLaunchKernel", 12, 2, 1),
            span("Operator", "aten::lost", 60, 5, **{"Call stack": library}),
            span("Operator", "Optimizer.step#SGD.step", 70, 5, **{"Call stack": r"C:\Users\ann\train.py(9): f"}),
        ]
    )
    assert found == {
        "aten::linear": "~/proj/net.py:12 forward",
        "aten::t": "~/proj/net.py:12 forward",  # from the frame around it
        "aten::addmm": "~/proj/net.py:12 forward",
        "cudaLaunchKernel": "~/proj/net.py:12 forward",
        "aten::lost": "",
        "Optimizer.step#SGD.step": "~/train.py:9 f",
    }


def test_stacks_that_are_all_empty_are_not_recorded() -> None:
    for stack in ({"Call stack": ""}, {"Call stack": None}, {}):
        trace = read([op("aten::mm", 0, 1, **stack)])
        assert not CallSites(trace, build_slices(trace)).recorded
    for event in (python("a.py(1): f", 0, 1), op("aten::mm", 0, 1, **{"Call stack": "a.py(1): f"})):
        trace = read([event])
        assert CallSites(trace, build_slices(trace)).recorded


def forward(name: str, start: float, sequence: int) -> Json:
    return op(name, start, 2, **{"Sequence number": sequence, "Fwd thread id": 0})


def backward(name: str, start: float, sequence: int) -> Json:
    return op(name, start, 9, tid=2, **{"Sequence number": sequence, "Fwd thread id": 1})


def test_a_backward_operator_is_called_where_its_forward_was() -> None:
    """The forward is the last operator with the number: earlier ones created no autograd node."""
    found = sites(
        [
            python("train.py(1): main", 0, 100),
            python("train.py(10): zero_grad", 0, 10),
            forward("aten::zero_", 1, 5),
            python("train.py(20): forward", 10, 10),
            forward("aten::mm", 11, 5),
            forward("aten::add", 14, 6),
            backward("MmBackward0", 50, 5),
            op("aten::mm inside", 51, 3, tid=2),
            runtime("cudaLaunchKernel", 52, 1, 1, tid=2),
            backward("UnknownBackward0", 60, 77),
            backward("NoneBackward0", 70, -1),
        ]
    )
    assert found["MmBackward0"] == found["aten::mm inside"] == found["cudaLaunchKernel"] == "train.py:20 forward"
    assert found["UnknownBackward0"] == found["NoneBackward0"] == ""


def test_a_backward_operator_without_numbers_follows_its_arrow() -> None:
    def arrow(phase: str, tid: int, at: float) -> Json:
        return {"ph": phase, "id": 3, "pid": PID, "tid": tid, "ts": at, "cat": "fwdbwd", "name": "fwdbwd", "bp": "e"}

    events = [
        python("train.py(20): forward", 10, 10),
        op("aten::mm", 11, 5),
        op("MmBackward0", 50, 9, tid=2),
        op("aten::mm inside", 51, 3, tid=2),
    ]
    assert sites(events)["MmBackward0"] == ""
    found = sites([*events, arrow("s", 1, 11), arrow("f", 2, 50)])
    assert found["MmBackward0"] == found["aten::mm inside"] == "train.py:20 forward"
    assert sites([*events, arrow("f", 2, 50)])["MmBackward0"] == ""
    assert sites([*events, arrow("s", 9, 11), arrow("f", 2, 50)])["MmBackward0"] == ""


def test_the_users_own_backward_is_its_own_site() -> None:
    found = sites(
        [
            python("train.py(20): forward", 10, 10),
            forward("MyFunction", 11, 5),
            python("ops.py(7): backward", 50, 20, tid=2),
            backward("MyFunctionBackward", 51, 5),
        ]
    )
    assert found["MyFunctionBackward"] == "ops.py:7 backward"


def test_the_engine_in_the_calling_thread() -> None:
    """On a CPU the backward operator runs below the line that called backward(); its forward's line is more useful."""
    found = sites(
        [
            python("model.py(3): forward", 0, 20),
            op("aten::mul", 1, 5, **{"Sequence number": 4}),
            python("train.py(5): train", 30, 60),
            python("<built-in method run_backward of torch._C._EngineBase object at 0x7f>", 35, 50),
            op("MulBackward0", 40, 9, **{"Sequence number": 4, "Fwd thread id": 1}),
            op("AccumulateGrad", 60, 9, **{"Sequence number": 7, "Fwd thread id": 1}),
        ]
    )
    assert found["MulBackward0"] == "model.py:3 forward"
    assert found["AccumulateGrad"] == "train.py:5 train"


def test_no_slices_and_no_stacks() -> None:
    assert sites([op("aten::mm", 0, 1), annotation("x", 0, 5)]) == {"aten::mm": "", "x": ""}
    trace = read([span("kernel", "k", 0, 1)])
    found = CallSites(trace, build_slices(trace))
    assert found.of(np.array([-1, -1])).tolist() == [-1, -1]
    assert found.of(np.empty(0, np.int64)).tolist() == []


def test_a_site_is_numbered_once() -> None:
    trace = read([python("a.py(1): f", 0, 5), python("a.py(1): f", 10, 5), op("x", 1, 1), op("y", 11, 1)])
    found = CallSites(trace, build_slices(trace))
    assert found.of(np.arange(4)).tolist() == [0, 0, 0, 0]
    assert found.sites == [Location("a.py", 1, "f", begins=True)]
    assert found.sites[0].shown == "a.py:1 (def f)", "its line is where the function begins"


def recorded_lines(frames: list[tuple[str, float, float, int]], *others: Json, calling: bool = False) -> dict[str, str]:
    """Sites of slices by name, if the line of each frame's caller was recorded (0: it was not)."""
    lines = [line for *_, line in frames]
    rows = [row for row, line in enumerate(lines) if line]
    calls = {"count": len(frames), "rows": rows, "lines": [line for line in lines if line]}
    events = [*(python(name, start, duration) for name, start, duration, _ in frames), *others]
    trace = read(events, traceopt={"call_lines": calls})
    found = CallSites(trace, build_slices(trace))
    names = [trace.names[row] for row in found.slices.name]
    every = np.arange(len(names))
    sites = found.calling(every) if calling else found.of(every)
    return {
        name: f"{found.sites[site].function} {found.sites[site].line}-{found.sites[site].last_line}"
        for name, site in zip(names, sites, strict=True)
        if site >= 0
    }


LOOP = ("train.py(5): train", 0.0, 100.0, 80)


def test_work_inside_a_call_has_the_line_of_the_call() -> None:
    item = "<built-in method item of Tensor object>"
    log = ("log.py(1): log", 50.0, 20.0, 9)
    frames = [LOOP, ("torch/_tensor.py(566): backward", 10.0, 20.0, 7), log, (item, 55.0, 5.0, 3)]
    found = recorded_lines(frames, op("aten::ones_like", 12, 2), op("aten::item", 56, 3))
    assert found["aten::ones_like"] == "train 7-None"
    assert found["aten::item"] == found[item] == "log 3-None"
    assert found["log.py(1): log"] == "log 1-None"  # the site of a function is where it begins


def test_a_function_is_called_from_the_frame_around_it() -> None:
    decode = ("train.py(20): decode_batch", 10.0, 20.0, 7)
    found = recorded_lines([LOOP, decode, ("torch/a.py(1): stack", 12.0, 5.0, 22)], calling=True)
    assert found["train.py(20): decode_batch"] == "train 7-None"
    assert found["torch/a.py(1): stack"] == "decode_batch 22-None"
    assert found["train.py(5): train"] == "train 5-None"  # no user frame around it


def test_work_between_two_calls_lies_between_their_lines() -> None:
    calls = [("<built-in method a>", 10.0, 5.0, 7), ("<built-in method b>", 30.0, 5.0, 9)]
    found = recorded_lines([LOOP, *calls], op("aten::item", 20, 3), op("aten::first", 2, 3), op("aten::last", 90, 3))
    assert found["aten::item"] == "train 7-9"
    assert found["aten::first"] == found["aten::last"] == "train 5-None"


def test_work_between_two_calls_of_one_line_stands_on_it() -> None:
    calls = [("<built-in method a>", 10.0, 5.0, 7), ("<built-in method b>", 30.0, 5.0, 7)]
    assert recorded_lines([LOOP, *calls], op("aten::item", 20, 3))["aten::item"] == "train 7-None"


def test_work_where_a_loop_begins_anew_has_no_line() -> None:
    calls = [("<built-in method a>", 10.0, 5.0, 9), ("<built-in method b>", 30.0, 5.0, 7)]
    assert recorded_lines([LOOP, *calls], op("aten::item", 20, 3))["aten::item"] == "train 5-None"


def test_the_lines_of_library_code_do_not_count() -> None:
    frames = [LOOP, ("torch/a.py(1): a", 10.0, 50.0, 7), ("torch/b.py(1): b", 20.0, 20.0, 300)]
    assert recorded_lines(frames, op("aten::add", 25, 3))["aten::add"] == "train 7-None"


def test_a_step_that_begins_within_a_call_hides_it_not() -> None:
    """The steps of `traceopt run` begin in the wrapper around the DataLoader's call."""
    frames = [LOOP, ("traceopt/capture/hooks.py(1): next_batch", 10.0, 30.0, 6), ("torch/d.py(1): d", 25.0, 10.0, 206)]
    found = recorded_lines(frames, annotation("ProfilerStep#3", 20, 70), op("aten::stack", 30, 2))
    assert found["aten::stack"] == "train 6-None"


@pytest.mark.parametrize(
    "calls",
    [
        None,
        7,
        {"count": 1, "rows": [0], "lines": [80]},
        {"count": 2, "rows": [0, 2], "lines": [80, 7]},
        {"count": 2, "rows": [0, -1], "lines": [80, 7]},
        {"count": 2, "rows": [0, 1], "lines": [80]},
        {"count": 2, "rows": [0, 1], "lines": [80, "7"]},
        {"count": 2, "rows": [0, 1], "lines": [80, 0]},
        {"count": 2, "rows": [0, 1], "lines": [80, 1 << 40]},
        {"count": 2, "rows": [0, 1 << 70], "lines": [80, 7]},
    ],
)
def test_lines_that_do_not_fit_the_events_are_left(calls: object) -> None:
    frames = [python("train.py(5): train", 0, 100), python("torch/a.py(1): a", 10, 20)]
    trace = read(frames, traceopt={"call_lines": calls})
    assert trace.python.call_line.tolist() == [-1, -1]
