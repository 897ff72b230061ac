"""MM006: parameters, gradients and optimizer state take most of the memory."""

from __future__ import annotations

from traceopt.analyzer.memory.composition import GRADIENTS, OPTIMIZER_STATE, PARAMETERS
from traceopt.rules import Effort, Facts, Findings, Fix, Risk, Rule, percent, size, threshold
from traceopt.rules.fixes.advice.memory import as_evidence, inside, parts, peak_of_capacity, peak_share, remedies

STATE = (PARAMETERS, GRADIENTS, OPTIMIZER_STATE)
STATE_REMEDIES = ("An 8-bit", "LoRA", "QLoRA", "ZeRO", "Optimizer state")


class StateHeavy(Rule):
    """Measures how the peak memory divides into parameters, gradients and optimizer state on one side, and activations
    and temporary results on the other. When a block is allocated and freed shows what it is for. `traceopt run` counts
    parameters and state; otherwise they follow from the shapes of the gradients.

    Why it costs: this part does not shrink with the batch. With Adam in FP32 it is 16 bytes per parameter, so it limits
    both the batch and the model.

    How to fix: store fewer bytes per parameter, train fewer parameters, or shard them.

        optimizer = bitsandbytes.optim.AdamW8bit(model.parameters())       # 2 bytes of state instead of 8
        model = peft.get_peft_model(model, peft.LoraConfig(r=16))          # fine-tuning: train 1 % of them
        for block in model.layers: fully_shard(block)                      # FSDP: a share on each GPU
        fully_shard(model)

    When it is wrong: state that is not the optimizer's (a second model, an average of the weights, caches) is listed as
    other. So is a master copy of 16-bit weights if the capture did not record it.

    Sources: Rajbhandari et al., "ZeRO" (2020), section 3.1; Dettmers et al., "8-bit Optimizers" (2022).
    """

    code = "MM006"
    name = "state-heavy"
    title = "Shrink parameters, gradients and optimizer state"
    family = "memory"
    effort = Effort.ONE_LINE
    risk = Risk.CONVERGENCE
    confidence = "medium"
    requires = ("gpu", "memory")

    min_peak_share: float = threshold(0.60, "smallest peak, as a share of device memory, to report")
    min_state_share: float = threshold(0.50, "smallest share of parameters, gradients and optimizer state in the peak")

    def applies(self, facts: Facts) -> str | None:
        if not facts.device.memory_bytes:
            return "The trace does not state the device's memory capacity."
        held = facts.composition
        if held is None or not held.of(PARAMETERS):
            return "The number of trained parameters is unknown (no gradient shapes, or a sharded model)."
        return None

    def check(self, facts: Facts) -> Findings:
        held = facts.composition
        if held is None or peak_share(facts) < self.min_peak_share or _state(facts) < self.min_state_share * held.total:
            return
        largest = max(STATE, key=held.of)
        chosen = [remedy for remedy in remedies(facts) if remedy.name.startswith(STATE_REMEDIES)]
        first = next((remedy for remedy in chosen if remedy.bytes), None)
        try_first = f"Try first: {inside(first.name)}, which frees {size(first.bytes)}." if first else ""
        yield self.finding(
            why=(
                f"Memory peaks at {peak_of_capacity(facts)}. {size(_state(facts))} of it persist across steps: "
                f"{', '.join(f'{part.lower()} {size(held.of(part))}' for part in STATE)}."
            ),
            evidence=[*parts(held), *as_evidence(chosen)],
            locations=[],
            fix=Fix(
                f"The largest part is {largest.lower()}. {try_first}".strip(),
                next((remedy.code for remedy in chosen if remedy.code and remedy.bytes), None),
            ),
            shares_cause_with=["MM002"],
        )

    def passed(self, facts: Facts) -> str:
        held = facts.composition
        share = _state(facts) / max(1, held.total) if held else 0.0
        peak = peak_of_capacity(facts)
        return f"Memory peaks at {peak}; parameters, gradients and optimizer state are {percent(share)} of it."


def _state(facts: Facts) -> int:
    held = facts.composition
    return sum(held.of(part) for part in STATE) if held else 0
