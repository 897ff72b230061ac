"""The start-up of a process: which part a stack belongs to, and the thread that samples stacks."""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
import threading
from types import CodeType, ModuleType

import pytest
from runs import Run
from support.waiting import until

from traceopt.capture.start_up import stack_sampler, start_up
from traceopt.capture.start_up.breakdown import parts_of
from traceopt.capture.start_up.parts import Frame, Part, base_finder, classify
from traceopt.capture.start_up.stack_sampler import Stack, StackSampler, stack_of
from traceopt.capture.start_up.start_up import StartUp

TASKS = "/proc/self/task"
SITE = "/env/lib/python3.11/site-packages/"
IMPORT = "<frozen importlib._bootstrap>: _find_and_load"


def frames(*names: str) -> list[Frame]:
    """From "file: function", the outermost first; files are those of a package unless they are train.py."""
    made = []
    for name in names:
        file, function = name.split(": ")
        made.append(Frame(file if file.startswith(("/", "<")) else SITE + file, function))
    return made[::-1]


TRAIN = "/work/train.py: main"
SCRIPT = "/work/train.py: <module>"
NEXT = "torch/utils/data/dataloader.py: __next__"
COMPILES = "torch/_dynamo/convert_frame.py: _compile"

STACKS: dict[Part, list[tuple[str, ...]]] = {
    "imports": [
        (SCRIPT, IMPORT, "torch/__init__.py: <module>", IMPORT, "torch/_ops.py: <module>"),
        (SCRIPT, IMPORT),
        (SCRIPT, IMPORT, "pandas/io/api.py: <module>", "pandas/io/common.py: register"),
        (TRAIN, "transformers/modeling_utils.py: from_pretrained", IMPORT, "accelerate/__init__.py: <module>"),
    ],
    "downloads": [
        (TRAIN, "transformers/modeling_utils.py: from_pretrained", "huggingface_hub/file_download.py: http_get"),
        (TRAIN, "torch/hub.py: download_url_to_file"),
    ],
    "checkpoint": [
        (TRAIN, "torch/serialization.py: load"),
        (TRAIN, "transformers/modeling_utils.py: from_pretrained"),
        (TRAIN, "torch/nn/modules/module.py: load_state_dict", "torch/nn/modules/module.py: load"),
    ],
    "data": [
        (TRAIN, "datasets/arrow_dataset.py: map", "/work/train.py: tokenize"),
        (TRAIN, "transformers/models/auto/tokenization_auto.py: from_pretrained"),
        (SCRIPT, IMPORT, "/work/my_data.py: <module>", "pandas/io/parsers/readers.py: read_csv"),
    ],
    "model": [
        (TRAIN, "transformers/modeling_utils.py: from_pretrained", "torch/nn/init.py: normal_"),
        (TRAIN, "torch/nn/modules/module.py: to", "torch/nn/modules/module.py: _apply"),
        (TRAIN, "/work/train.py: __init__", "torch/nn/modules/linear.py: __init__"),
    ],
    "device": [(TRAIN, "torch/nn/modules/module.py: to", "torch/cuda/__init__.py: _lazy_init")],
    "process_group": [(TRAIN, "torch/distributed/distributed_c10d.py: init_process_group")],
    "compilation": [
        (TRAIN, "torch/nn/modules/module.py: _call_impl", COMPILES, "/work/train.py: forward"),
        (TRAIN, COMPILES, IMPORT, "torch/_inductor/scheduler.py: <module>"),
    ],
    "first_batch": [(TRAIN, NEXT, "/work/train.py: __getitem__", "pandas/io/parsers/readers.py: read_csv")],
    "first_step": [
        (TRAIN, "torch/nn/modules/module.py: _call_impl", "/work/train.py: forward"),
        (TRAIN, "torch/_tensor.py: backward", "torch/autograd/__init__.py: backward"),
    ],
    "other": [
        (TRAIN,),
        (TRAIN, "wandb/sdk/wandb_init.py: init"),
        (SCRIPT, IMPORT, "/work/my_data.py: <module>", "/work/my_data.py: build"),
        (TRAIN, "/work/datasets/arrow_dataset.py: map"),
    ],
}


@pytest.mark.parametrize(("part", "stack"), [(part, stack) for part, stacks in STACKS.items() for stack in stacks])
def test_the_part_of_a_stack(part: Part, stack: tuple[str, ...]) -> None:
    assert classify(frames(*stack))[0] == part


def test_an_import_has_the_users_line_and_the_package_of_that_line() -> None:
    stack = frames(SCRIPT, IMPORT, "transformers/__init__.py: <module>", IMPORT, "torch/__init__.py: <module>")
    part, package, user = classify(stack)
    assert (part, package) == ("imports", "transformers")
    assert user is not None
    assert stack[user].file == "/work/train.py"
    assert classify(frames(SCRIPT, IMPORT, "six.py: <module>"))[1] == "six"
    assert classify(frames(SCRIPT, IMPORT))[1] is None


def test_generated_code_is_not_the_users() -> None:
    generated = f"/tmp/torchinductor_me/nw/c{'a2' * 25}b.py: call"  # noqa: S108
    stack = frames(TRAIN, "torch/nn/modules/module.py: _call_impl", generated)
    assert classify(stack) == ("first_step", None, 2)


@pytest.mark.parametrize("base", ["model", "data"])
def test_methods_of_the_users_classes(base: Part) -> None:
    stack = frames(TRAIN, "/work/train.py: __init__", "/work/train.py: read")
    stack[1] = stack[1]._replace(base=base)
    assert classify(stack)[0] == base
    forward = frames(TRAIN, "/work/train.py: forward")
    forward[0] = forward[0]._replace(base="model")
    assert classify(forward)[0] == "other", "no construction"
    wrapper = frames(TRAIN, "torch/nn/parallel/distributed.py: __init__")
    wrapper[0] = wrapper[0]._replace(base="model")
    assert classify(wrapper)[0] == "process_group"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="code objects do not name their class")
def test_the_class_of_a_method_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    module = ModuleType("my_data")
    module.__file__ = f"{tmp_path}/my_data.py"
    text = (
        "class Dataset: __module__ = 'torch.utils.data.dataset'\n"
        "class Rows(Dataset):\n    def __init__(self): pass\n"
        "class Plain:\n    def __init__(self): pass\n"
        "def function(): pass\n"
    )
    exec(compile(text, module.__file__, "exec"), vars(module))  # noqa: S102
    monkeypatch.setitem(sys.modules, "my_data", module)
    find = base_finder()
    assert find(module.Rows.__init__.__code__) == "data"
    assert find(module.Plain.__init__.__code__) is None
    assert find(module.function.__code__) is None


def test_lines_are_summed_by_part() -> None:
    codes, _ = stack_of(sys._getframe())
    assert codes[0] is test_lines_are_summed_by_part.__code__
    script: CodeType = compile("x = 1\ny = 2", "/work/train.py", "exec")
    second = next(start for start, _, line in script.co_lines() if line == 2)
    stacks: list[tuple[Stack, float]] = [(([script], [at]), took) for at, took in ((second, 2), (second, 1), (0, 0.5))]
    [part] = parts_of([*stacks, (([], []), 9.0)])
    assert (part["part"], part["us"]) == ("other", 3.5e6)
    lines = [(line["file"], line["line"], line["us"]) for line in part["lines"]]
    assert lines == [("/work/train.py", 2, 3e6), ("/work/train.py", 1, 0.5e6)]


def test_the_main_thread_is_sampled_and_no_other() -> None:
    threads = threading.enumerate()
    sampler = StackSampler()
    sampler.start()
    until(lambda: len(sampler.stacks) > 1)
    assert threading.enumerate() == threads, "the script does not see it"
    sampler.stop()
    count = len(sampler.stacks)
    assert all(any(code is until.__code__ for code in codes) for (codes, _), _ in sampler.stacks)
    assert all(seconds > 0 for _, seconds in sampler.stacks)
    assert sampler.cost_s > 0
    sampler.stop()
    assert len(sampler.stacks) == count


@pytest.mark.parametrize("collects", [False, True])
def test_no_garbage_is_collected_while_frames_are_read(monkeypatch: pytest.MonkeyPatch, *, collects: bool) -> None:
    """On Python 3.11 the process could crash: the main thread returned from a frame that was being read."""
    seen: list[bool] = []
    monkeypatch.setattr(stack_sampler, "_FRAMES_MOVE", True)
    monkeypatch.setattr(stack_sampler, "stack_of", lambda _: seen.append(gc.isenabled()) or ([], []))
    was = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        StackSampler()._stack()
        assert (seen, gc.isenabled()) == ([False], collects)
    finally:
        (gc.enable if was else gc.disable)()


@pytest.mark.skipif(not os.path.exists(TASKS), reason="this system does not list threads")
def test_signals_reach_the_scripts_threads() -> None:
    """A signal that all of them block, to wait for it, would otherwise end the process in the sampling thread."""
    sampler = StackSampler()
    sampler.start()
    until(lambda: sampler.stacks)
    assert sampler._sampling is not None
    with open(f"{TASKS}/{sampler._sampling.thread_id}/status") as file:
        [blocked] = (int(line.split()[1], 16) for line in file if line.startswith("SigBlk:"))
    sampler.stop()
    assert blocked >> (signal.SIGTERM - 1) & 1
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


@pytest.mark.skipif(not os.path.exists(TASKS), reason="this system does not list threads")
@pytest.mark.parametrize("warns", [False, True])
def test_a_fork_happens_without_the_thread(monkeypatch: pytest.MonkeyPatch, *, warns: bool) -> None:
    """`warns`: as Python 3.12 does if the process has threads."""
    monkeypatch.setattr(stack_sampler, "_WARNS_ABOUT_THREADS", warns)
    monkeypatch.setattr(stack_sampler, "_has_threads", lambda: False)
    sampler = StackSampler()
    sampler.start()
    until(lambda: sampler.stacks)
    sampling = sampler._sampling
    assert sampling is not None
    sampler._pause()
    assert not os.path.exists(f"{TASKS}/{sampling.thread_id}")
    sampler._go_on()
    assert (sampler._sampling is None) is warns
    if warns:  # the garbage collector calls back later
        sampler._pause()
        sampler._go_on()  # another fork soon after
        assert stack_sampler.gc.callbacks.count(sampler._go_on_later) == 1
        sampler._paused_at = 0.0
        sampler._go_on_later("start", {})
        assert sampler._sampling is not None
    before = len(sampler.stacks)
    until(lambda: len(sampler.stacks) > before)
    sampler.stop()
    assert sampler._go_on_later not in stack_sampler.gc.callbacks


def test_a_forked_child_has_no_start_up() -> None:
    start_up = StartUp()
    start_up.first_step_ended()
    start_up.sampler._forget()
    assert start_up.document() is None


def test_a_start_up_ends_with_the_first_training_step() -> None:
    start_up = StartUp()
    assert start_up.document() is None, "not over"
    start_up.first_step_ended()
    start_up.goes_on()
    assert start_up.document() is None, "that was no training step"
    start_up.first_step_ended()
    document = start_up.document()
    assert document is not None
    assert document is start_up.document()


def test_another_thread_trains() -> None:
    start_up = StartUp()
    thread = threading.Thread(target=start_up.first_step_ended)
    thread.start()
    thread.join()
    assert start_up.document() is None


@pytest.mark.parametrize("content", [b"", b"1 (python) S 1", b"1 (a) b) S" + b" x" * 40])
def test_a_system_without_the_age_of_the_process(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_up, "open", lambda *_: io.BytesIO(content), raising=False)
    assert start_up.process_age_s() is None


@pytest.mark.run("equality.py", "--lr", "0.1", "two words", "-m")
def test_a_trace_has_the_start_up(run: Run) -> None:
    for trace in run.traces:
        start_up = trace.metadata["start_up"]
        parts = {part["part"]: part for part in start_up["parts"]}
        assert sum(part["us"] for part in parts.values()) + (start_up["python_us"] or 0) <= start_up["us"] + 1
        assert start_up["us"] > trace.metadata["ledger"]["step_us"][0]
        assert "torch" in {line["what"] for line in parts["imports"]["lines"]}
        files = {line["file"] for line in parts["imports"]["lines"]}
        assert files - {"sitecustomize.py"} == {"equality.py"}  # the first is of light_torch: slow on a busy machine
        assert trace.metadata["ledger"]["end"]["early"] is False
