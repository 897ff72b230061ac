"""PH001 idle-phase: keep the GPU busy in every phase of the step."""

from __future__ import annotations

from support.rl_training import training

from traceopt.rules.catalogue.ph001_idle_phase import IdlePhase
from traceopt.testing import assert_finds, assert_silent


def test_fires_on_the_idle_phase_with_its_line() -> None:
    finding = assert_finds(IdlePhase, training(), location="train.py:30")
    assert finding.title == "Keep the GPU busy in the reward phase"
    assert "The GPU is idle for 100% of it, which is 28% of the step." in finding.why


def test_silent_on_the_fixed_twin() -> None:
    assert_silent(IdlePhase, training(reward_us=50))
