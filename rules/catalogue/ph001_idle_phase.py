"""PH001: the GPU is idle in a phase of a reinforcement-learning step."""

from __future__ import annotations

from traceopt.analyzer.attribution.rl_phases import RlPhase
from traceopt.analyzer.vocabulary.phases.rl_phases import PhaseName
from traceopt.rules import (
    CUDA_GRAPH,
    NCCL,
    Effort,
    Evidence,
    Facts,
    Findings,
    Fix,
    Risk,
    Rule,
    location_of,
    ms,
    percent,
    the_step,
    threshold,
    us,
)

_ADVICE: dict[PhaseName, str] = {
    "rollout": (
        f"Let the engine work on more prompts at once, and replay its decoding as {CUDA_GRAPH}s. If a few long answers "
        "keep the others waiting, generate the next batch meanwhile (asynchronous rollout)."
    ),
    "reward": (
        "Compute rewards while the rollout still generates: in a pool of processes, or on another GPU for a reward "
        "model."
    ),
    "experience": "Compute log-probabilities of the rollout in large batches, and keep the results on the GPU.",
    "weight sync": (
        f"Send the weights from GPU to GPU with {NCCL}, in large buckets, not through the CPU or disk, and not one "
        "tensor at a time."
    ),
    "train": "See the other findings: they say what the training phase waits for.",
}


class IdlePhase(Rule):
    """Measures how long the GPU is idle in each phase of a reinforcement-learning step: rollout, reward, experience,
    weight sync, train.

    Why it costs: the phases run one after the other, each with its own bottleneck. While rewards are computed on the
    CPU, or weights are copied to the inference engine, the GPUs wait.

    How to fix: overlap the phase with another one, or make it work on larger batches.

        with record_function("rollout"):
            answers = engine.generate(prompts)
            pending = [pool.submit(reward, answer) for answer in answers]     # rewards while the GPU goes on
        with record_function("experience"):
            log_probs = policy.log_probs(answers)
        rewards = [one.result() for one in pending]

    The phases are found by annotations with such names, and by the methods of TRL, verl and OpenRLHF if stacks were
    recorded.

    When it is wrong: if an inference engine in another process generates on the same GPU, this trace lacks that work,
    and the rollout looks idle. Record that process too. The saving is not estimated, because it depends on what
    the phase can overlap with.

    Sources: HybridFlow: A Flexible and Efficient RLHF Framework (EuroSys 2025), about the idle time between the phases.
    """

    code = "PH001"
    name = "idle-phase"
    title = "Keep the GPU busy in every phase of the step"
    family = "phases"
    effort = Effort.DEPENDS
    risk = Risk.CONVERGENCE
    risk_note = "Asynchronous rollouts train on slightly old weights"
    confidence = "medium"
    requires = ("gpu", "whole")

    min_share: float = threshold(0.10, "smallest idle time in a phase, as a share of the step")
    min_idle: float = threshold(0.50, "smallest idle share of the phase")

    def applies(self, facts: Facts) -> str | None:
        return None if facts.rl_phases else "No phases of reinforcement learning are marked."

    def check(self, facts: Facts) -> Findings:
        idle = [phase for phase in facts.rl_phases if self._counts(phase, facts)]
        for phase in sorted(idle, key=lambda phase: -(phase.idle_ns or 0)):
            count, idle_ns = facts.steps.count, phase.idle_ns or 0
            share = percent(idle_ns / facts.steps.window_ns)
            location = location_of(facts, phase.slice)
            yield self.finding(
                title=f"Keep the GPU busy in the {phase.name} phase",
                why=(
                    f"The {phase.name} phase takes {ms(phase.total_ns / count)} of each step. The GPU is idle for "
                    f"{percent(idle_ns / phase.total_ns)} of it, which is {share} of {the_step(facts)}."
                ),
                fix=Fix(_ADVICE[phase.name]),
                evidence=[
                    Evidence(
                        f"GPU idle in {one.name}",
                        us_per_step=us((one.idle_ns or 0) / count),
                        detail=f"of {ms(one.total_ns / count)}",
                        location=location_of(facts, one.slice),
                    )
                    for one in facts.rl_phases
                ],
                locations=[location] if location is not None else [],
            )

    def _counts(self, phase: RlPhase, facts: Facts) -> bool:
        idle_ns = phase.idle_ns or 0
        return idle_ns >= self.min_share * facts.steps.window_ns and idle_ns >= self.min_idle * phase.total_ns

    def passed(self, facts: Facts) -> str:
        worst = max(facts.rl_phases, key=lambda phase: (phase.idle_ns or 0) / phase.total_ns)
        share = (worst.idle_ns or 0) / worst.total_ns
        return f"The phase with most idle time is {worst.name}: the GPU is idle for {percent(share)} of it."
