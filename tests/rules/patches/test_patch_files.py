"""Which files a trace can make traceopt read: none but plain Python files inside the folders that the user named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from traceopt.rules.fixes.patches.files import MAX_BYTES, find_source

CODE = "optimizer.step()\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    for path in (folder / "train.py", folder / "pkg" / "model.py", tmp_path / "secret.py"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(CODE)
    return folder


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("train.py", "train.py"),
        ("./train.py", "train.py"),
        ("pkg/model.py", "pkg/model.py"),
        ("model.py", None),
        ("/cluster/job/project/pkg/model.py", "pkg/model.py"),
        ("~/project/train.py", "train.py"),
        ("other/train.py", "train.py"),
        ("pkg", None),
        ("", None),
        (".", None),
        ("/", None),
    ],
)
def test_the_longest_end_of_the_path_that_is_there(project: Path, name: str, path: str | None) -> None:
    source = find_source(name, [project])
    assert (source.path if source else None) == path


@pytest.mark.parametrize("name", ["model.py", "{project}/pkg/model.py"])
def test_folders_in_each_other(project: Path, name: str) -> None:
    """As `traceopt run pkg/model.py` has them: found below the script's folder, named from the current one on."""
    source = find_source(name.replace("{project}", str(project)), [project / "pkg", project])
    assert source is not None
    assert source.path == "pkg/model.py"


@pytest.mark.parametrize(
    "name",
    [
        "../secret.py",
        "pkg/../../secret.py",
        "{outside}/secret.py",
        "link.py",
        "linked/secret.py",
        "circle.py",
        "pipe.py",
        "folder.py",
        "huge.py",
        "latin.py",
        "binary.py",
        "mark.py",
        "mac.py",
        "broken.py",
        'quo"te.py',
        "line\nbreak.py",
        "nul\0.py",
        "long" * 2000 + ".py",
        "notebook.ipynb",
        "data.json",
        "\udcff.py",
        "/etc/hostname",
        "~root/.bashrc",
    ],
)
def test_nothing_else_is_read(project: Path, name: str) -> None:
    outside = project.parent
    (project / "link.py").symlink_to(outside / "secret.py")
    (project / "linked").symlink_to(outside, target_is_directory=True)
    (project / "circle.py").symlink_to(project / "circle.py")
    (project / "folder.py").mkdir()
    os.mkfifo(project / "pipe.py")
    contents = {
        "huge.py": b"#" * MAX_BYTES + b"\n",
        "latin.py": "x = 'é'\n".encode("latin-1"),
        "binary.py": b"\0\xff",
        "mark.py": b"\xef\xbb\xbf" + CODE.encode(),
        "mac.py": b"a = 1\rb = 2\r",
        "broken.py": b"def :\n",
        'quo"te.py': CODE.encode(),
        "line\nbreak.py": CODE.encode(),
        "notebook.ipynb": CODE.encode(),
        "data.json": CODE.encode(),
    }
    for file, content in contents.items():
        (project / file).write_bytes(content)
    assert find_source(name.replace("{outside}", str(outside)), [project]) is None


def test_a_link_inside_is_the_file_it_leads_to(project: Path) -> None:
    (project / "again.py").symlink_to(project / "pkg" / "model.py")
    source = find_source("again.py", [project])
    assert source is not None
    assert source.path == "pkg/model.py"


def test_deep_nesting_is_no_crash(project: Path) -> None:
    (project / "deep.py").write_text("x = " + "(" * 5000 + ")" * 5000 + "\n")
    (project / "sum.py").write_text("x = " + "+".join(["1"] * 100_000) + "\n")
    assert find_source("deep.py", [project]) is None
    find_source("sum.py", [project])
