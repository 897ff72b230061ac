"""Names of the phases of a reinforcement-learning step: rollout, reward, experience, weight sync, train.

Annotations: what scripts name after the phase, and the timers of verl (`gen`, `old_log_prob`, `update_actor`), which
are NVTX ranges. Python frames: methods of TRL (grpo_trainer.py, vllm_generation.py), verl (ray_trainer.py,
fsdp_workers.py) and OpenRLHF (ppo_actor.py, experience_maker.py, samples_generator.py), from their sources.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, get_args

PhaseName = Literal["rollout", "reward", "experience", "weight sync", "train"]
MAX_NAME = 80  # characters
PHASES: tuple[PhaseName, ...] = get_args(PhaseName)

# A whole annotation, without its case, its package or class ("verl.gen", "Trainer::rollout"), a number or a phase word.
_ANNOTATIONS: dict[PhaseName, str] = {
    "rollout": r"rollouts?|gen(?:_max)?|generate|generation|sampling"
    r"|generate_?(?:sequences|rollouts?|completions|samples|responses)"
    r"|sample_?(?:actions|responses|trajectories)|collect_?(?:rollouts?|trajectories|experience)",
    "reward": r"rewards?|reward_?(?:model|fn|func|function)|(?:compute|calculate|get)_?(?:rewards?|scores?)|verifier",
    "experience": r"(?:old|ref|compute|reference)_?(?:log_?probs?)|ref|reference|values|compute_?values|adv|advantages?"
    r"|compute_?advantages?|make_?experience|gae",
    "weight sync": r"(?:weights?|params?|parameters?|model)_?(?:sync|update|transfer|broadcast)"
    r"|(?:sync|update|transfer|broadcast)_?(?:weights?|params?|parameters?)(?:_?(?:to|from)_?\w+)?"
    r"|(?:sync|update)_?(?:rollout|vllm|sglang|engine)",
    "train": r"train|training|train_?(?:step|phase|policy|actor)|(?:update|train)_?(?:actor|critic|policy)"
    r"|(?:actor|critic|policy)_?(?:update|train|training)|ppo_?(?:train|update)|optimi[sz]e|learn",
}
_BEFORE, _AFTER = r"(?:\w+(?:::|[./]))*(?:rl_?|phase[ _:]*)?", r"(?:[ _]?phase)?(?:[ #_]*\d+)?"
_ANNOTATION = {
    phase: re.compile(rf"{_BEFORE}(?:{words}){_AFTER}", re.IGNORECASE) for phase, words in _ANNOTATIONS.items()
}

# Methods of trainers, in files of these packages.
_PACKAGE = re.compile(r"(?:^|/)(?:trl|verl|openrlhf)/")
_METHODS: dict[PhaseName, str] = {
    "rollout": r"_generate|_generate_single_turn|_generate_vllm|generate_sequences|generate_samples",
    "reward": r"_calculate_rewards|compute_reward|compute_rm_score|get_rewards",
    "experience": r"_get_per_token_logps(?:_and_entropies)?|compute_log_prob|compute_ref_log_prob|compute_values"
    r"|compute_advantage|make_experience",
    "weight sync": r"_move_model_to_vllm|sync_weights|update_weights|broadcast_to_vllm|_broadcast_to_vllm",
    "train": r"update_actor|update_critic|update_policy|ppo_train",
}
_METHOD = {phase: re.compile(rf".*: (?:{words})", re.DOTALL) for phase, words in _METHODS.items()}


@lru_cache(maxsize=4096)
def phase_of_annotation(name: str) -> PhaseName | None:
    """The phase that an annotation is named after; None for other names."""
    if len(name) > MAX_NAME:
        return None
    return next((phase for phase, pattern in _ANNOTATION.items() if pattern.fullmatch(name.strip())), None)


@lru_cache(maxsize=4096)
def phase_of_frame(name: str) -> PhaseName | None:
    """The phase that a Python frame of an RL framework runs; None for other frames."""
    if not _PACKAGE.search(name):
        return None
    return next((phase for phase, pattern in _METHOD.items() if pattern.fullmatch(name)), None)
