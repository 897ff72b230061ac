"""The place of a finding: the deepest line of the user's or a model's code, then the user's line that calls it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from sample import rich
from support.real import find, result_of
from support.traces import READABLE

from traceopt.reports.words.fixes import fix_cards
from traceopt.result.edits import SetArguments, SetAttribute, SetVariable
from traceopt.result.finding import Fix, Location
from traceopt.rules.catalogue.cv001_layout_conversion import LayoutConversion
from traceopt.rules.catalogue.hs003_explicit_synchronize import ExplicitSynchronize
from traceopt.rules.catalogue.lb006_python_bound import PythonBound
from traceopt.rules.fixes.patches.patch import with_patches
from traceopt.rules.savings.price import Price
from traceopt.testing import A100, Machine, answer

# Written down here once more, by what a reader would call infrastructure: not by the table under test.
INFRASTRUCTURE = re.compile(
    r"(?:^|/)(?:torch|packaging|importlib|logging|contextlib|functools|typing|threading|multiprocessing|numpy|PIL|tqdm|"
    r"loguru|accelerate|runpy|concurrent|collections|subprocess|socket|queue|inspect|copy|json|re)(?:/|\.py$)"
    r"|site-packages|dist-packages|/lib/python|^<|torch_guard|transformers/(?:utils|trainer|modeling_utils|generation)"
    r"|(?:^|/)profiler/"
)


def every_place(value: Any) -> Iterator[Location]:
    """All locations in a result document."""
    if isinstance(value, Location):
        yield value
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from every_place(getattr(value, name))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from every_place(item)


@pytest.mark.real_traces
def test_no_place_of_a_real_trace_is_infrastructure() -> None:
    places = [(file, place) for file in READABLE for place in every_place(result_of(file))]
    assert len(places) > 1_000
    assert [(file, str(place)) for file, place in places if INFRASTRUCTURE.search(place.file)] == []


@pytest.mark.real_traces
@pytest.mark.parametrize(
    ("part", "code", "deepest", "caller"),
    [
        ("owlv2", "AT001", "transformers/models/owlv2/modeling_owlv2.py:410", "adapters/pipeline/model.py:40"),
        ("timesformer", "AT001", "transformers/models/timesformer/modeling_timesformer.py:200", "pipeline/model.py:40"),
        (
            "timesformer",
            "DL002",
            "transformers/models/videomae/image_processing_videomae.py:235",
            "pipeline/model.py:40",
        ),
        ("Qwen1.5", "LB003", "transformers/models/qwen2/modeling_qwen2.py:68", "adapters/text_base_model.py:28"),
        ("num_workers_4", "LB003", "torchvision/models/resnet.py:233", "resnet50_profiler_api.py:46"),
    ],
)
def test_the_models_line_is_named_before_the_adapter(part: str, code: str, deepest: str, caller: str) -> None:
    (finding,) = [finding for finding in find(part).findings if finding.code == code]
    assert str(finding.locations[0]) == deepest
    assert str(finding.locations[1]).endswith(caller)


@pytest.mark.real_traces
def test_a_loader_is_named_by_its_loop_and_by_what_it_runs() -> None:
    """The pipeline's loader preprocesses in the main process."""
    (finding,) = [finding for finding in find("owlv2").findings if finding.code == "DL001"]
    loop, preprocessing = finding.locations
    assert str(loop).endswith("adapters/pipeline/model.py:40")
    assert str(preprocessing) == "transformers/models/owlv2/image_processing_owlv2.py:301"


RESNET = "torchvision/models/resnet.py:284"
MAIN_FRAME, MODEL = "train.py(10): main", "transformers/models/gpt2/modeling_gpt2.py(300): forward"


@pytest.mark.parametrize(
    ("frames", "places"),
    [
        ([MAIN_FRAME], ["train.py:10"]),
        ([MAIN_FRAME, MODEL], ["transformers/models/gpt2/modeling_gpt2.py:300", "train.py:10"]),
        ([MAIN_FRAME, MODEL, "hooks.py(7): on_forward"], ["hooks.py:7"]),
        ([MAIN_FRAME, "transformers/pipelines/base.py(20): __call__"], ["train.py:10"]),
        (["transformers/pipelines/base.py(20): __call__"], []),
    ],
)
def test_the_deepest_line_of_the_users_or_the_models_code(frames: list[str], places: list[str]) -> None:
    machine = Machine(A100, with_stack=1)
    for _ in range(5):
        with machine.step(), ExitStack() as around:
            for frame in [*frames, "torch/nn/modules/module.py(9): _call_impl", "packaging/version.py(348): __init__"]:
                around.enter_context(machine.python(frame))
                machine.idle(2)
            machine.launch(1_000)
            machine.synchronize()
            for _ in range(8):
                with machine.python("<built-in method append of list object>"):
                    machine.idle(500)
    (finding,) = answer(PythonBound, machine)[1]
    assert [str(place) for place in finding.locations] == places


@pytest.mark.parametrize(
    ("frames", "places"),
    [
        (["train.py(10): main", "torchvision/models/resnet.py(284): forward"], ["train.py:10", RESNET]),
        (["torchvision/models/resnet.py(284): forward"], [RESNET]),
        (["train.py(10): main", "net.py(5): forward"], ["net.py:5"]),
    ],
)
def test_the_users_line_comes_first_where_it_has_the_arguments_to_set(frames: list[str], places: list[str]) -> None:
    """channels_last is set on the model and its input, not in a library's forward pass."""
    machine = Machine(A100, with_stack=1)
    for _ in range(5):
        with machine.step(), ExitStack() as around:
            for frame in frames:
                around.enter_context(machine.python(frame))
                machine.idle(2)
            with machine.operator("aten::cudnn_convolution"):
                machine.launch(1_000, name="void cudnn::ops::nchwToNhwcKernel<__half, __half, float>(x)")
                machine.launch(1_000, name="sm80_xmma_fprop_implicit_gemm_f16f16_f16f32")
            machine.synchronize()
    (finding,) = answer(LayoutConversion, machine)[1]
    assert [str(place) for place in finding.locations] == places


def test_the_users_lines_are_in_the_order_of_their_cost() -> None:
    """The model's work costs most, so its caller comes before the user's own loss."""
    machine = Machine(A100, with_stack=1)
    for _ in range(5):
        with machine.step():
            machine.launch(100)
            machine.synchronize()
            for frames, calls in ((["train.py(20): forward", MODEL], 8), (["train.py(30): loss"], 4)):
                with ExitStack() as around:
                    for frame in frames:
                        around.enter_context(machine.python(frame))
                        machine.idle(2)
                    for _ in range(calls):
                        with machine.python("<built-in method append of list object>"):
                            machine.idle(500)
    (finding,) = answer(PythonBound, machine)[1]
    assert [str(place) for place in finding.locations] == [
        "transformers/models/gpt2/modeling_gpt2.py:300",
        "train.py:20",
        "train.py:30",
    ]


def test_the_patch_is_of_the_users_file(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import torch\nfor batch in loader:\n    loss = model(batch)\n    torch.cuda.synchronize()\n"
    )
    where = [Location("torchvision/models/resnet.py", 3, "forward"), Location("train.py", 4, "<module>")]
    saving = Price(1, 1, 1, 0.5, "", (1, 1, 1))
    rule = ExplicitSynchronize()
    finding = rule.finding(why="", fix=rule.fix, saving=saving, evidence=[], locations=where).finding
    (patched,) = with_patches([finding], [tmp_path], debug=True)
    assert patched.fix.patch is not None
    assert "-    torch.cuda.synchronize()" in patched.fix.patch


@pytest.mark.real_traces
def test_evidence_does_not_repeat_its_line() -> None:
    """`modeling_owlv2.py:410` is the row's location, so the detail holds the operator alone."""
    rows = [row for file in READABLE for one in result_of(file).findings for row in one.evidence]
    located = [row for row in rows if row.location is not None and row.detail is not None]
    assert any(row.detail == "aten::bmm" for row in located)
    assert [row for row in located if str(row.location) in str(row.detail)] == []


@pytest.mark.real_traces
def test_no_finding_blames_the_profiler_or_takes_more_than_the_step() -> None:
    blamed, longer = [], []
    for file in READABLE:
        result = result_of(file)
        for finding in result.findings:
            rows = [row for row in finding.evidence if row.detail != "inside"]
            blamed += [
                (file, row.what) for row in rows if re.search("metadata_json|torch/(autograd/)?profiler", row.what)
            ]
            if finding.code == "LB006":
                longer += [(file, row) for row in rows if (row.us_per_step or 0) > result.step.median_us]
                stall_us = finding.saving.high_us if finding.saving is not None else 0.0
                assert sum(row.us_per_step or 0.0 for row in rows) <= 1.001 * max(stall_us, result.step.median_us)
    assert (blamed, longer) == ([], [])


@pytest.mark.real_traces
def test_the_head_size_of_owlv2_is_64() -> None:
    finding = next(one for one in find("owlv2").findings if one.code == "GM001")
    assert "sequence length 5185 to 5192" in finding.fix.text
    assert "head size" not in finding.fix.text


def test_a_setting_of_the_process_names_no_line() -> None:
    located = next(one for one in rich().findings if one.locations)
    assert fix_cards.place(located) == located.locations[0].shown
    for edit in (SetVariable("OMP_NUM_THREADS", "8"), SetAttribute("torch.backends.cudnn.benchmark", "True")):
        assert fix_cards.place(replace(located, fix=Fix("Set it.", edits=[edit]))) is None
    beside = [SetVariable("OMP_NUM_THREADS", "8"), SetArguments("DataLoader", {"num_workers": "8"})]
    assert fix_cards.place(replace(located, fix=Fix("Set both.", edits=beside))) is not None
