"""A small job of six ranks, and a folder with a rule that fails on demand."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_job import RANKS, RULE

from fixtures.generate import generate_ranks
from traceopt.api import analyze
from traceopt.result.document import Result


@pytest.fixture(scope="session")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trace of each rank, as TensorBoard's handler writes it: the names are not in the order
    of ranks.
    """
    folder = tmp_path_factory.mktemp("job")
    for trace in generate_ranks("straggler", steps=3, world_size=RANKS, memory=False):
        trace.write(folder / f"host_{(trace.rank + 2) % RANKS}.1700000000000.pt.trace.json.gz")
    return folder


@pytest.fixture
def accident(tmp_path: Path) -> Path:
    """A folder with that rule, for --rules-dir; it contains `mode`."""
    return with_rule(tmp_path / "rules")


@pytest.fixture(scope="session")
def whole(job: Path, tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The job where the rule does nothing."""
    return analyze(str(job), rules_dir=with_rule(tmp_path_factory.mktemp("whole") / "rules"))


def with_rule(folder: Path) -> Path:
    folder.mkdir()
    (folder / "accident.py").write_text(RULE)
    (folder / "mode").write_text("none")
    return folder
