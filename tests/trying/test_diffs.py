"""A diff changes files in the copy, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from traceopt.rules.fixes.patches.unified import unified_diff
from traceopt.trying import diffs

BEFORE = "one\ntwo\nthree\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy that has a file, a link to data outside of it, and a linked folder."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "data.py").write_text(BEFORE)
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "train.py").write_text(BEFORE)
    (copy / "data.py").symlink_to(outside / "data.py")
    (copy / "data").symlink_to(outside)
    return copy


def change_of(name: str) -> str:
    return unified_diff(name, BEFORE, BEFORE.replace("two", "2"))


@pytest.mark.parametrize("with_git", [True, False])
def test_a_file_is_changed(folder: Path, with_git: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not with_git:
        monkeypatch.setattr(shutil, "which", lambda _: None)
    diffs.apply(folder, change_of("train.py"))
    assert (folder / "train.py").read_text() == "one\n2\nthree\n"
    with pytest.raises(diffs.DiffError, match="patch"):
        diffs.apply(folder, change_of("train.py"))


@pytest.mark.parametrize("with_git", [True, False])
@pytest.mark.parametrize(
    "name", ["../outside/data.py", "/etc/hosts", "data.py", "data/data.py", ".git/config", "a/../../outside/data.py"]
)
def test_nothing_outside_is_reached(
    folder: Path, name: str, with_git: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if not with_git:
        monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(diffs.DiffError):
        diffs.apply(folder, change_of(name))
    assert (tmp_path / "outside" / "data.py").read_text() == BEFORE


@pytest.mark.parametrize("mode", ["120000", "120000 ", "120000\t", "120000\r", "0120000", " 120000", "160000"])
@pytest.mark.parametrize("line", ["new file mode {}", "new file mode 100644\nindex 0000000..1111111 {}"])
def test_no_link_is_created(folder: Path, line: str, mode: str) -> None:
    """However git lets its mode be written."""
    link = f"diff --git a/x b/x\n{line.format(mode)}\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+/etc\n"
    with pytest.raises(diffs.DiffError, match="link"):
        diffs.apply(folder, link)
    assert not (folder / "x").is_symlink()


def test_a_rename_out_of_the_folder(folder: Path) -> None:
    rename = "diff --git a/train.py b/../x.py\nsimilarity index 100%\nrename from train.py\nrename to ../x.py\n"
    with pytest.raises(diffs.DiffError, match="outside"):
        diffs.apply(folder, rename)


def test_what_is_no_diff(folder: Path) -> None:
    with pytest.raises(diffs.DiffError, match="names no file"):
        diffs.apply(folder, "hello")
