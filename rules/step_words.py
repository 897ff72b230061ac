"""The step in the sentences of rules. A recording without step marks has no steps, so nothing in it is "per step"."""

from __future__ import annotations

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.ranks.run_facts import RunFacts
from traceopt.result.words.message import step_time
from traceopt.result.words.quantities import count


def the_step(facts: Facts | RunFacts) -> str:
    """What shares are of: "the step", or "the recording" without step marks."""
    return "the step" if facts.has_step_marks else "the recording"


def each_step(facts: Facts | RunFacts) -> str:
    """What times are of: "each 43.0 ms step", or "the 545.7 ms recording" without step marks."""
    step = step_time(facts.step_ns)
    return f"each {step} step" if facts.has_step_marks else f"the {step} recording"


def per_step(facts: Facts | RunFacts) -> str:
    """What follows a number of calls, bytes or milliseconds: "per step", or "in total" without step marks."""
    return "per step" if facts.has_step_marks else "in total"


def times(facts: Facts, number: float) -> str:
    """How often: "once per step", "12.5 times per step"; "107 times in total" without step marks."""
    text = count(number)
    return f"{'once' if text == '1' else f'{text} times'} {per_step(facts)}"
