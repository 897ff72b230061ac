"""`try_variant` on a script that runs no torch: what it measures, how it fails, and what is left if it is cancelled."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import anyio
import pytest
from mcp_clients import Server, awaited

from traceopt.assistants import trials
from traceopt.assistants.roots import Roots
from traceopt.rules.fixes.patches.unified import unified_diff

pytestmark = pytest.mark.slow  # each starts processes

STAND_IN = Path(__file__).resolve().parents[1] / "trying" / "stand_in.py"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("TRACEOPT")]:
        monkeypatch.delenv(name)
    shutil.copy(STAND_IN, tmp_path / "train.py")
    return tmp_path


def diff(project: Path, old: str, new: str) -> str:
    before = (project / "train.py").read_text()
    assert old in before
    return unified_diff("train.py", before, before.replace(old, new))


def test_a_diff_is_measured(project: Path) -> None:
    server = Server(project, allow_run=True)
    faster = diff(project, "STEP_US = 1000.0", "STEP_US = 700.0")
    answer = server.answer("try_variant", script="train.py", diff=faster, steps=10)
    [row] = answer["tried"]
    assert (row["verdict"], row["losses"]) == ("keep", "identical")
    assert row["low_share"] < 0.3 < row["high_share"]
    assert answer["kept_diff"] == faster
    assert "STEP_US = 1000.0" in (project / "train.py").read_text()


def test_a_diff_is_thrown_into_a_tuning(project: Path) -> None:
    faster = diff(project, "STEP_US = 1000.0", "STEP_US = 700.0")
    answer = Server(project, allow_run=True).answer("tune", script="train.py", diff=faster, steps=10, minutes=1)
    assert [row["verdict"] for row in answer["tried"]] == ["keep", "keep"], "the diff, and all that was kept"
    assert "+STEP_US = 700.0" in answer["kept_diff"]


def test_failures_have_a_reason(project: Path) -> None:
    server = Server(project, allow_run=True)
    message = server.error("try_variant", script="train.py", fixes=["DL001"], steps=10)
    assert "traceopt try failed: " in message
    assert "there is no recording, so there are no fixes to try" in message
    assert "nothing to try" in server.error("try_variant", script="train.py")
    assert "no Python script" in server.error("try_variant", script="other.py", fixes=["DL001"])
    crash = diff(project, "def main() -> None:\n", "def main() -> None:\n    raise ValueError('of the variant')\n")
    [row] = server.answer("try_variant", script="train.py", diff=crash, steps=10)["tried"]
    assert row["verdict"] == "fails"
    assert "ValueError: of the variant" in row["output"]


def test_a_diff_cannot_write_outside_the_copy(project: Path) -> None:
    escape = "--- /dev/null\n+++ b/../../escaped.py\n@@ -0,0 +1 @@\n+print('escaped')\n"
    [row] = Server(project, allow_run=True).answer("try_variant", script="train.py", diff=escape, steps=10)["tried"]
    assert row["verdict"] == "fails"
    assert not list(project.parent.rglob("escaped.py"))


def test_cancelling_ends_the_runs_and_removes_the_copies(project: Path) -> None:
    faster = diff(project, "STEP_US = 1000.0", "STEP_US = 700.0")
    trial = trials.planned(Roots([project]), "train.py", ["--hang"], [], faster, None, 10, 10)
    told = []

    async def cancelled() -> None:
        with anyio.CancelScope() as scope:

            async def tell(line: str) -> None:
                told.append(line)
                if "trying 1 of 1" in line:
                    scope.cancel()

            await trials.tried(trial, tell)
        assert scope.cancelled_caught

    awaited(cancelled())
    assert "trying 1 of 1" in told[-1]
    assert not list(project.glob("traceopt-logs/*/.traceopt-try"))
    assert {path.name for path in project.iterdir()} == {"train.py", "traceopt-logs"}
