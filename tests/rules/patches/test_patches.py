"""Patches of fixes: what they change, that git takes them, and that they change nothing else."""

from __future__ import annotations

import ast
import multiprocessing
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from textwrap import dedent, indent

import pytest
from argument_cases import ARGUMENTS, FRAMEWORKS
from attention_cases import ATTENTION
from checkpoint_cases import CHECKPOINTS
from hypothesis import given, settings
from hypothesis import strategies as st
from loader_cases import LOADERS, WORKERS_4
from loop_cases import LOOPS
from patch_case import USUAL, Case, autocast, loader
from precision_cases import PRECISION

from traceopt.result.finding import Finding, Fix, Location
from traceopt.result.words.effort_and_risk import Effort, Risk
from traceopt.rules.fixes.patches.patch import RECIPES, combined_patch, with_patches
from traceopt.rules.fixes.patches.unified import apply_diff, unified_diff

CASES = [*FRAMEWORKS, *LOADERS, *ARGUMENTS, *PRECISION, *ATTENTION, *LOOPS, *CHECKPOINTS]
_MARK = re.compile(r"  #@(\w*)")


@pytest.fixture(autouse=True)
def _forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Linux before Python 3.14."""
    start_methods(monkeypatch, "fork", "spawn", "forkserver")


def start_methods(monkeypatch: pytest.MonkeyPatch, *methods: str) -> None:
    """What the platform offers, its default first."""
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: list(methods))


def finding(code: str, *places: Location, fix: Fix | None = None) -> Finding:
    """Without a fix: the one that the rule usually advises."""
    fix = fix or Fix("Change it.", edits=USUAL.get(code, []))
    effort, risk = Effort.ONE_LINE, Risk.NONE
    return Finding(code, code, "", "high", "high", effort, risk, None, "", [], list(places), fix)


def read(text: str) -> tuple[str, Location]:
    """A source without its marks, and the place that they mark."""
    plain = _MARK.sub("", text)
    marks = [(number, found[1]) for number, line in enumerate(text.split("\n"), 1) if (found := _MARK.search(line))]
    (first, name), last = marks[0], marks[-1][0]
    return plain, Location("train.py", first, name or None, last if last > first else None)


def patch_of(case: Case, folder: Path) -> str:
    text, place = read(case.text)
    (folder / "train.py").write_bytes(text.encode())
    [patched] = with_patches([finding(case.code, place, fix=case.fix)], [folder], debug=True)
    return patched.fix.patch or ""


def changed_lines(diff: str) -> str:
    """The lines that a diff takes and gives."""
    rows = diff.split("\n")[2:]
    return "".join(f"{row}\n" for row in rows if row[:1] in ("-", "+"))


def git_apply(patch: str, folder: Path) -> None:
    """Raises CalledProcessError where git does not take the patch, and then changes nothing."""
    subprocess.run(["git", "apply", "-"], input=patch.encode(), cwd=folder, check=True, capture_output=True)


def test_the_fix_quotes_a_value_that_comes_from_elsewhere(tmp_path: Path) -> None:
    text = """
    from torch.utils.data import DataLoader
    for batch in DataLoader(data, num_workers=args.num_workers):  #@
        train(batch)
    """
    source, place = read(dedent(text).lstrip())
    (tmp_path / "train.py").write_text(source)
    [quoted] = with_patches([finding("DL001", place, fix=Fix("Use 4.", edits=WORKERS_4))], [tmp_path], debug=False)
    assert quoted.fix.patch is None
    assert quoted.fix.text == "Use 4. train.py:2 takes num_workers from args.num_workers: set that to 4."
    assert quoted.fix.code == "num_workers=args.num_workers  # let this be 4"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_a_patch_changes(case: Case, tmp_path: Path) -> None:
    patch = patch_of(case, tmp_path)
    assert changed_lines(patch) == case.changes
    if patch:
        assert patch.startswith("--- a/train.py\n+++ b/train.py\n@@ ")
        git_apply(patch, tmp_path)
        ast.parse((tmp_path / "train.py").read_bytes())


def test_no_patch_reads_the_example_or_the_sentence(tmp_path: Path) -> None:
    for case in CASES:
        other = replace(case, fix=Fix("Lorem ipsum.", "dolor(sit)", None, case.fix.edits, case.fix.in_framework))
        assert patch_of(other, tmp_path) == patch_of(case, tmp_path), case


@pytest.mark.parametrize("default", ["forkserver", "spawn"])
def test_workers_that_import_the_script_need_a_guard(
    default: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.14 on Linux, macOS and Windows: without the guard, each worker would start the training again."""
    loop = "for x in DataLoader(data, batch_size=8):  #@\n    train(x)\n"
    plain = f"from torch.utils.data import DataLoader\n{loop}"
    guarded = f"from torch.utils.data import DataLoader\nif __name__ == '__main__':\n{indent(loop, '    ')}"
    start_methods(monkeypatch, default, "fork")
    patches = [patch_of(Case("", "DL001", text, "", Fix("", edits=WORKERS_4)), tmp_path) for text in (plain, guarded)]
    assert ["num_workers=4" in patch for patch in patches] == [False, True]


def test_each_recipe_is_tried_both_ways() -> None:
    for name in RECIPES:
        assert {bool(case.changes) for case in CASES if name in case.fix.settings} == {True, False}, name


@pytest.mark.torch
@pytest.mark.parametrize("case", [case for case in ATTENTION if case.changes], ids=str)
def test_fused_attention_gives_the_same(case: Case, tmp_path: Path) -> None:
    import torch

    before, _ = read(case.text)
    results = []
    for text in (before, apply_diff(before, patch_of(case, tmp_path))):
        torch.manual_seed(0)
        q, k, v, mask = (torch.randn(2, 3, 8, 16) for _ in range(4))
        names = {"bias": torch.ones(1, 1, 8, 8).tril(), "visible": torch.ones(9, 9).tril().bool()}
        exec(text, names)  # noqa: S102 - the table's own code
        if "attend" in names:
            results.append(names["attend"](q, k, v))
        else:
            module = names["Attention"]()
            module.qkv, module.split, module.out = (lambda x: torch.cat((x, x, x), -1)), torch.sin, torch.cos
            results.append(module(q, mask[:, 0, :, :8]))
    torch.testing.assert_close(*results)


# Lines that may stand between any two others, with ends of line that neither Python nor git counts.
FILLERS = st.lists(st.sampled_from(["", "    ", "\x0c", "#~ one", "\t#~ zwei \x0b\x1c\x85\u2028 數"]), max_size=2)
SHIFTED = [case for case in CASES if case.changes and case.name not in ("CRLF", "a synchronize with its if")]


@given(st.data())
@settings(max_examples=100)
def test_other_lines_stay(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Comments and blank lines anywhere: the same change, and all of them are still there."""
    case = data.draw(st.sampled_from(SHIFTED))
    *lines, last = case.text.split("\n")
    filled = [row for line in lines for row in (*data.draw(FILLERS), line)]
    full = replace(case, text="\n".join([*filled, last]))
    folder = tmp_path_factory.mktemp("filled")
    plain_after, full_after = (apply_diff(read(one.text)[0], patch_of(one, folder)) for one in (case, full))
    assert _code(full_after) == _code(plain_after)
    assert _comments(full_after) == _comments(full.text)


def _code(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip() and "#~" not in line]


def _comments(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n") if "#~" in line]


@given(st.text("ab\n\r\x0c\u2028"), st.text("ab\n\r\x0c\u2028"))
def test_a_diff_gives_the_text_it_was_made_of(before: str, after: str) -> None:
    assert apply_diff(before, unified_diff("x.py", before, after)) == after


def test_a_diff_of_another_text_does_not_apply() -> None:
    diff = unified_diff("x.py", "a\nb\nc\n", "a\nB\nc\n")
    for text in ("a\nb\n", "a\nb\nd\n", "0\na\nb\nc\n", ""):
        with pytest.raises(ValueError, match="does not fit"):
            apply_diff(text, diff)


@pytest.mark.parametrize("name", ["my train.py", "größe.py", "a-b+c.py", "deep/er/train.py"])
def test_odd_names(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("optimizer.zero_grad(set_to_none=False)\n")
    [patched] = with_patches([finding("OP003", Location(name, 1))], [tmp_path])
    git_apply(patched.fix.patch or "", tmp_path)
    assert file.read_text() == "optimizer.zero_grad(set_to_none=True)\n"


def test_a_folder_inside_a_repository(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / "src").mkdir()
    for folder in (tmp_path, tmp_path / "src"):
        (folder / "train.py").write_text("optimizer.zero_grad(set_to_none=False)\n")
    [patched] = with_patches([finding("OP003", Location("train.py", 1))], [tmp_path / "src"])
    git_apply(patched.fix.patch or "", tmp_path / "src")
    assert "True" in (tmp_path / "src" / "train.py").read_text()
    assert "True" not in (tmp_path / "train.py").read_text()


@pytest.mark.parametrize(
    "place",
    [
        Location("train.py", 2, "evaluate"),
        Location("train.py", 1, "train"),
        Location("train.py", 4, "train"),
        Location("train.py", 99, "train"),
        Location("train.py", None, "train"),
        Location("other.py", 3, "train"),
    ],
    ids=str,
)
def test_a_file_that_has_changed_since_gets_no_patch(place: Location, tmp_path: Path) -> None:
    source = "import torch\ndef train():\n    optimizer.zero_grad(set_to_none=False)\n    optimizer.step()\n"
    (tmp_path / "train.py").write_text(source)
    there, moved = finding("OP003", Location("train.py", 3, "train")), finding("OP003", place)
    assert [bool(one.fix.patch) for one in with_patches([there, moved], [tmp_path])] == [True, False]


def test_a_recipe_that_raises_costs_its_own_patch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text("optimizer.zero_grad(set_to_none=False)\n")
    monkeypatch.setitem(RECIPES, "torch.cuda.synchronize.removed", lambda source, _: source.nodes[1_000])
    findings = [finding(code, Location("train.py", 1)) for code in ("HS003", "OP003")]
    assert [bool(one.fix.patch) for one in with_patches(findings, [tmp_path])] == [False, True]
    with pytest.raises(IndexError):
        with_patches(findings, [tmp_path], debug=True)


def test_all_patches_together(tmp_path: Path) -> None:
    """DL001 and DL003 change the same call, HS001 and LG002 the same line in the same way; OP003 is given twice."""
    (tmp_path / "train.py").write_text(
        "import torch\nfrom torch.utils.data import DataLoader\n\n"
        "loader = DataLoader(\n    data,\n    batch_size=8\n)\n"
        "for step, x in enumerate(loader):\n    x = x.to(device)\n    loss = model(x)\n"
        "    opt.zero_grad(set_to_none=False)\n    loss.backward()\n    opt.step()\n    print(loss.item())\n"
    )
    findings = [
        finding("DL001", Location("train.py", 8), fix=Fix("", edits=WORKERS_4)),
        finding("DL003", Location("train.py", 9)),
        finding("HS001", Location("train.py", 14)),
        finding("LG002", Location("train.py", 14)),
        finding("TC001", Location("train.py", 10), fix=Fix("", edits=autocast())),
        finding("TC002", Location("train.py", 10)),
        finding("OP003", Location("train.py", 11)),
        finding("OP003", Location("train.py", 11)),
        finding("MM001", Location("train.py", 11)),
    ]
    patch, codes = combined_patch(findings, [tmp_path])
    git_apply(patch, tmp_path)
    assert codes == ["DL001", "DL003", "HS001", "LG002", "TC001", "TC002", "OP003"]
    assert (tmp_path / "train.py").read_text() == (
        "import torch\nfrom torch.utils.data import DataLoader\n\n"
        'torch.set_float32_matmul_precision("high")\n\n'
        "loader = DataLoader(\n    data,\n    batch_size=8,\n    num_workers=4,\n    persistent_workers=True,\n"
        "    pin_memory=True,\n)\n"
        "for step, x in enumerate(loader):\n    x = x.to(device, non_blocking=True)\n"
        '    with torch.autocast(device_type="cuda", dtype=torch.bfloat16):\n        loss = model(x)\n'
        "    opt.zero_grad(set_to_none=True)\n    loss.backward()\n    opt.step()\n"
        "    if step % 50 == 0:\n        print(loss.item())\n"
    )


def test_of_two_patches_that_clash_the_first_is_taken(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "import torch\nmodel.zero_grad(set_to_none=False)\nloss = model(x)\nloss.backward()\n"
    )
    (tmp_path / "b.py").write_text(
        "from torch.utils.data import DataLoader\nfor x in DataLoader(data, num_workers=1):\n    train(x)\n"
    )
    workers = [
        finding("DL001", Location("b.py", 2), fix=Fix("", edits=loader(num_workers=number))) for number in (4, 8)
    ]
    patch, codes = combined_patch([*workers, finding("OP003", Location("a.py", 2))], [tmp_path])
    git_apply(patch, tmp_path)
    assert codes == ["DL001", "OP003"]
    assert "DataLoader(data, num_workers=4)" in (tmp_path / "b.py").read_text()
    assert "set_to_none=True" in (tmp_path / "a.py").read_text()
