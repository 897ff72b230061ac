"""Phases of a reinforcement-learning step: which names mark them, the time and the idle GPU of each, and PH001."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from support.rl_training import run_of, training, worker

import traceopt
from traceopt.analyzer.vocabulary.phases.rl_phases import phase_of_annotation, phase_of_frame
from traceopt.reports.html.page import render_html
from traceopt.reports.words import run_words
from traceopt.result.document import Result
from traceopt.rules.catalogue.ph001_idle_phase import IdlePhase
from traceopt.testing import A100, Machine, answer
from traceopt.testing.machine import facts_of


def test_times_and_idle_time_of_each_phase() -> None:
    phases = {phase.name: phase for phase in facts_of(training()).rl_phases}
    assert list(phases) == ["rollout", "reward", "weight sync", "train"]
    mean = {name: phase.total_ns / 5e3 for name, phase in phases.items()}
    assert mean == pytest.approx({"rollout": 5_000, "reward": 4_000, "weight sync": 2_000, "train": 3_000}, rel=0.02)
    idle = {name: (phase.idle_ns or 0) / phase.total_ns for name, phase in phases.items()}
    assert idle["reward"] == pytest.approx(1, abs=0.01)
    assert max(idle["rollout"], idle["train"], idle["weight sync"]) < 0.02


def test_steps_without_a_rollout_have_no_phases() -> None:
    check, _ = answer(IdlePhase, training(rollout="forward"))
    assert check.status == "not_applicable"


def test_a_phase_on_another_thread_counts() -> None:
    machine = training()
    with machine.annotate("old_log_prob", tid=2):
        machine.idle(1)
    step = machine.events[-1] | {"ts": 10_000.0, "dur": 2_000.0}
    machine.events[-1] = step
    phases = {phase.name: phase.total_ns / 5e3 for phase in facts_of(machine).rl_phases}
    assert phases["experience"] == pytest.approx(400, rel=0.02)


def test_a_train_annotation_beside_a_generator_is_no_rl() -> None:
    machine = Machine(A100)
    for _ in range(5):
        with machine.step():
            for name in ("generate", "train"):
                with machine.annotate(name):
                    machine.launch(2_000)
                    machine.synchronize()
    assert facts_of(machine).rl_phases == []


def test_the_document_and_the_reports_have_the_phases(tmp_path: Path) -> None:
    result = result_of(training(), tmp_path)
    assert [phase.name for phase in result.rl_phases] == ["rollout", "reward", "weight sync", "train"]
    said = run_words.rl_phases(result)
    assert said is not None
    assert said.startswith("Phases: rollout 36% of the step (GPU idle for ")
    assert 'id="phases"' in render_html(result)
    plain = result_of(training(rollout="forward"), tmp_path)
    assert run_words.rl_phases(plain) is None
    assert 'id="phases"' not in render_html(plain)


def test_a_generator_beside_training_without_a_rollout_is_no_rl(tmp_path: Path) -> None:
    result = run_of(tmp_path / "a", one=worker("train"), two=worker("learn"))
    assert result.rl_phases == []


def test_recordings_of_other_times_are_not_joined(tmp_path: Path) -> None:
    late = worker("rollout", delay_us=80_000)
    late.events = [event | {"ts": event["ts"] + 400_000} for event in late.events]
    assert run_of(tmp_path / "a", trainer=worker("train"), roller=late).rl_phases == []


def write_process(path: Path, machine: Machine, rank: int, world_size: int, start_s: float = 1_700_000_000) -> None:
    machine.metadata["baseTimeNanoseconds"] = int(start_s * 1e9)
    machine.metadata["distributedInfo"] = {"rank": rank, "world_size": world_size, "backend": "nccl"}
    path.write_bytes(machine.to_bytes())


def engine_steps() -> Machine:
    """Six rollouts of a serving engine, each 6 ms, and 6 ms of pause after each."""
    engine = Machine(A100)
    for _ in range(6):
        for _ in range(60):
            with engine.annotate("execute_context_0(0)_generation_8(8)"):
                engine.launch(90)
                engine.synchronize()
        engine.idle(6_000)
    return engine


class TestRanksOfTheirOwn:
    """A trainer and an engine that each count their processes from 0."""

    def test_both_are_kept_and_named(self, tmp_path: Path) -> None:
        for rank in range(2):
            delayed = worker("train", delay_us=6_000)
            write_process(tmp_path / f"trainer{rank}.json", delayed, rank, 2)
            write_process(tmp_path / f"engine{rank}.json", engine_steps(), rank, 2, 1_700_000_000 + 1e-6 * rank)
        result = traceopt.analyze(str(tmp_path), debug=True)
        assert not [warning for warning in result.warnings if "different runs" in warning]
        assert result.run.ranks == [0, 1]
        assert result.run.shown_rank == 0
        assert [row.process for row in result.ranks] == ["engine rank 0", "engine rank 1", "rank 0", "rank 1"]
        phases = {row.name: row.processes for row in result.rl_phases}
        assert phases == {"rollout": ["engine rank 0", "engine rank 1"], "train": ["rank 0", "rank 1"]}
        (finding,) = [one for one in result.findings if one.code == "PH002"]
        assert "of 4 GPUs are idle in it" in finding.why
        (ranks,) = [one for one in result.checks if one.code == "TQ011"]
        assert "same rank" not in ranks.reason
        assert "which rank" not in ranks.reason
        html = render_html(result)
        assert re.search(r"<td[^>]*>engine rank 1<", html)
        assert sum("only infers" in warning for warning in result.warnings) == 2

    def test_two_engines_are_numbered(self, tmp_path: Path) -> None:
        write_process(tmp_path / "trainer.json", worker("train"), 0, 1)
        for name in "ab":
            write_process(tmp_path / f"engine_{name}.json", engine_steps(), 0, 1)
        result = traceopt.analyze(str(tmp_path), debug=True)
        assert [row.process for row in result.ranks] == ["engine 1", "engine 2", "rank 0"]

    def test_equal_tasks_and_other_times_are_other_runs(self, tmp_path: Path) -> None:
        """Two trainings at once; an engine beside two trainings; and an engine of an hour later."""
        write_process(tmp_path / "one.json", worker("train"), 0, 1)
        write_process(tmp_path / "two.json", worker("train"), 0, 1)
        assert len(traceopt.find_runs(str(tmp_path))) == 2
        write_process(tmp_path / "engine.json", engine_steps(), 0, 1)
        assert len(traceopt.find_runs(str(tmp_path))) == 3
        (tmp_path / "two.json").unlink()
        assert len(traceopt.find_runs(str(tmp_path))) == 1
        write_process(tmp_path / "engine.json", engine_steps(), 0, 1, 1_700_003_600)
        assert len(traceopt.find_runs(str(tmp_path))) == 2

    def test_compressed_and_damaged_files(self, tmp_path: Path) -> None:
        write_process(tmp_path / "trainer.json", worker("train"), 0, 1)
        write_process(tmp_path / "engine.json", engine_steps(), 0, 1)
        content = (tmp_path / "engine.json").read_bytes()
        (tmp_path / "engine.json").unlink()
        (tmp_path / "engine.json.gz").write_bytes(gzip.compress(content))
        assert [len(run.recordings) for run in traceopt.find_runs(str(tmp_path))] == [2]
        (tmp_path / "engine.json.gz").write_bytes(gzip.compress(content)[: len(content) // 100])
        assert traceopt.find_runs(str(tmp_path))


def result_of(machine: Machine, folder: Path) -> Result:
    path = folder / "trace.json"
    path.write_bytes(machine.to_bytes())
    return traceopt.analyze(str(path))


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("rollout", "rollout"),
        ("Rollout phase 3", "rollout"),
        ("verl.gen", "rollout"),
        ("reward_model", "reward"),
        ("old_log_prob", "experience"),
        ("sync_weights_to_vllm", "weight sync"),
        ("update_actor", "train"),
        ("aten::generate_kernel", None),
        ("Optimizer.step#Adam.step", None),
        ("ProfilerStep#3", None),
        pytest.param("weights_sync_to_" + "_" * 50_000, None, id="hostile"),
    ],
)
def test_names_of_annotations(name: str, phase: str | None) -> None:
    assert phase_of_annotation(name) == phase


def test_names_of_frames() -> None:
    assert phase_of_frame("trl/trainer/grpo_trainer.py(1200): _move_model_to_vllm") == "weight sync"
    assert phase_of_frame("trl/trainer/grpo_trainer.py(1200): _calculate_rewards") == "reward"
    assert phase_of_frame("openrlhf/trainer/ppo_utils/samples_generator.py(140): _generate_vllm") == "rollout"
    assert phase_of_frame("openrlhf/trainer/ppo_utils/experience_maker.py(9): make_experience") == "experience"
    assert phase_of_frame("openrlhf/trainer/ppo_utils/replay_buffer.py(9): make_experience_batch") is None
    assert phase_of_annotation("gen_max") == "rollout"
    assert phase_of_frame("my/trainer.py(3): _calculate_rewards") is None
