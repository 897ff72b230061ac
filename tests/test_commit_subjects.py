"""`make lint` checks the subjects of new commits, in whatever form it gets the tree."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / ".ci" / "commit_subjects.py"


def git(folder: Path, *arguments: str) -> None:
    author = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *author, *arguments], cwd=folder, check=True, capture_output=True)


def check(folder: Path) -> str:
    """What the script in the folder complains about."""
    command = [sys.executable, folder / ".ci" / SCRIPT.name]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == bool(done.stderr)
    return done.stderr


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with an old subject that is too long, and then the check."""
    folder = tmp_path / "repository"
    (folder / ".ci").mkdir(parents=True)
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", "old " * 30)
    shutil.copy(SCRIPT, folder / ".ci")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "Check subjects")
    return folder


def test_only_subjects_after_the_check_count(repository: Path) -> None:
    git(repository, "commit", "-q", "--allow-empty", "-m", "x" * 72, "-m", "The body may be as long as it likes; " * 9)
    assert check(repository) == ""
    git(repository, "commit", "-q", "--allow-empty", "-m", "x" * 73)
    git(repository, "commit", "-q", "--allow-empty", "-m", "One thing; another")
    several, long = check(repository).splitlines()
    assert "several things" in several
    assert "73 characters, at most 72" in long


def test_a_shallow_clone_and_a_tree_without_git_pass(repository: Path, tmp_path: Path) -> None:
    git(repository, "commit", "-q", "--allow-empty", "-m", "x" * 73)
    git(tmp_path, "clone", "-q", "--depth", "1", repository.as_uri(), "shallow")
    assert check(tmp_path / "shallow") == ""
    shutil.rmtree(tmp_path / "shallow" / ".git")
    assert check(tmp_path / "shallow") == ""
