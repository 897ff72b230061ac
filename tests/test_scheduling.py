"""How the tests are run: one group of tests shares a worker of `pytest -n`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

TESTS = """
import os
import pytest

@pytest.mark.parametrize("scenario", ["one", "two", "three", "four"])
@pytest.mark.parametrize("number", range(3))
def test_it(scenario, number):
    with open("workers", "a") as file:
        print(scenario, os.environ["PYTEST_XDIST_WORKER"], file=file)
"""


@pytest.mark.slow
def test_tests_of_one_group_run_on_one_worker(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "pytest.ini").touch()
    command = [sys.executable, "-m", "pytest", "-p", "xdist", "-p", "scheduling", "-n", "2", "--dist", "loadgroup"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "12 passed" in done.stdout, done.stdout + done.stderr
    workers = defaultdict(set)
    for line in (tmp_path / "workers").read_text().splitlines():
        scenario, worker = line.split()
        workers[scenario].add(worker)
    assert len(workers) == 4
    assert {len(names) for names in workers.values()} == {1}
    assert set.union(*workers.values()) == {"gw0", "gw1"}
