"""PH002 idle-processes: let rollout and training overlap."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.rl_training import run_of, training, worker

from traceopt.reports.html.page import render_html
from traceopt.reports.words import run_words
from traceopt.testing import A100, Machine


def test_fires_on_the_tasks_of_several_processes(tmp_path: Path) -> None:
    """Planted: rollout and training alternate. Fixed: both work all the time."""
    planted = run_of(tmp_path / "a", trainer=worker("train"), roller=worker("rollout", delay_us=6_000))
    rows = {row.name: row for row in planted.rl_phases}
    assert {name: row.processes for name, row in rows.items()} == {"rollout": ["rank 1"], "train": ["rank 0"]}
    assert [row.share for row in rows.values()] == pytest.approx([0.5, 0.5], abs=0.06)
    assert rows["train"].gpus == 2
    assert (rows["train"].idle_us_per_step or 0) / rows["train"].us_per_step == pytest.approx(0.5, abs=0.05)
    (finding,) = [one for one in planted.findings if one.code == "PH002"]
    assert "on average 1.0 of 2 GPUs are idle in it" in finding.why
    assert "Idle for most of it: rank " in finding.why
    assert {"train.py:20", "rollout.py:20"} == {str(row.location) for row in finding.evidence}
    said = run_words.rl_phases(planted) or ""
    assert "of 2 GPUs idle)" in said
    assert '<th scope="col">Processes</th>' in render_html(planted)

    fixed = run_of(tmp_path / "b", trainer=worker("train", idle_us=10), roller=worker("rollout", idle_us=10))
    assert [row.name for row in fixed.rl_phases] == ["rollout", "train"]
    (check,) = [one for one in fixed.checks if one.code == "PH002"]
    assert check.status == "passed"


def test_the_steps_of_a_serving_engine_are_a_rollout_without_marks(tmp_path: Path) -> None:
    engine = Machine(A100)
    engine.idle(6_000)
    for _ in range(6):
        for _ in range(60):
            with engine.annotate("execute_context_0(0)_generation_8(8)"):
                engine.launch(90)
                engine.synchronize()
        engine.idle(6_000)
    result = run_of(tmp_path / "a", ranked=False, trainer=worker("train"), engine=engine)
    rows = {row.name: row for row in result.rl_phases}
    assert {name: row.processes for name, row in rows.items()} == {"rollout": ["engine"], "train": ["trainer.json"]}
    assert rows["rollout"].share == pytest.approx(0.55, abs=0.08), "without the pauses between rollouts"
    assert "PH002" in [one.code for one in result.findings]


def test_silent_on_processes_with_the_same_phases(tmp_path: Path) -> None:
    result = run_of(tmp_path / "a", one=training(), two=training())
    assert result.rl_phases[0].gpus is None
    (check,) = [one for one in result.checks if one.code == "PH002"]
    assert check.status == "not_applicable"
