"""Phases of a reinforcement-learning step: which names mark them, the time and the idle GPU of each, and PH001."""

from __future__ import annotations

from pathlib import Path

import pytest

import traceopt
from traceopt.analyzer.vocabulary.rl_phases import phase_of_annotation, phase_of_frame
from traceopt.reports.html.page import render_html
from traceopt.reports.words import sentences
from traceopt.result.document import Result
from traceopt.rules.catalogue.ph001_idle_phase import IdlePhase
from traceopt.testing import A100, Machine, answer, assert_finds, assert_silent
from traceopt.testing.machine import facts_of


def training(reward_us: float = 4_000, *, rollout: str = "rollout", reward: str = "reward") -> Machine:
    """Five steps: 5 ms of rollout, rewards on the CPU, 2 ms of weight sync inside 5 ms of training."""
    machine = Machine(A100, with_stack=1)
    for _ in range(5):
        with machine.step(), machine.python("train.py(10): main"):
            with machine.python("train.py(20): generate"), machine.annotate(rollout):
                machine.launch(5_000)
                machine.synchronize()
            with machine.python("train.py(30): score"), machine.annotate(reward):
                machine.work(reward_us)
            with machine.python("train.py(40): learn"), machine.annotate("train"):
                machine.launch(3_000)
                machine.synchronize()
                with machine.annotate("sync_weights"):
                    machine.launch(2_000)
                    machine.synchronize()
    return machine


def test_times_and_idle_time_of_each_phase() -> None:
    phases = {phase.name: phase for phase in facts_of(training()).rl_phases}
    assert list(phases) == ["rollout", "reward", "weight sync", "train"]
    mean = {name: phase.total_ns / 5e3 for name, phase in phases.items()}
    assert mean == pytest.approx({"rollout": 5_000, "reward": 4_000, "weight sync": 2_000, "train": 3_000}, rel=0.02)
    idle = {name: (phase.idle_ns or 0) / phase.total_ns for name, phase in phases.items()}
    assert idle["reward"] == pytest.approx(1, abs=0.01)
    assert max(idle["rollout"], idle["train"], idle["weight sync"]) < 0.02


def test_ph001_finds_the_idle_phase_with_its_line() -> None:
    finding = assert_finds(IdlePhase, training(), location="train.py:30")
    assert finding.title == "Keep the GPU busy in the reward phase"
    assert "The GPU is idle for 100% of it, which is 28% of the step." in finding.why


def test_ph001_is_silent_on_the_fixed_twin() -> None:
    assert_silent(IdlePhase, training(reward_us=50))


def test_steps_without_a_rollout_have_no_phases() -> None:
    check, _ = answer(IdlePhase, training(rollout="forward"))
    assert check.status == "not_applicable"


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
    said = sentences.rl_phases(result)
    assert said is not None
    assert said.startswith("Phases: rollout 36% of the step (GPU idle for ")
    assert 'id="phases"' in render_html(result)
    plain = result_of(training(rollout="forward"), tmp_path)
    assert sentences.rl_phases(plain) is None
    assert 'id="phases"' not in render_html(plain)


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
