"""PY005: the steps start other programs."""

from __future__ import annotations

from msgspec.structs import replace

from traceopt.analyzer.attribution.main_thread_calls import MainThreadCalls
from traceopt.rules import (
    Facts,
    Findings,
    Fix,
    Price,
    RemoveHost,
    Rule,
    area_of,
    by_site,
    each_step,
    ms,
    name_of,
    percent,
    priced,
    saving,
    site_evidence,
    site_locations,
    the_step,
    threshold,
)

# Of the recorded time: what programs take in other runs of a script, as their start needs a core (measured 0.6 to 1.8).
RUNS_DIFFER = 0.5, 2.0


class ProgramInStep(Rule):
    """Measures `subprocess` and `os.system` on the main thread in the steps, while the GPU has nothing to do; on a
    CPU-only run, all of their time. Programs that data loading, compilation or logging starts count there.

    Why it costs: starting a process takes one to several milliseconds, more in a process with much memory. Then the
    step waits for the result.

    How to fix: ask every N steps, or read the value in the process itself.

        if step % 100 == 0:
            free = memory()
        psutil.virtual_memory().available       # instead of `cat /proc/meminfo` or `free`
        torch.cuda.utilization()                # instead of `nvidia-smi`

    When it is wrong: the program may do the work of the step, such as tests that reward generated code. Then start the
    programs of a batch together (`concurrent.futures`), and wait for them only after other work was launched.

    Sources: Python documentation of the subprocess module.
    """

    code = "PY005"
    name = "program-in-step"
    title = "Do not start other programs in every step"
    family = "Python runtime"
    effort = "A few lines"
    confidence = "medium"
    requires = ("work", "whole", "stacks")

    min_share: float = threshold(0.01, "smallest stall, as a share of the step, to report")

    def applies(self, facts: Facts) -> str | None:
        """One program at the start of a recording without steps is no program of every step."""
        return None if facts.has_step_marks else "The trace marks no steps, so a program may start only once."

    def check(self, facts: Facts) -> Findings:
        calls = facts.main_thread_calls("program")
        stall = calls.typical_ns(facts.steps)
        if stall < self.min_share * facts.step_ns or not calls.recur(facts.steps):
            return
        sites = by_site(facts, calls.rows, calls.cost_ns)
        effect = "leave the GPU idle for" if facts.has_gpu else "take"
        yield self.finding(
            why=f"The step runs other programs, which {effect} {ms(stall)} of {each_step(facts)}.",
            saving=_price(facts, calls),
            evidence=site_evidence(facts, sites, lambda site: name_of(facts, int(site.rows[0]))),
            locations=site_locations(sites),
            fix=Fix(
                "Ask every N steps, in another thread, or without a program: psutil, torch.cuda and pynvml read memory "
                "and utilization in the process itself.",
                "psutil.virtual_memory().available  # instead of subprocess.run",
            ),
        )

    def passed(self, facts: Facts) -> str:
        calls = facts.main_thread_calls("program")
        if not len(calls.rows):
            return "The steps start no other programs."
        effect = "leave the GPU idle for" if facts.has_gpu else "take"
        return f"Other programs {effect} {percent(calls.typical_ns(facts.steps) / facts.step_ns)} of {the_step(facts)}."


def _price(facts: Facts, calls: MainThreadCalls) -> Price:
    """A few recorded steps do not show how much the duration of a program differs from run to run."""
    stall = calls.typical_ns(facts.steps)
    price = priced(
        facts,
        (stall, stall, stall),
        [RemoveHost(area_of(facts, calls.rows))],
        "Assumes no program in most steps. The range is wide because the duration of a program differs between runs.",
    )
    low, high = (share * price.saving.est_us * 1e3 for share in RUNS_DIFFER)
    return replace(price, saving=saving(facts, low, price.saving.est_us * 1e3, high, price.saving.basis))
