"""TC004: the same tensors are cast between data types in every step."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from traceopt.rules import (
    Evidence,
    Facts,
    Findings,
    Fix,
    Intervals,
    RemoveLaunches,
    Risk,
    Rule,
    area_of,
    each_step,
    host_bounds,
    launched_in_steps,
    launched_ns,
    ms,
    percent,
    place_of_work,
    priced,
    shorter,
    the_step,
    threshold,
)

IN_ONE_TYPE = Fix(
    "Give neighbors one type, where accuracy allows: adapters that PEFT holds in FP32 take the type of the model with "
    "autocast_adapter_dtype=False.",
)
HOST = 0.9  # of the host time of their launches


class CastChurn(Rule):
    """Measures the GPU time of casts that give the same result in every step, or no new result at all, and the GPU's
    wait for their launches: weights that autocast casts to 16 bits for each forward pass (and their gradients back),
    and casts that the next cast undoes.

    Why it costs: a cast moves the whole tensor through memory and computes nothing. Autocast caches a cast weight only
    until its block ends, so each micro-batch casts all weights again.

    How to fix: cast once per step.

        with torch.autocast("cuda", dtype=torch.bfloat16):
            for micro in batch.chunk(4):                  # one block around all micro-batches
                model(micro).backward()

    FSDP's mixed precision and DeepSpeed hold 16-bit weights beside a master copy in FP32; torch.compile fuses casts
    into their neighbors. Only in inference can the weights themselves be narrow: `model.to(torch.bfloat16)`. A torch
    optimizer keeps no master copy, so 16-bit weights would lose small updates.

    Casts back and forth come from parts in another type, such as adapters in FP32 within a model in 16 bits. PEFT keeps
    them in the type of the model with `autocast_adapter_dtype=False`.

    When it is wrong: the rule recognizes weights by their size. Casts that a normalization does for its accuracy are
    not counted, unless the next kernel reverts them.

    Sources: PyTorch documentation, "Automatic Mixed Precision", autocast's weight cache; Micikevicius et al., "Mixed
    Precision Training" (2018).
    """

    code = "TC004"
    name = "cast-churn"
    title = "Cast weights once, not in every step"
    family = "precision"
    risk = Risk.NUMERICS
    confidence = "medium"
    requires = ("gpu", "launches", "shapes")

    min_share: float = threshold(
        0.02, "smallest time of such casts and of the wait for them, as a share of the step, to report"
    )

    def applies(self, facts: Facts) -> str | None:
        return None if facts.casts.kinds else "No casts between floating-point types in this trace."

    def check(self, facts: Facts) -> Findings:
        weights, undone = _masks(facts)
        time = launched_ns(facts, weights | undone)
        launching = host_bounds(facts, _launching(facts, weights | undone), HOST)
        if time + launching[0] < self.min_share * facts.step_ns:
            return
        back = launched_ns(facts, undone & ~weights)
        waits = f" The GPU waits another {ms(launching[0])} for their launches." if launching[0] > 0.1 * time else ""
        parts = []
        if back < 0.9 * time:
            parts.append(
                f"Casts of weights take {ms(time - back)} of {each_step(facts)}, with the same result every time."
            )
        if back > 0.1 * time:
            parts.append(f"Casts that the next cast reverts take {ms(back)} of {each_step(facts)}.")
        yield self.finding(
            title=None if back < 0.9 * time else "Keep tensors in one type instead of casting them back and forth",
            why=f"{' '.join(parts)}{waits}",
            saving=priced(
                facts,
                (0.5 * time, 0.9 * time + launching[1], time + launching[2]),
                [RemoveLaunches(weights | undone, HOST)],
                "Assumes that these casts and their launches are gone, at worst half of their GPU time; some may have "
                "to stay.",
                low=shorter(facts, weights | undone, 0.5 * time),
            ),
            evidence=_evidence(facts, weights | undone),
            fix=_fix(facts) if back < 0.9 * time else IN_ONE_TYPE,
            shares_cause_with=["LB003"] if (facts.chains.mask & (weights | undone)).any() else [],
        )

    def passed(self, facts: Facts) -> str:
        weights, undone = _masks(facts)
        share = percent(launched_ns(facts, weights | undone) / facts.step_ns)
        return f"Casts of weights, and casts that are reverted at once, take {share} of {the_step(facts)}."


def _fix(facts: Facts) -> Fix:
    dtype = f"torch.{facts.device.half}"
    if facts.trains:
        return Fix(
            "Put one autocast block around all micro-batches of a step. FSDP and DeepSpeed can hold 16-bit weights "
            "beside a master copy in FP32; a torch optimizer keeps none.",
            f'with torch.autocast("cuda", dtype={dtype}):\n'
            "    for micro in batch.chunk(4):\n        model(micro).backward()",
        )
    if facts.infers:
        text = "Load the weights in 16 bits instead of casting them in every step."
        return Fix(text, f"model = model.to({dtype})")
    return Fix("Cast the weights once, with one autocast block around all passes of a step, or load them in 16 bits.")


def _launching(facts: Facts, casts: npt.NDArray[np.bool_]) -> Intervals:
    """When the host launches these casts."""
    operators = facts.links.op_slice[casts]
    return area_of(facts, operators[operators >= 0])


def _masks(facts: Facts) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """GPU work of casts of weights, and of casts that the next cast undoes."""
    weights = np.zeros(len(facts.gpu.work), bool)
    for kind in facts.casts.kinds:
        weights[kind.rows] |= kind.of_weight
    return weights, facts.casts.undone


def _evidence(facts: Facts, chosen: npt.NDArray[np.bool_], limit: int = 5) -> list[Evidence]:
    """The kinds of casts that take the most time."""
    count, chosen = facts.steps.count, chosen & launched_in_steps(facts)
    rows = []
    for kind in facts.casts.kinds:
        mine = kind.rows[chosen[kind.rows]]
        if not len(mine):
            continue
        mask = np.zeros(len(chosen), bool)
        mask[mine] = True
        size = " x ".join(map(str, kind.size))
        rows.append(
            Evidence(
                what=f"{kind.source} to {kind.target}: {size}",
                us_per_step=round(launched_ns(facts, mask) / 1e3, 3),
                calls_per_step=round(len(mine) / count, 3),
                detail="the size of a weight" if kind.of_weight else "reverted at once",
                location=place_of_work(facts, int(mine[0])),
            )
        )
    return sorted(rows, key=lambda row: -(row.us_per_step or 0.0))[:limit]
