"""What a copy of the source holds: source files, and links to everything else."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from projects import Project

from traceopt.errors import InputError
from traceopt.trying import source_copy
from traceopt.trying.source_copy import Snapshot


def fill(folder: Path) -> None:
    for name, content in {
        "package/__init__.py": "", "package/model.py": "new = 1\n", "data/images/0.bin": "x", "weights.bin": "w",
        "runs/old.txt": "r", "environment/pyvenv.cfg": "", "environment/lib.py": "",
    }.items():  # fmt: skip
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    (folder / "link.py").symlink_to("package/model.py")
    (folder / "outside.py").symlink_to("../elsewhere.py")


def check(copy: Path, root: Path, *, linked: tuple[str, ...]) -> None:
    assert (copy / "package" / "model.py").read_text() == "new = 1\n"
    assert not (copy / "package").is_symlink()
    assert (copy / "link.py").resolve() == (copy / "package" / "model.py").resolve()
    for name in linked:
        assert (copy / name).is_symlink(), name
        assert (copy / name).exists() or name == "outside.py"
        assert (copy / name).readlink().is_relative_to(root)


def test_of_a_repository(project: Project, tmp_path: Path) -> None:
    (project.folder / ".git" / "info" / "exclude").write_text("data\nruns\n")
    fill(project.folder)
    project.script.write_text("changed = 1\n")
    snapshot = Snapshot(project.folder, tmp_path / "snapshot", True)
    snapshot.take()
    copy = tmp_path / "copy"
    snapshot.copy_to(copy)
    check(copy, project.folder, linked=("data", "runs", "environment", "weights.bin", "outside.py"))
    assert (copy / "job" / "train.py").read_text() == "changed = 1\n"
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=copy, capture_output=True, text=True, check=True).stdout
    assert head == project.git("rev-parse", "HEAD")
    snapshot.close()
    assert not (tmp_path / "snapshot").exists()
    project.git("checkout", "--", ".")
    project.git("clean", "-fdq")


def test_outside_of_a_repository(plain_project: Project, tmp_path: Path) -> None:
    fill(plain_project.folder)
    snapshot = Snapshot(plain_project.folder, tmp_path / "snapshot", False)
    snapshot.take()
    check(snapshot.folder, plain_project.folder, linked=("data", "environment", "weights.bin", "outside.py"))
    snapshot.close()
    assert (plain_project.folder / "data" / "images" / "0.bin").exists(), "closing removes links, not what they name"


def test_of_a_repository_that_cannot_have_a_worktree(tmp_path: Path) -> None:
    """A repository without a commit stands for one that cannot be written to."""
    empty = tmp_path / "empty"
    empty.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=empty, check=True)
    (empty / "train.py").write_text("x = 1\n")
    snapshot = Snapshot(empty, tmp_path / "snapshot", True)
    snapshot.take()
    assert (snapshot.folder / "train.py").read_text() == "x = 1\n"
    snapshot.close()


def test_an_unknown_revision(project: Project, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--against nowhere"):
        Snapshot(project.folder, tmp_path / "snapshot", True, "nowhere").take()


def test_paths_that_lead_out_of_the_source(tmp_path: Path) -> None:
    project = tmp_path / "a" / "b" / "project"
    project.mkdir(parents=True)
    for beside in (tmp_path / "a" / "b" / "beside.txt", tmp_path / "a" / "above.txt"):
        beside.write_text(beside.name)
    place = source_copy.stand_in(tmp_path / "copies", project)
    place.mkdir()
    assert not place.is_symlink()
    assert (place / "../beside.txt").read_text() == "beside.txt"
    assert (place / "../../above.txt").read_text() == "above.txt"
    assert source_copy.stand_in(tmp_path / "top", Path("/")) == tmp_path / "top"


def test_too_many_files(plain_project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(plain_project.folder)
    monkeypatch.setattr(source_copy, "MOST_FILES", 3)
    with pytest.raises(InputError, match="too many files"):
        Snapshot(plain_project.folder, tmp_path / "snapshot", False).take()
    assert not (tmp_path / "snapshot").exists()
