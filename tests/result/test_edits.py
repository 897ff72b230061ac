"""Edits as code for people, and what a program reads of them."""

from __future__ import annotations

import msgspec
import pytest

from traceopt.result.edits import (
    Call,
    CallEvery,
    Compile,
    Edit,
    RemoveCall,
    Replace,
    SetArguments,
    SetAttribute,
    SetVariable,
    Wrap,
)
from traceopt.result.encoding.serialization import to_json
from traceopt.result.finding import Fix

GRAPHS = {"mode": '"reduce-overhead"'}
EDITS: list[tuple[Edit, str, dict[str, str]]] = [
    (
        SetArguments("DataLoader", {"num_workers": "4", "pin_memory": "True"}),
        "DataLoader(..., num_workers=4, pin_memory=True)",
        {"DataLoader.num_workers": "4", "DataLoader.pin_memory": "True"},
    ),
    (Compile(), "model = torch.compile(model)", {"torch.compile": "model"}),
    (
        Compile(arguments=GRAPHS),
        'model = torch.compile(model, mode="reduce-overhead")',
        {"torch.compile": "model", "torch.compile.mode": '"reduce-overhead"'},
    ),
    (
        Wrap("torch.autocast", "a = f(x)\nb = g(a)", {"dtype": "torch.bfloat16"}),
        "with torch.autocast(dtype=torch.bfloat16):\n    a = f(x)\n    b = g(a)",
        {"torch.autocast": "", "torch.autocast.dtype": "torch.bfloat16"},
    ),
    (SetVariable("OMP_NUM_THREADS", "8"), "export OMP_NUM_THREADS=8", {"OMP_NUM_THREADS": "8"}),
    (SetVariable("CUDA_LAUNCH_BLOCKING", None), "unset CUDA_LAUNCH_BLOCKING", {"CUDA_LAUNCH_BLOCKING": ""}),
    (SetAttribute("a.b", "True"), "a.b = True", {"a.b": "True"}),
    (Call("gc.freeze"), "gc.freeze()", {"gc.freeze": ""}),
    (CallEvery("log", 50), "if step % 50 == 0:\n    log(...)", {"log.every": "50"}),
    (
        RemoveCall("torch.cuda.synchronize"),
        "# without torch.cuda.synchronize()",
        {"torch.cuda.synchronize.removed": ""},
    ),
    (Replace("f", "x", "g(h(x))"), "f(x)  # instead of g(h(x))", {"f": "x"}),
]


@pytest.mark.parametrize(("edit", "code", "settings"), EDITS)
def test_code_and_settings(edit: Edit, code: str, settings: dict[str, str]) -> None:
    fix = Fix("", edits=[edit])
    assert (fix.code, fix.settings) == (code, settings)


def test_a_document_keeps_the_edits() -> None:
    fix = Fix(
        "Do it.", edits=[edit for edit, _, _ in EDITS], in_framework=SetArguments("Trainer", {"benchmark": "True"})
    )
    assert msgspec.json.decode(to_json(fix), type=Fix) == fix
    assert fix.code == "Trainer(..., benchmark=True)"


def test_a_longer_example_stays() -> None:
    assert Fix("", code="for people", edits=[Compile()]).code == "for people"
    assert Fix("").code is None
