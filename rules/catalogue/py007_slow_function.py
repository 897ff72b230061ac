"""PY007: the step calls a library function that is slow in loops, for which there is a faster way."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from traceopt.rules import (
    I8,
    Confidence,
    Facts,
    Findings,
    Fix,
    Price,
    Priced,
    Risk,
    Rule,
    area_of,
    by_calling_site,
    each_step,
    host_bounds,
    ms,
    per_step,
    percent,
    priced_host,
    site_evidence,
    the_step,
    threshold,
)


class SlowFunction(Struct, frozen=True):
    """What calls do and what to do instead. `low`, `expected`: the share of their time that goes."""

    title: str
    what: str
    fix: Fix
    low: float
    expected: float
    least_calls: float = 1.0  # per step
    risk: Risk = Risk.NONE
    risk_note: str | None = None
    confidence: Confidence = "medium"


FUNCTIONS = {
    "pandas_rows": SlowFunction(
        "Read rows from NumPy arrays instead of pandas",
        "pandas reads, selects or sorts rows for one item at a time, and creates objects for each",
        Fix(
            "Convert the columns to arrays or tensors once, and index these. If each item selects or sorts rows, sort "
            "and split the frame once (groupby), before the loop.",
            'features = frame[columns].to_numpy(np.float32)  # once\nlabels = frame["label"].to_numpy()\n'
            "x, y = features[i], labels[i]                   # instead of frame.iloc[i]",
        ),
        low=0.5,
        expected=0.9,
        least_calls=8.0,
    ),
    "sample": SlowFunction(
        "Sample from a list instead of a deque",
        "random.sample is slow for each item, as it is from a deque, whose middle it reaches step by step",
        Fix(
            "Keep the items in a list and overwrite the oldest one, or in one tensor for each field.",
            "if len(items) < capacity:\n    items.append(item)\nelse:\n    items[position] = item\n"
            "position = (position + 1) % capacity  # batch = random.sample(items, size)",
        ),
        low=0.4,
        expected=0.8,
    ),
    "module_cast": SlowFunction(
        "Cast or move the model once, not in each step",
        "a cast or move of a whole module (half, float, to) visits all its weights",
        Fix(
            "Convert the model once, before the loop. If a step needs it in two precisions, use torch.autocast, which "
            "casts what operators read, or keep a second model and copy the weights to it.",
            "other = copy.deepcopy(model).half()   # once, before the loop\n"
            "with torch.no_grad():  # in the step\n"
            "    torch._foreach_copy_(list(other.state_dict().values()), list(model.state_dict().values()))",
        ),
        low=0.4,
        expected=0.9,
        risk=Risk.NUMERICS,
        risk_note="Weights that are cast to 16 bits and back in each step are rounded each time",
    ),
    "construction": SlowFunction(
        "Construct modules once, not in each step",
        "modules are constructed (nn.Module: layers, losses, transforms), with their weights and tables",
        Fix(
            "Construct the module once, before the loop or in __init__ of the data set or model, and call it in each "
            "step. A new one has new random weights, if it has any.",
            "self.transform = Spectrogram()       # once, in __init__ of the data set\n"
            "features = self.transform(waveform)  # in __getitem__, instead of Spectrogram()(waveform)",
        ),
        low=0.8,
        expected=0.95,
        risk=Risk.CORRECTNESS,
        risk_note="Wrong if the module is to be another one each time",
        confidence="high",
    ),
}


class SlowFunctionRule(Rule):
    """Measures calls of library functions that are slow when a step makes them, on the thread that trains: reading,
    selecting or sorting rows of pandas for each item, random.sample from a deque, casts or moves of a whole module, and
    constructors of modules, such as that of an audio transform in `__getitem__`. Data loading counts if the loader has
    no workers. On a GPU only the time in which it waits counts.

    Why it costs: iloc and iterrows create a Series for each row, which takes tens of microseconds; an array returns the
    same row in less than one. `frame[frame.name == key]` compares the whole column for each item. A deque is a chain of
    blocks: reading an item in the middle walks through half of them. A cast of a module allocates and writes all
    weights. A constructor makes the weights or tables of a module anew.

    How to fix: keep the data in a form that is fast to read, and convert models once.

        features = frame[columns].to_numpy(np.float32)      # instead of frame.iloc[i] for each sample
        batch = random.sample(items, size)                  # items: a list, not a deque
        with torch.autocast("cuda", torch.bfloat16):        # instead of model.half() in each step

    When it is wrong: a model that is moved to the CPU and back to save memory needs these moves. Frames with columns of
    different types need one array for each type. Functions written in C, such as numpy.random.choice, have no frames:
    LB006 reports the line that calls them. numpy.random.choice(n, k, replace=False) shuffles all n numbers;
    np.random.default_rng().choice(n, k, replace=False, shuffle=False) does not.

    Sources: pandas documentation, "Enhancing performance"; Python documentation, "collections.deque"; NumPy
    documentation, "Generator.choice".
    """

    code = "PY007"
    name = "slow-function"
    title = "Use a faster way than this library function"
    family = "Python runtime"
    confidence = "medium"
    requires = ("work", "whole", "stacks")

    min_share: float = threshold(0.05, "smallest time of such calls, as a share of the step, to report")

    def applies(self, facts: Facts) -> str | None:
        return None if facts.slow_functions else "The steps do not call a function that is known to be slow."

    def check(self, facts: Facts) -> Findings:
        for kind, calls in facts.slow_functions.items():
            function = FUNCTIONS[kind]
            is_long = facts.steps.host_mean_ns(area_of(facts, calls)) >= self.min_share * facts.step_ns
            if is_long and len(calls) >= function.least_calls * facts.steps.count:
                yield self._found(facts, function, calls)

    def _found(self, facts: Facts, function: SlowFunction, calls: I8) -> Priced:
        sites = by_calling_site(facts, calls)
        time_ns = facts.steps.host_mean_ns(area_of(facts, calls))
        return self.finding(
            title=function.title,
            why=(
                f"In {ms(time_ns)} of {each_step(facts)}, {function.what}. There are "
                f"{len(calls) / facts.steps.count:,.0f} such calls {per_step(facts)}."
            ),
            saving=_price(facts, function, calls),
            evidence=site_evidence(facts, sites),
            fix=function.fix,
            confidence=function.confidence,
            risk=function.risk,
            risk_note=function.risk_note,
            shares_cause_with=["LB006"],
        )

    def passed(self, facts: Facts) -> str:
        rows = np.concatenate(list(facts.slow_functions.values()))
        share = percent(facts.steps.host_mean_ns(area_of(facts, rows)) / facts.step_ns)
        return f"Functions that are known to be slow take {share} of {the_step(facts)}."


def _price(facts: Facts, function: SlowFunction, calls: I8) -> Price:
    area, low, expected = area_of(facts, calls), function.low, function.expected
    _, most, _ = host_bounds(facts, area, 1.0)
    basis = f"Assumes {percent(low)}, {percent(expected)} or 100% of the time in these calls goes away."
    return priced_host(facts, area, most, (low, expected, 1.0), basis)
