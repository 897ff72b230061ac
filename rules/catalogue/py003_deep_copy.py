"""PY003: the training loop copies objects with copy.deepcopy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from traceopt.rules import (
    Facts,
    Findings,
    Fix,
    Price,
    Risk,
    Rule,
    area_of,
    by_calling_site,
    counted,
    each_step,
    host_bounds,
    ms,
    per_step,
    priced_host,
    site_evidence,
    the_step,
    threshold,
)

# Of the time of the copies, at worst and expected: tensors that are needed twice are still copied, in place.
SAVED = 0.6, 0.9


class DeepCopy(Rule):
    """Measures `copy.deepcopy` in the steps: of a model for an average of its weights, of a state_dict, of a
    configuration or a batch.

    Why it costs: deepcopy walks every Python object below the one that it copies, and allocates all tensors anew. For a
    module that is dozens of objects for each parameter. The objects also make the garbage collector run more often.

    How to fix: read the original if neither it nor the copy changes while the copy is used. Otherwise create the copy
    once and update its tensors in place: parameters and buffers.

        kept = copy.deepcopy(model)          # once, before the loop
        with torch.no_grad():                # in the loop
            torch._foreach_copy_([*kept.parameters(), *kept.buffers()], [*model.parameters(), *model.buffers()])

    When it is wrong: other attributes of a module are not copied again. A search that
    changes the copies may need a new one for each candidate. A copy that is made every few hundred steps counts only if
    it falls into the recorded steps.

    Sources: Python documentation of the copy module.
    """

    code = "PY003"
    name = "deep-copy"
    title = "Update a copy in place instead of deepcopy"
    family = "Python runtime"
    risk = Risk.CORRECTNESS
    risk_note = "Wrong if the copy needs more than parameters and buffers"
    confidence = "medium"
    requires = ("whole", "stacks")

    min_share: float = threshold(0.02, "smallest time in deepcopy, as a share of the step, to report")

    def check(self, facts: Facts) -> Findings:
        copies = facts.deep_copies
        time_ns = _time_ns(facts)
        cost_ns = facts.slices.duration_of(copies)
        per_step_ns = facts.steps.per_step(facts.steps.host_step_of(facts.slices.start[copies]), cost_ns)
        if time_ns < self.min_share * facts.step_ns or not np.all(per_step_ns):
            return
        calls = round(len(copies) / facts.steps.count)
        yield self.finding(
            why=(
                f"copy.deepcopy takes {ms(time_ns)} of {each_step(facts)}, in {counted(calls, 'call')} "
                f"{per_step(facts)}."
            ),
            saving=_price(facts, copies),
            evidence=site_evidence(facts, by_calling_site(facts, copies, cost_ns), "copy.deepcopy", 4),
            fix=Fix(
                "If neither the copy nor the original changes while the copy is used, use the original. Otherwise make "
                "the copy once, before the loop, and update its tensors in place.",
                "with torch.no_grad():  # kept = copy.deepcopy(model), before the loop\n"
                "    torch._foreach_copy_([*kept.parameters(), *kept.buffers()], [*model.parameters(), "
                "*model.buffers()])",
            ),
        )

    def passed(self, facts: Facts) -> str:
        if not len(facts.deep_copies):
            return "The steps do not call copy.deepcopy."
        return f"copy.deepcopy takes {ms(_time_ns(facts))} of {the_step(facts)}."


def _time_ns(facts: Facts) -> float:
    return facts.steps.host_mean_ns(area_of(facts, facts.deep_copies))


def _price(facts: Facts, copies: npt.NDArray[np.int64]) -> Price:
    area = area_of(facts, copies)
    _, most, _ = host_bounds(facts, area, 1.0)
    basis = "Assumes the fix removes 60%, 90% or 100% of the time in deepcopy."
    return priced_host(facts, area, most, (*SAVED, 1.0), basis)
