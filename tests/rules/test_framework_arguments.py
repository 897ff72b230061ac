"""Fixes in the words of the training framework that owns the switch, at the line of its settings."""

from __future__ import annotations

from typing import Any

import pytest
from support.findings import RULES

from traceopt.analyzer.facts import Facts
from traceopt.result.edits import Compile, Edit, SetAttribute
from traceopt.result.finding import Finding, Fix
from traceopt.result.words.effort_and_risk import Effort, Risk
from traceopt.rules.catalogue.tc001_fp32_matmul import _autocast
from traceopt.rules.engine import run_rules
from traceopt.rules.fixes.framework_arguments import in_framework
from traceopt.rules.fixes.run_time import at_run_time
from traceopt.rules.fixes.same_edit import same_edit
from traceopt.testing import events as build

MAIN = "train.py(30): main"
TRAINER = ["transformers/trainer.py(1576): train", MAIN]
FRAMES = {
    "transformers": "transformers/trainer.py(2013): training_step",
    "lightning": "lightning/pytorch/loops/fit_loop.py(232): advance",
    "accelerate": "accelerate/accelerator.py(2829): backward",
}
CLASSES = {"transformers": "TrainingArguments", "lightning": "Trainer", "accelerate": "Accelerator"}


def training(framework: str, *, loader: list[str] | None = None, optimizer: list[str] | None = None) -> Facts:
    """Steps of 10 ms: 6 ms waiting for data, then the model, then AdamW; `loader` and `optimizer` say who made them."""
    own: dict[str, Any] = {
        "environment": {"cpu_affinity": 8},
        "frameworks": [
            {"framework": framework, "class": CLASSES[framework], "built": [["train.py(12): main", MAIN]]},
            {"framework": framework, "class": CLASSES[framework], "built": [TRAINER[:1]]},  # no line of the user
        ],
    }
    if loader is not None:
        own["loaders"] = [{"num_workers": 0, "batches": 100, "built": [loader]}]
    if optimizer is not None:
        own["optimizers"] = [{"class": "torch.optim.adamw.AdamW", "built": [optimizer]}]
    events = []
    for index in range(4):
        t = index * 10_000
        events += [build.annotation(f"ProfilerStep#{index}", t, 10_000), build.python("train.py(5): main", t, 10_000)]
        events += [build.python(FRAMES[framework], t, 10_000)]
        events.append(build.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", t, 6_000))
        events.append(build.op("aten::mm", t + 6_000, 1_500))
        events.append(build.op("autograd::engine::evaluate_function: MmBackward0", t + 7_500, 500))
        events.append(build.annotation("Optimizer.step#AdamW.step", t + 8_000, 2_000))
        events += [build.op("aten::addcdiv_", t + 8_000 + 30 * n, 25) for n in range(60)]
    return Facts(build.read(build.document(events, traceopt=own)))


def the(code: str, facts: Facts) -> tuple[str | None, str]:
    """The code of the only finding's fix, and its first place."""
    [finding] = run_rules([RULES[code]], facts, debug=True).findings
    return finding.fix.code, str(finding.locations[0])


def test_the_trainer_makes_the_loader() -> None:
    code, place = the("DL001", training("transformers", loader=TRAINER))
    assert code is not None
    assert code.startswith("TrainingArguments(..., dataloader_num_workers=")
    assert "dataloader_persistent_workers=True" in code
    assert place == "train.py:12"


@pytest.mark.parametrize("framework", FRAMES)
def test_a_loader_that_the_script_makes_is_changed_where_it_is_made(framework: str) -> None:
    code, place = the("DL001", training(framework, loader=["data.py(7): loaders", MAIN]))
    assert code is not None
    assert code.startswith("DataLoader(..., num_workers=")
    assert place == "data.py:7"


def test_the_trainer_makes_the_optimizer() -> None:
    assert the("OP001", training("transformers", optimizer=TRAINER)) == (
        'TrainingArguments(..., optim="adamw_torch_fused")',
        "train.py:12",
    )


@pytest.mark.parametrize("framework", FRAMES)
def test_an_optimizer_that_the_script_makes_is_changed_where_it_is_made(framework: str) -> None:
    code, place = the("OP001", training(framework, optimizer=["net.py(7): configure_optimizers", *TRAINER]))
    assert code == "torch.optim.AdamW(..., fused=True)"
    assert place == "net.py:7"


BF16, FP16 = _autocast(True).edits, _autocast(False).edits
BENCHMARK: list[Edit] = [SetAttribute("torch.backends.cudnn.benchmark", "True")]
GRAPHS: list[Edit] = [Compile(arguments={"mode": '"reduce-overhead"'})]


def finding(edits: list[Edit]) -> Finding:
    return Finding(
        "XX001", "", "", "high", "high", Effort.ONE_LINE, Risk.NONE, None, "", [], [], Fix("Do it.", edits=edits)
    )


@pytest.mark.parametrize(
    ("framework", "plain", "wanted"),
    [
        ("transformers", BF16, "TrainingArguments(..., bf16=True)"),
        ("transformers", FP16, "TrainingArguments(..., fp16=True)"),
        ("lightning", BF16, 'Trainer(..., precision="bf16-mixed")'),
        ("lightning", FP16, 'Trainer(..., precision="16-mixed")'),
        ("accelerate", BF16, 'Accelerator(..., mixed_precision="bf16")'),
        ("lightning", BENCHMARK, "Trainer(..., benchmark=True)"),
        ("accelerate", BENCHMARK, None),
        ("transformers", [Compile()], "TrainingArguments(..., torch_compile=True)"),
        ("transformers", GRAPHS, 'TrainingArguments(..., torch_compile=True, torch_compile_mode="reduce-overhead")'),
        ("transformers", [Compile(), *BENCHMARK], None),  # it has no argument for the second
        ("transformers", [], None),
    ],
)
def test_switches(framework: str, plain: list[Edit], wanted: str | None) -> None:
    before = finding(plain)
    after = in_framework(before, training(framework))
    if wanted is None:
        assert after is before
    else:
        assert after.fix.code == wanted
        assert [str(place) for place in after.locations] == ["train.py:12"]
        assert wanted.partition("(")[0] in after.fix.text
        assert after.fix.edits == plain


def test_one_argument_of_the_trainer_makes_two_fixes_like_one_call() -> None:
    facts = training("transformers")
    plain, graphs, other = (in_framework(finding(edits), facts) for edits in ([Compile()], GRAPHS, BF16))
    assert same_edit(plain, graphs)
    assert not same_edit(plain, other)


def test_a_loader_of_the_trainer_gets_workers_in_a_trial() -> None:
    """`traceopt try` changes every DataLoader, whoever constructs it."""
    [found] = run_rules([RULES["DL001"]], training("transformers", loader=TRAINER), debug=True).findings
    made = at_run_time(found.fix)
    assert made is not None
    assert made.switches.keys() == {"loader_workers", "persistent_workers"}


def test_a_script_without_a_framework_keeps_its_fix() -> None:
    before = finding(BF16)
    plain = [build.annotation("ProfilerStep#0", 0, 100), build.python("train.py(5): main", 0, 100)]
    assert in_framework(before, Facts(build.read(plain))) is before
