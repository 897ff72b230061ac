"""PY004: the main thread sleeps, runs other programs, or waits for another thread."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.attribution.main_thread_calls import MainThreadCalls
from traceopt.analyzer.vocabulary.causes.table import PROGRAM as RUNNING_PROGRAM
from traceopt.analyzer.vocabulary.causes.table import SLEEP, THREAD_WAIT
from traceopt.rules import (
    Confidence,
    Effort,
    Facts,
    Findings,
    Fix,
    Former,
    Price,
    Priced,
    RemoveHost,
    Rule,
    area_of,
    by_calling_site,
    by_site,
    each_step,
    ms,
    percent,
    priced,
    site_evidence,
    the_step,
    threshold,
    times,
    within,
)

MOST_SITES = 4
# Of the recorded time: what programs take in other runs of a script, as their start needs a core (measured 0.6 to 1.8).
RUNS_DIFFER = 0.5, 2.0
WHOLE, WIDE, UNKNOWN = "whole", "wide", "unknown"  # how much of a wait its fix removes
BASES = {
    WHOLE: "Assumes the sleep is gone.",
    WIDE: "Assumes no program in most steps. The range is wide because the duration of a program differs between runs.",
    UNKNOWN: "Between nothing and all of the wait: it depends on what the step waits for.",
}


class Wait(Struct, frozen=True):
    """One way to wait: how the sentence begins and goes on, and the fix. `removes`: how much of the wait it removes."""

    starts: str
    evidence: str | None  # None: the names of the calls
    fix: Fix
    removes: str | None  # None: nobody knows, so the finding has no saving
    takes: str = "takes"
    leaves: str = "leaves"
    goes_on: str = "."
    title: str | None = None
    effort: Effort | None = None
    confidence: Confidence | None = None


PAUSE = Wait(
    starts="The step sleeps: time.sleep",
    evidence="time.sleep",
    fix=Fix(
        "Remove the sleep. To limit heat or power, limit the clock instead (nvidia-smi -pl, cpupower). To leave time "
        "for another thread, wait for that thread."
    ),
    removes=WHOLE,
    title="Remove time.sleep from the step",
    effort=Effort.ONE_LINE,
)
POLL = Wait(
    starts="The step waits for something that is not ready: time.sleep",
    goes_on=", called {often} by a loop that polls, or by a library.",
    evidence="time.sleep",
    fix=Fix(
        "Find out what the step waits for, and make that faster or start it earlier. Let a blocking call wait: it "
        "returns at once when the other side is ready, a sleep up to its whole length later.",
        "batch = ready.get()  # instead of: while ready.empty(): time.sleep(0.001)",
    ),
    removes=UNKNOWN,
    title="Shorten what the step polls for with time.sleep",
    effort=Effort.SEARCH,
    confidence="low",
)
PROGRAM = Wait(
    starts="The step runs other programs, which",
    takes="take",
    leaves="leave",
    evidence=None,
    fix=Fix(
        "Ask every N steps, in another thread, or without a program: psutil, torch.cuda and pynvml read memory and "
        "utilization in the process itself.",
        "psutil.virtual_memory().available  # instead of subprocess.run",
    ),
    removes=WIDE,
    title="Do not start other programs in every step",
    confidence="medium",
)
THREAD = Wait(
    starts="The step waits for another thread, which",
    goes_on=". It may be a queue that is empty, an event, or a result.",
    evidence="Waiting for a lock",
    fix=Fix(
        "Find what the other thread does. Python threads compute in turns: use processes, such as the workers of a "
        "DataLoader. If it waits for storage or the network, let it run further ahead (a longer queue).",
        "loader = DataLoader(dataset, num_workers=4)  # instead of a thread and a queue",
    ),
    removes=UNKNOWN,
    title="Make the thread faster that the step waits for",
    effort=Effort.SEARCH,
    confidence="low",
)
THREAD_OF_SERVER = replace(
    THREAD,
    fix=Fix(
        "A server that waits for requests has nothing to compute: record it under load. Otherwise find what the other "
        "thread does. Python threads compute in turns: use processes. If it waits for storage or the network, let it "
        "run further ahead (a longer queue)."
    ),
    removes=None,
    title="Find what the thread waits for: requests, or another thread",
)


class MainThreadWait(Rule):
    """Measures how long the main thread waits in the steps: in `time.sleep`, for other programs (`subprocess`,
    `os.system`), and for locks of other threads, as `queue.get()`, `Event.wait()`, `Thread.join()` and
    `Future.result()` do. On a GPU only the time in which it has nothing to do counts. Waits of data loading,
    compilation, logging and checkpoints count there.

    Why it costs: the thread that launches all work does nothing. Starting a process takes one to several milliseconds,
    more in a process with much memory. A thread that prepares batches shares Python's global lock with the loop, so
    both compute in turns.

    How to fix: remove a sleep that was added for debugging or to limit heat. If the loop waits for another thread,
    process or machine, a blocking call returns as soon as that is ready.

        batch = ready.get()                 # queue.Queue
        done.wait()                         # threading.Event
        # instead of: while ready.empty(): time.sleep(0.001)

    Start programs every N steps, or read the value in the process itself.

        if step % 100 == 0:
            free = memory()
        psutil.virtual_memory().available       # instead of `cat /proc/meminfo` or `free`
        torch.cuda.utilization()                # instead of `nvidia-smi`

    Build batches in processes or with code that releases the global lock, and start earlier what takes long: a longer
    queue, or the next request before this step.

        loader = DataLoader(dataset, num_workers=4, prefetch_factor=4)   # instead of a thread and a queue

    When it is wrong: a sleep can be intended, to respect the rate limit of a service, or the real time of a robot or
    game. What a poll, a library or a lock waits for may take as long in any case, so the range then begins at 0. A
    server may wait for requests, so its wait has no saving; if it waits for most of the step, nothing else has one,
    because the next request comes no sooner. A poll that always needs a single sleep looks like a pause.
    A program may do the work of the step, such as tests that reward generated code. Then start the programs of a batch
    together (`concurrent.futures`), and wait for them only after other work was launched.

    Sources: Python documentation of time.sleep, queue, threading and subprocess; PyTorch documentation,
    "torch.utils.data".
    """

    code = "PY004"
    name = "main-thread-wait"
    title = "Remove waits of the main thread from the step"
    family = "Python runtime"
    requires = ("work", "whole", "stacks")
    former = (
        Former("PY004", "sleep"),
        Former("PY005", "program-in-step"),
        Former("PY006", "waits-for-thread", {"min_share": "min_thread_share"}),
    )

    min_share: float = threshold(0.01, "smallest sleep or time of programs, as a share of the step, to report")
    min_thread_share: float = threshold(0.03, "smallest wait for another thread, as a share of the step, to report")

    def applies(self, facts: Facts) -> str | None:
        """One wait at the start of a recording without steps is no wait of every step."""
        return None if facts.has_step_marks else "The trace marks no steps, so a wait may not recur."

    def check(self, facts: Facts) -> Findings:
        sleeps = facts.main_thread_calls(SLEEP)
        polls = facts.sleeps_that_wait(sleeps)
        for wait, calls, least in (
            (PAUSE, sleeps.take(~polls), self.min_share),
            (POLL, sleeps.take(polls), self.min_share),
            (PROGRAM, facts.main_thread_calls(RUNNING_PROGRAM), self.min_share),
            (
                THREAD_OF_SERVER if facts.may_serve else THREAD,
                facts.main_thread_calls(THREAD_WAIT),
                self.min_thread_share,
            ),
        ):
            if calls.typical_ns(facts.steps) >= least * facts.step_ns and calls.recur(facts.steps):
                yield self._of(wait, facts, calls)

    def _of(self, wait: Wait, facts: Facts, calls: MainThreadCalls) -> Priced:
        stall = calls.typical_ns(facts.steps)
        effect = f"{wait.leaves} the GPU idle for" if facts.has_gpu else wait.takes
        often = times(facts, calls.count_per_step(facts.steps))
        if wait.evidence is None:
            sites = by_site(facts, calls.rows, calls.cost_ns)
            evidence = site_evidence(facts, sites)
        else:
            sites = by_calling_site(facts, calls.rows, calls.cost_ns)
            evidence = site_evidence(facts, sites, wait.evidence, MOST_SITES)
        return self.finding(
            title=wait.title,
            effort=wait.effort,
            confidence=wait.confidence,
            why=f"{wait.starts} {effect} {ms(stall)} of {each_step(facts)}{wait.goes_on.format(often=often)}",
            saving=None if wait.removes is None else _price(facts, calls, wait.removes),
            evidence=evidence,
            fix=wait.fix,
        )

    def passed(self, facts: Facts) -> str:
        activities = (SLEEP, RUNNING_PROGRAM, THREAD_WAIT)
        calls = (facts.main_thread_calls(activity) for activity in activities)
        sleep, programs, threads = (percent(call.typical_ns(facts.steps) / facts.step_ns) for call in calls)
        effect = "leaves the GPU idle for" if facts.has_gpu else "takes"
        return (
            f"time.sleep {effect} {sleep} of {the_step(facts)}, other programs {programs}, waits for other threads "
            f"{threads}."
        )


def _price(facts: Facts, calls: MainThreadCalls, removes: str) -> Price:
    stall, area = calls.typical_ns(facts.steps), area_of(facts, calls.rows)
    if removes == UNKNOWN:
        return priced(facts, (0.0, stall, stall), [RemoveHost(area)], BASES[UNKNOWN], low=[RemoveHost(area, 0.0)])
    price = priced(facts, (stall, stall, stall), [RemoveHost(area)], BASES[removes])
    if removes == WHOLE:
        return price
    # A few recorded steps do not show how much the duration of a program differs from run to run.
    low, high = (share * price.est_ns for share in RUNS_DIFFER)
    return within(facts, price, low, high, price.basis)
