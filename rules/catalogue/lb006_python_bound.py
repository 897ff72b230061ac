"""LB006: Python code blocks the main thread while the device is idle."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.attribution.silent_work import LONG_NS
from traceopt.analyzer.timeline.python_stretches import PythonStretches
from traceopt.analyzer.vocabulary.causes.table import DATA_LOADING, GC, LONG_PYTHON
from traceopt.analyzer.vocabulary.causes.table import PYTHON as RUNNING_PYTHON
from traceopt.analyzer.vocabulary.python_frames import call_name
from traceopt.rules import (
    PYTHON,
    Effort,
    Evidence,
    Facts,
    Findings,
    Fix,
    Intervals,
    Location,
    Rule,
    each_step,
    intersect,
    main_function_by_site,
    merge,
    ms,
    percent,
    priced_host,
    the_step,
    threshold,
    union,
)

# Share of the stall that a fix saves, low and expected: some of the work remains in another form.
UNPROFILED = 0.5, 1.0, "Assumes the fix removes all of the measured stall, or at worst half of it."
PROFILED = 0.3, 0.8, "Assumes the fix removes 30%, 80% or 100% of the measured stall; the profiler slows Python."
# In a CPU-only run, Python between two operators is a stretch of its own from this share of the step on, but not as
# short as the code around each operator.
LONG_SHARE, DISPATCH_NS = 0.02, 100_000
BUILDS_TENSOR = "built-in method tensor of type"  # torch.tensor
WALKS_MODULES, MODULES = ": named_", "modules = dict(model.named_modules())  # once, outside the loop"
NAMED_SHARE = 0.01  # of the stall: lines that run for less are not named
MAIN_SHARE, MAIN_LINES = 0.1, 3  # of the stall: lines that the sentence names, the most expensive first


class PythonBound(Rule):
    """Measures stretches of a millisecond or more in which the GPU is idle while the launching thread runs Python code
    that is not an operator, a data loader, known input work, logging or the profiler. A function that runs no operator
    for 0.2 ms or longer counts as well, for example between pieces of compiled code: no CUDA graph removes it. On a
    CPU-only run, such stretches and functions of the main thread count.

    Why it costs: no operator runs or is launched while Python itself computes: walking modules, building lists, masks
    or indices in loops, framework hooks.

    How to fix: do it once instead of in every step, vectorize it, move it into a loader worker, or do it while the GPU
    has work.

        modules = dict(model.named_modules())       # once, outside the loop
        mask = torch.arange(n, device="cuda") < k   # instead of a Python loop over n

    When it is wrong: a thread that waits in Python may look the same; the finding names the call. PY004 covers
    waits for `time.sleep`, other programs and other threads. On a CPU-only run a thread that waits for a core also
    looks the same, so only functions that take time in three of four steps count. Time directly after a batch was
    loaded does not count, because the loop then frees the batch before. Neither do lines of a CPU-only run that free
    large tensors: the system takes their memory back. The profiler slows Python calls more than anything else. The true
    cost is therefore smaller, by half in code that makes many small calls.

    Sources: Python documentation, "The Python Profilers" (overhead of tracing calls).
    """

    code = "LB006"
    name = "python-bound"
    title = "Move Python work out of the step"
    family = "launch and dispatch"
    effort = Effort.REFACTORING
    confidence = "medium"
    requires = ("work", "whole", "launches", "stacks")

    min_share: float = threshold(0.03, "smallest stall, as a share of the step, to report")

    def check(self, facts: Facts) -> Findings:
        held = _held(facts)
        if held.typical_ns < self.min_share * facts.step_ns:
            return
        low, expected, basis = PROFILED if facts.frames_recorded_with_times else UNPROFILED
        stretches, area = held.stretches, held.stretches.area
        rows = main_function_by_site(facts, stretches, held.time_ns)
        evidence = [row for row in rows if (row.us_per_step or 0.0) * 1e3 >= NAMED_SHARE * held.typical_ns]
        stall, idle = held.typical_ns, "the GPU is idle" if facts.has_gpu else "no operator runs"
        why = f"Python blocks the main thread for {ms(stall)} of {each_step(facts)} while {idle}"
        why += f"{_main_lines(evidence, stall)}."
        yield self.finding(
            title="Build tensors from tensors or arrays, not from lists" if _builds_tensors(evidence) else None,
            why=why + (_recorded_calls(facts, area) if facts.frames_recorded_with_times else ""),
            saving=priced_host(facts, area, stall, (low, expected, 1.0), basis),
            evidence=evidence,
            fix=_fix(facts, evidence),
        )

    def passed(self, facts: Facts) -> str:
        share = percent(_held(facts).typical_ns / facts.step_ns)
        effect = "leave the GPU idle for" if facts.has_gpu else "take"
        return f"Long stretches of Python {effect} {share} of {the_step(facts)}."


def _recorded_calls(facts: Facts, area: Intervals) -> str:
    slices = facts.slices
    mine = (slices.kind == PYTHON) & (slices.thread == facts.steps.thread)
    calls = np.count_nonzero(area.contains(slices.start[mine])) / facts.steps.count
    return f" {calls:,.0f} calls of Python functions were recorded in it, which makes it longer." if calls >= 1 else ""


def _main_lines(evidence: list[Evidence], stall_ns: float) -> str:
    """What the Python work is: the functions that take most of the stall, with their lines."""
    main = [row for row in evidence if (row.us_per_step or 0.0) * 1e3 >= MAIN_SHARE * stall_ns][:MAIN_LINES]
    lines = [f"{call_name(row.what)}{_at(row.location)} for {ms((row.us_per_step or 0.0) * 1e3)}" for row in main]
    return f": {', '.join(lines)}" if lines else ""


def _at(location: Location | None) -> str:
    if location is None:
        return ""
    file = location.file.rpartition("/")[2]
    return f" ({file})" if location.line is None else f" ({file}:{location.line})"


def _builds_tensors(evidence: list[Evidence]) -> bool:
    return bool(evidence) and BUILDS_TENSOR in evidence[0].what


def _fix(facts: Facts, evidence: list[Evidence]) -> Fix:
    """What a library does inside cannot be moved by its user."""
    if evidence and evidence[0].detail is not None:
        return Fix(
            "A library does this work inside the call at this line. Look for a setting that avoids it or keeps its "
            "result, or make fewer such calls."
        )
    if _builds_tensors(evidence):
        return Fix(
            "torch.tensor reads a list item by item. Keep the items as tensors from the start, as in a replay buffer, "
            "and stack those. np.stack is as fast for NumPy arrays, but reads lists of numbers item by item as well. "
            "Many tensors of one number each are faster as one tensor of all of them.",
            "buffer.append(torch.tensor(state))  # once for each state, not in each batch\n"
            "states = torch.stack(batch)         # of NumPy arrays: torch.from_numpy(np.stack(batch))",
        )
    ways = ["Vectorize its loops", "keep what does not change from step to step"]
    if not facts.trains:
        ways.append("do it ahead in another thread or process")
    elif len(facts.host.rows_of(DATA_LOADING)):
        ways.append("move it into the loader workers")
    text = f"{', '.join(ways[:-1])}, or {ways[-1]}."
    if facts.trains:
        text += " A metric or a value for the log is enough every N steps."
    return Fix(text, MODULES if evidence and WALKS_MODULES in evidence[0].what else None)


class _Held(Struct, frozen=True):
    """When Python blocks the main thread: what it runs, and what each stretch takes of the typical step, ns."""

    time_ns: npt.NDArray[np.float64]
    stretches: PythonStretches

    @property
    def typical_ns(self) -> float:
        return float(self.time_ns.sum())


def _held(facts: Facts) -> _Held:
    if facts.has_gpu:
        gaps, amount = facts.gaps, facts.idle.of_gaps(LONG_PYTHON)
        python = facts.host_flow.of(facts.steps.thread)[LONG_PYTHON]
        area = intersect(python, union(gaps.start[amount > 0], gaps.starved_end[amount > 0]))
        stretches = _python_work(facts, area)
        amount = np.minimum(amount, stretches.area.within(gaps.start, gaps.starved_end))
        typical_ns = float(amount.sum()) / facts.steps.count
        share = typical_ns / max(1, int(stretches.length.sum()))
        return _Held(share * stretches.length.astype(np.float64), stretches)
    python = facts.cpu_phases.areas[RUNNING_PYTHON]
    whole = merge(python, facts.cpu_phases.areas[GC])  # a collection does not end the function that it interrupts
    least_ns = min(LONG_NS, max(DISPATCH_NS, LONG_SHARE * facts.step_ns))
    long = python.within(whole.start, whole.end) >= least_ns
    computing = facts.regions.area(facts.regions.computing_functions, facts.steps.thread)
    area = intersect(python, merge(Intervals(whole.start[long], whole.end[long]), computing))
    return _Held(*_python_work(facts, area).recurring(facts.steps))


def _python_work(facts: Facts, area: Intervals) -> PythonStretches:
    stretches = facts.python_stretches(area)
    loading = facts.host.of_thread(facts.steps.thread)[DATA_LOADING]
    stretches = stretches.take(~stretches.after_loading(facts.slices, loading))
    memory, blocks, steps = facts.memory, facts.blocks, facts.recorded_steps
    if facts.has_gpu or memory is None or blocks is None or not len(stretches):
        return stretches
    known = memory.peak_by_step(steps) >= 0
    recorded = Intervals(steps.host_start[known], steps.host_end[known])
    sites = facts.call_sites.of_own_time(stretches.rows, stretches.start)
    return stretches.take(~stretches.free_memory(sites, blocks.bytes, blocks.end, recorded))
