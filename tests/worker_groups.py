"""How `pytest -n` gives tests to its workers: a group at a time, so that the tests of a group share what is slow.

`--dist loadgroup` of pytest-xdist 3.8 writes the groups into the names of the tests. pytest 9.2 ignores that, and the
groups are lost without a word (pytest-dev/pytest-xdist#1386). Here the workers write them into a file.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

FOLDER = pytest.StashKey[tempfile.TemporaryDirectory[str]]()


def groups_file(config: pytest.Config) -> Path:
    """Of the process that starts the workers. The folder lives as long as its configuration."""
    if FOLDER not in config.stash:
        config.stash[FOLDER] = tempfile.TemporaryDirectory()
    return Path(config.stash[FOLDER].name) / "groups.json"


class GroupScheduling(LoadScopeScheduling):
    """Its scopes are the groups that the workers wrote before they reported their tests."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        self._groups: dict[str, str] = {}

    def _split_scope(self, nodeid: str) -> str:
        self._groups = self._groups or json.loads(groups_file(self.config).read_bytes())
        return self._groups[nodeid]
