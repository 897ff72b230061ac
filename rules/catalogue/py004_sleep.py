"""PY004: the training loop sleeps."""

from __future__ import annotations

from traceopt.analyzer.attribution.main_thread_calls import MainThreadCalls
from traceopt.rules import (
    Evidence,
    Facts,
    Findings,
    Fix,
    Priced,
    RemoveHost,
    Rule,
    area_of,
    by_calling_site,
    each_step,
    ms,
    percent,
    places,
    priced,
    site_evidence,
    the_step,
    threshold,
    times,
)

REMOVE = Fix(
    "Remove the sleep. To limit heat or power, limit the clock instead (nvidia-smi -pl, cpupower). To leave time for "
    "another thread, wait for that thread.",
)
WAIT = Fix(
    "Find out what the step waits for, and make that faster or start it earlier. Let a blocking call wait: it returns "
    "at once when the other side is ready, a sleep up to its whole length later.",
    "batch = ready.get()  # instead of: while ready.empty(): time.sleep(0.001)",
)


class Sleep(Rule):
    """Measures `time.sleep` on the main thread in the steps, while the GPU has nothing to do; on a CPU-only run, all of
    it. Sleeps inside data loading, logging or checkpoints count there.

    Why it costs: the thread that launches all work does nothing.

    How to fix: remove a sleep that was added for debugging or to limit heat. If the loop waits for another thread,
    process or machine, a blocking call returns as soon as that is ready.

        batch = ready.get()                 # queue.Queue
        done.wait()                         # threading.Event
        # instead of: while ready.empty(): time.sleep(0.001)

    When it is wrong: a sleep can be intended, to respect the rate limit of a service, or the real time of a robot or
    game. A function that sleeps again and again without an operator between, or a library that sleeps, waits for
    something. Such a finding promises nothing for sure, because what it waits for may take as long. A poll that always
    needs a single sleep looks like a pause.

    Sources: Python documentation of time.sleep and of the queue module.
    """

    code = "PY004"
    name = "sleep"
    title = "Remove time.sleep from the step"
    family = "Python runtime"
    effort = "One line"
    confidence = "high"
    requires = ("work", "whole", "stacks")

    min_share: float = threshold(0.01, "smallest stall, as a share of the step, to report")

    def applies(self, facts: Facts) -> str | None:
        """One sleep at the start of a recording without steps is no sleep of every step."""
        return None if facts.has_step_marks else "The trace marks no steps, so a sleep may not recur."

    def check(self, facts: Facts) -> Findings:
        sleeps = facts.main_thread_calls("sleep")
        waits = facts.sleeps_that_wait(sleeps)
        for calls, of in ((sleeps.only(~waits), _pause), (sleeps.only(waits), _wait)):
            if calls.typical_ns(facts.steps) >= self.min_share * facts.step_ns and calls.recur(facts.steps):
                yield of(self, facts, calls)

    def passed(self, facts: Facts) -> str:
        sleeps = facts.main_thread_calls("sleep")
        if not len(sleeps.rows):
            return "The steps do not call time.sleep."
        effect = "leaves the GPU idle for" if facts.has_gpu else "takes"
        return f"time.sleep {effect} {percent(sleeps.typical_ns(facts.steps) / facts.step_ns)} of {the_step(facts)}."


def _pause(rule: Sleep, facts: Facts, calls: MainThreadCalls) -> Priced:
    stall, evidence = calls.typical_ns(facts.steps), _evidence(facts, calls)
    return rule.finding(
        why=f"The step sleeps: time.sleep {_takes(facts, stall)}.",
        saving=priced(
            facts, (stall, stall, stall), [RemoveHost(area_of(facts, calls.rows))], "Assumes the sleep is gone."
        ),
        evidence=evidence,
        locations=places(evidence),
        fix=REMOVE,
    )


def _wait(rule: Sleep, facts: Facts, calls: MainThreadCalls) -> Priced:
    stall, evidence, area = calls.typical_ns(facts.steps), _evidence(facts, calls), area_of(facts, calls.rows)
    return rule.finding(
        title="Shorten what the step polls for with time.sleep",
        why=f"The step waits for something that is not ready: time.sleep {_takes(facts, stall)}, called "
        f"{times(facts, calls.count_per_step(facts.steps))} by a loop that polls, or by a library.",
        saving=priced(
            facts,
            (0.0, stall, stall),
            [RemoveHost(area)],
            "Between nothing and all of the wait: it depends on what the step waits for.",
            low=[RemoveHost(area, 0.0)],
        ),
        confidence="low",
        effort="Some investigation",
        evidence=evidence,
        locations=places(evidence),
        fix=WAIT,
    )


def _takes(facts: Facts, stall: float) -> str:
    return f"{'leaves the GPU idle for' if facts.has_gpu else 'takes'} {ms(stall)} of {each_step(facts)}"


def _evidence(facts: Facts, calls: MainThreadCalls) -> list[Evidence]:
    return site_evidence(facts, by_calling_site(facts, calls.rows, calls.cost_ns), "time.sleep", 4)
