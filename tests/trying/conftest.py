"""A repository with the stand-in script."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from projects import SCRIPT, STAND_IN, Project, processes_in


@pytest.fixture
def plain_project(tmp_path: Path) -> Project:
    """Outside of any repository."""
    folder = tmp_path / "project"
    (folder / "job").mkdir(parents=True)
    shutil.copy(STAND_IN, folder / SCRIPT)
    return Project(folder)


@pytest.fixture
def project(plain_project: Project) -> Iterator[Project]:
    """In a repository, which is as before when the test has ended."""
    plain_project.git("init", "--quiet")
    plain_project.git("add", "--all")
    plain_project.git("commit", "--quiet", "--message", "first")
    before = plain_project.state
    yield plain_project
    assert plain_project.state == before
    assert not processes_in(plain_project.folder)
