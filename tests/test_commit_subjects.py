"""`make lint` checks the subjects of commits, in whatever form it gets the tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / ".ci" / "commit_subjects.py"


def git(folder: Path, *arguments: str, date: str = "2030-01-01T00:00:00Z") -> None:
    author = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    environment = os.environ | {"GIT_COMMITTER_DATE": date}
    subprocess.run(["git", *author, *arguments], cwd=folder, check=True, capture_output=True, env=environment)


def commit(folder: Path, *messages: str, date: str = "2030-01-01T00:00:00Z") -> None:
    git(folder, "commit", "-q", "--allow-empty", *(word for text in messages for word in ("-m", text)), date=date)


def check(folder: Path) -> str:
    """What the script in the folder complains about."""
    command = [sys.executable, folder / ".ci" / SCRIPT.name]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == bool(done.stderr)
    return done.stderr


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with the check, and a subject from before it that is too long."""
    folder = tmp_path / "repository"
    (folder / ".ci").mkdir(parents=True)
    git(folder, "init", "-q")
    shutil.copy(SCRIPT, folder / ".ci")
    git(folder, "add", ".")
    commit(folder, "old " * 30, date="2026-01-01T00:00:00Z")
    return folder


def test_subjects_since_the_check_was_made(repository: Path) -> None:
    commit(repository, "x" * 72, "The body may be as long as it likes; " * 9)
    assert check(repository) == ""
    commit(repository, "x" * 73)
    commit(repository, "One thing; another")
    several, long = check(repository).splitlines()
    assert "several things" in several
    assert "73 characters, at most 72" in long


def test_a_shallow_clone_and_a_tree_without_git(repository: Path, tmp_path: Path) -> None:
    commit(repository, "x" * 73)
    commit(repository, "y" * 73)
    git(tmp_path, "clone", "-q", "--depth", "1", repository.as_uri(), "shallow")
    [complaint] = check(tmp_path / "shallow").splitlines()
    assert complaint.endswith("y" * 73)
    shutil.rmtree(tmp_path / "shallow" / ".git")
    git(tmp_path, "init", "-q")  # the tree lies in the repository of something else
    commit(tmp_path, "z" * 73)
    assert check(tmp_path / "shallow") == ""
