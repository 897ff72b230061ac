"""PY006: the training loop waits for another thread."""

from __future__ import annotations

from traceopt.rules import (
    Facts,
    Findings,
    Fix,
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
)


class WaitsForThread(Rule):
    """Measures how long the main thread waits for a lock in the steps, as `queue.get()`, `Event.wait()`,
    `Thread.join()` and `Future.result()` do. On a GPU only the time in which it has nothing to do counts. Waits of data
    loaders, logging and checkpoints count there.

    Why it costs: the thread that launches all work stands still until another one is done. A thread that prepares
    batches shares Python's global lock with the loop, so both compute in turns.

    How to fix: build batches in processes (the workers of a DataLoader) or with code that releases the global lock, and
    start earlier what takes long: a longer queue, or the next request before this step.

        loader = DataLoader(dataset, num_workers=4, prefetch_factor=4)   # instead of a thread and a queue

    When it is wrong: what the step waits for may take as long in any case, so the range begins at 0.

    Sources: Python documentation of queue and threading; PyTorch documentation, "torch.utils.data".
    """

    code = "PY006"
    name = "waits-for-thread"
    title = "Make the thread faster that the step waits for, or start it earlier"
    family = "Python runtime"
    effort = "Some investigation"
    confidence = "low"
    requires = ("work", "whole", "stacks")

    min_share: float = threshold(0.03, "smallest wait, as a share of the step, to report")

    def applies(self, facts: Facts) -> str | None:
        return None if facts.has_step_marks else "The trace marks no steps, so a wait may not recur."

    def check(self, facts: Facts) -> Findings:
        calls = facts.main_thread_calls("thread_wait")
        stall = calls.typical_ns(facts.steps)
        if stall < self.min_share * facts.step_ns or not calls.recur(facts.steps):
            return
        area = area_of(facts, calls.rows)
        evidence = site_evidence(facts, by_calling_site(facts, calls.rows, calls.cost_ns), "Waiting for a lock", 4)
        meanwhile = "leaves the GPU idle for" if facts.has_gpu else "takes"
        yield self.finding(
            why=(
                f"The step waits for another thread, which {meanwhile} {ms(stall)} of {each_step(facts)}. It may be a "
                "queue that is empty, an event, or a result."
            ),
            saving=priced(
                facts,
                (0.0, stall, stall),
                [RemoveHost(area)],
                "Between nothing and all of the wait: it depends on what the other thread does.",
                low=[RemoveHost(area, 0.0)],
            ),
            evidence=evidence,
            locations=places(evidence),
            fix=Fix(
                "Find what the other thread does. Python threads compute in turns: use processes, such as the workers "
                "of a DataLoader. If it waits for storage or the network, let it run further ahead (a longer queue).",
                "loader = DataLoader(dataset, num_workers=4)  # instead of a thread and a queue",
            ),
        )

    def passed(self, facts: Facts) -> str:
        stall = facts.main_thread_calls("thread_wait").typical_ns(facts.steps)
        return f"Waiting for other threads takes {percent(stall / facts.step_ns)} of {the_step(facts)}."
