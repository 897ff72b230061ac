"""Which changes are tried, and how each is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from support.traces import GetExample

from traceopt.errors import ConfigError, InputError
from traceopt.result.edits import Call, CallEvery, Compile, Edit, SetArguments, SetAttribute, SetVariable, Wrap
from traceopt.result.finding import Fix
from traceopt.rules.fixes.run_time import at_run_time
from traceopt.trying import changes
from traceopt.trying.session import prediction_of


def test_the_plan_in_its_order(example: GetExample) -> None:
    result = example("slow_loader").result
    patched = [replace(f, fix=replace(f.fix, patch="--- a/x\n+++ b/x\n")) for f in result.findings]
    made, left = changes.changes_of(replace(result, findings=patched), (), 3)
    assert [change.name for change in made] == [row.code for row in result.plan][:3]
    assert all(change.via == "patch" and change.finding is not None for change in made)
    assert not left
    [row, *_] = result.plan
    predicted = prediction_of(made[0], [])
    assert predicted is not None
    assert predicted.us == pytest.approx(row.alone_us, rel=0.01)


def test_without_a_patch_a_setting_has_the_effect(example: GetExample) -> None:
    result = example("slow_loader").result
    [change], _ = changes.changes_of(result, ("DL001",), None)
    assert change.via == "runtime"
    assert change.switches["loader_workers"] >= 1


def test_a_fix_for_a_person(example: GetExample) -> None:
    result = example("slow_loader").result
    findings = [replace(f, code="DL002", fix=Fix("Move it")) for f in result.findings if f.code == "DL001"]
    made, [left] = changes.changes_of(replace(result, findings=findings, plan=[]), (), 3)
    assert not made
    assert left.code == "DL002"


def test_a_variable_in_the_fix_is_set(example: GetExample) -> None:
    result = example("slow_loader").result
    variables = {"OMP_NUM_THREADS": "2", "MALLOC_MMAP_MAX_": "0", "LD_PRELOAD": "evil.so", "CUDA_LAUNCH_BLOCKING": None}
    fix = Fix("Set it", edits=[SetVariable(name, value) for name, value in variables.items()])
    findings = [replace(f, code="PY002", fix=fix) for f in result.findings if f.code == "DL001"]
    [change], _ = changes.changes_of(replace(result, findings=findings, plan=[]), (), 3)
    assert (change.via, change.environment) == ("runtime", {"OMP_NUM_THREADS": "2", "MALLOC_MMAP_MAX_": "0"})


@pytest.mark.parametrize(
    ("edits", "switches"),
    [
        ([SetArguments("DataLoader", {"num_workers": "0"})], {"loader_workers": 0}),
        ([SetArguments("DataLoader", {"sampler": "BatchSampler(...)", "batch_size": "None"})], {"batch_fetch": True}),
        ([Call("torch.set_flush_denormal", "True")], {"flush_denormal": True}),
        ([SetArguments("DataLoader", {"num_workers": "2 * current", "persistent_workers": "True"})], None),
        ([SetArguments("DataLoader", {"batch_size": "2 * batch_size"})], None),
        ([SetArguments("DataLoader", {"persistent_workers": "True"})], {"persistent_workers": True}),
        (
            [SetArguments("DataLoader", {"num_workers": "4", "prefetch_factor": "4", "pin_memory": "True"})],
            {"loader_workers": 4, "pin_memory": True},
        ),
        ([SetArguments("torch.optim.Adam", {"fused": "True"})], {"fused_optimizer": True}),
        ([SetArguments("torch.optim.RMSprop", {"foreach": "True"})], None),
        ([SetAttribute("torch.backends.cudnn.benchmark", "True")], {"cudnn_benchmark": True}),
        ([Call("torch.set_float32_matmul_precision", '"high"')], {"tf32": True}),
        ([Call("torch.set_float32_matmul_precision", '"medium"')], None),
        ([Call("gc.freeze"), Call("gc.disable")], {"gc_freeze": True}),
        ([CallEvery("torch.save", 500)], {"rare_saves": True}),
        ([Wrap("model.no_sync", "loss.backward()")], {"reduce_once": True}),
        ([Compile()], {"compile": {}}),
        ([Compile(arguments={"fullgraph": "True"})], None),
        ([SetArguments("model.to", {"memory_format": "torch.channels_last"})], {"channels_last": True}),
    ],
)
def test_a_switch_has_the_effect_of_an_edit(edits: list[Edit], switches: dict[str, Any] | None) -> None:
    made = at_run_time(Fix("", edits=edits))
    assert (None if made is None else made.switches) == switches


def test_a_setting_of_the_trainer_is_tried_as_the_call_that_it_stands_for(example: GetExample) -> None:
    """The Trainer's own name of the argument is for people and patches."""
    result = example("slow_loader").result
    trainer = SetArguments("TrainingArguments", {"dataloader_num_workers": "2"})
    fix = Fix("", edits=[SetArguments("DataLoader", {"num_workers": "2"})], in_framework=trainer)
    findings = [replace(f, fix=fix) for f in result.findings if f.code == "DL001"]
    [change], left = changes.changes_of(replace(result, findings=findings, plan=[]), (), 3)
    assert fix.code == "TrainingArguments(..., dataloader_num_workers=2)"
    assert (change.via, change.switches, left) == ("runtime", {"loader_workers": 2}, [])


def test_an_unknown_fix(example: GetExample) -> None:
    with pytest.raises(ConfigError, match="did you mean 'DL001'"):
        changes.changes_of(example("slow_loader").result, ("DL01",), None)


def test_changes_of_the_user(tmp_path: Path) -> None:
    assert changes.arguments_change('--workers 8 --name "a b"').arguments == ("--workers", "8", "--name", "a b")
    assert changes.environment_change("HF_TOKEN=hidden").name == "HF_TOKEN=…"
    assert changes.environment_change("A=b=c").environment == {"A": "b=c"}
    assert changes.revision_change("main~1").revision == "main~1"
    for make, text in (
        (changes.arguments_change, '"open'), (changes.arguments_change, ""), (changes.environment_change, "A"),
        (changes.environment_change, "1=2"), (changes.revision_change, "--upload-pack=x"),
    ):  # fmt: skip
        with pytest.raises(ConfigError):
            make(text)
    (tmp_path / "note.txt").write_text("no diff")
    for name in ("note.txt", "missing.diff"):
        with pytest.raises(InputError):
            changes.patch_change(tmp_path / name)


def test_names_are_unique() -> None:
    same = [changes.environment_change("A=1")] * 2
    assert [change.name for change in changes.with_unique_names(same)] == ["A=1", "A=1 (2)"]
