"""PH002: GPUs of one task of a reinforcement-learning run wait while another task works."""

from __future__ import annotations

from traceopt.analyzer.ranks.run_phases import RunPhase
from traceopt.rules import (
    Effort,
    Evidence,
    Findings,
    Fix,
    Risk,
    RunFacts,
    RunRule,
    percent,
    rank_name,
    threshold,
)

MOST_RANKS = 8


class IdleProcesses(RunRule):
    """Measures how many GPUs are idle in each phase of a reinforcement-learning run whose processes have different
    tasks, such as rollout and training.

    Why it costs: if the phases alternate, the GPUs of the rollout wait for the training, and the GPUs of the training
    wait for the rollout.

    How to fix: let both work at the same time: generate the next batch while this one trains (asynchronous
    rollout, one step off-policy). Or give all GPUs to both tasks by turns, and put the engine to sleep while the policy
    trains. If one task takes much longer than the other, give it more of the GPUs.

        with record_function("rollout"):
            following = executor.submit(engine.generate, next_prompts)
        with record_function("train"):
            update(policy, batch)
        batch = following.result()

    When it is wrong: a process that waits in a collective has a busy GPU, so idle time may be longer than shown. The
    clocks of the hosts must agree to within a small part of a phase. GPUs of processes that mark no phase do not count.
    The saving is not estimated: it depends on how the tasks can overlap.

    Sources: HybridFlow: A Flexible and Efficient RLHF Framework (EuroSys 2025); AReaL: A Large-Scale Asynchronous
    Reinforcement Learning System (2025).
    """

    code = "PH002"
    name = "idle-processes"
    title = "Let rollout and training overlap"
    family = "phases"
    effort = Effort.REFACTORING
    risk = Risk.CONVERGENCE
    risk_note = "Asynchronous rollouts train on slightly old weights"
    confidence = "medium"
    with_engines = True

    min_share: float = threshold(0.10, "smallest idle GPU time in a phase, as a share of all GPU time")
    min_idle: float = threshold(0.30, "smallest share of the GPUs that is idle in the phase")

    def lacks_ranks(self, run: RunFacts) -> str | None:
        return "Only one process was given." if len(run.ranks) < 2 else None

    def applies_run(self, run: RunFacts) -> str | None:
        return None if run.phases else "The processes mark no phases of reinforcement learning, or all the same ones."

    def check_run(self, run: RunFacts) -> Findings:
        idle = [phase for phase in run.phases if self._counts(phase)]
        if not idle:
            return
        most = max(idle, key=_lost)
        yield self.finding(
            title=f"Use the GPUs that are idle in the {most.name} phase",
            why=(
                f"The {most.name} phase takes {percent(most.share)} of the time, and on average "
                f"{most.idle_gpus or 0.0:.1f} of {most.gpus} GPUs are idle in it. {_who(most, run)}"
            ),
            fix=Fix(
                "Generate the next batch while this one trains (asynchronous rollout), or use all GPUs for both tasks."
            ),
            evidence=[
                Evidence(
                    f"GPUs idle in {phase.name}",
                    detail=f"{phase.idle_gpus or 0.0:.1f} of {phase.gpus}, {percent(phase.share)} of the time",
                    location=phase.place,
                )
                for phase in run.phases
            ],
            locations=[most.place] if most.place is not None else [],
        )

    def _counts(self, phase: RunPhase) -> bool:
        return phase.gpus > 1 and _lost(phase) >= self.min_share and _lost(phase) >= self.min_idle * phase.share

    def passed_run(self, run: RunFacts) -> str:
        worst = max(run.phases, key=_lost)
        if worst.idle_gpus is None:
            return "The processes that mark phases use no GPU."
        return (
            f"The phase with most idle GPUs is {worst.name}: on average {worst.idle_gpus:.1f} of {worst.gpus} are idle."
        )


def _lost(phase: RunPhase) -> float:
    """Idle GPU time in the phase, as a share of all GPU time."""
    return phase.share * (phase.idle_gpus or 0.0) / max(1, phase.gpus)


def _who(phase: RunPhase, run: RunFacts) -> str:
    """The processes whose GPUs are idle in most of the phase."""
    waiting = [rank_name(run, index) for index, share in phase.idle_of_rank.items() if share >= 0.5]
    more = f" and {len(waiting) - MOST_RANKS} more" if len(waiting) > MOST_RANKS else ""
    return f"Idle for most of it: {', '.join(waiting[:MOST_RANKS])}{more}." if waiting else ""
