"""The headline of a result: a fact and its cause, in at most two sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from traceopt.analyzer.facts import Facts
from traceopt.result.document import Quality
from traceopt.result.quantities import percent
from traceopt.result.rows import BreakdownPart
from traceopt.rules.savings.price import Priced
from traceopt.rules.savings.pricing import on_host

HEALTHY_IDLE_SHARE = 0.10
MOSTLY_IDLE_SHARE = 0.20  # from here on idle time is the headline, however much faster the GPU's own work could be
UNUSABLE = ("TQ001", "TQ007")  # notes that make the trace unusable

# The bottleneck, by the largest cause of idle time.
_LAUNCH_BOUND = "Launch-bound: the host launches work more slowly than the GPU runs it."
_CAUSE = {
    "data_loading": "The data loader is the bottleneck.",
    "input_work": "Preprocessing outside the data loader is the bottleneck.",
    "host_sync": "Host syncs are the bottleneck: each one drains the GPU's queue.",
    "logging": "Logging in the step is the bottleneck.",
    "checkpoint": "Saving checkpoints in the step is the bottleneck.",
    "gc": "Python's garbage collector is the bottleneck.",
    "allocation": "Allocating device memory is the bottleneck.",
    "module_load": "This is a cold start: the time goes into first calls and kernel loading.",
    "compile": "This is not steady state: the time goes into compilation.",
    "launch": _LAUNCH_BOUND,
    "python": _LAUNCH_BOUND,
    "untraced": _LAUNCH_BOUND,
    "hole": "Python records no events for long stretches, as it does during garbage collection.",
    "queued": "But its next work was already queued; the trace does not show what held it back.",
}
_HOST_BOUND = ("launch", "python", "untraced")


def verdict(facts: Facts, quality: Quality, breakdown: Sequence[BreakdownPart], priced: Sequence[Priced]) -> str:
    """What limits the step, or why that is unknown."""
    if quality.verdict == "unusable":
        reason = next((note.text for note in quality.notes if note.code in UNUSABLE), "")
        return f"This trace cannot be judged. {reason}".strip()
    if not facts.has_gpu:
        return _cpu_verdict(facts, breakdown)
    if facts.quality.sampled_share is not None:
        return (
            f"This file has only {percent(facts.quality.sampled_share)} of the events: its shares of time are not real."
        )
    shares = {part.name: part.share for part in breakdown}
    idle = sum(part.share for part in breakdown if not part.busy)
    exposed = shares.get("communication", 0.0)
    unit = "the step" if facts.steps.source != "window" else "the trace"
    first = next((one for one in priced if one.finding.impact in ("high", "medium")), None)
    if exposed >= max(0.10, idle):
        return f"Exposed (non-overlapped) communication takes {percent(exposed)} of {unit}. It is the bottleneck."
    if idle >= MOSTLY_IDLE_SHARE or (
        idle >= HEALTHY_IDLE_SHARE and not (first and first.changes and not on_host(first))
    ):
        return _idle_verdict(shares, idle, unit)
    return f"GPU-bound: the GPU is busy for {percent(1 - idle)} of {unit}. {_biggest_lever(first)}"


def _idle_verdict(shares: Mapping[str, float], idle: float, unit: str) -> str:
    groups = {name: share for name, share in shares.items() if name in _CAUSE and name not in _HOST_BOUND}
    groups["launch"] = sum(shares.get(name, 0.0) for name in _HOST_BOUND)
    cause = max(groups, key=lambda name: groups[name])
    verb = "seems" if cause == "queued" else "is"
    return f"The GPU {verb} idle for {percent(idle)} of {unit}. {_CAUSE[cause]}"


def _biggest_lever(first: Priced | None) -> str:
    if first is None:
        return "No fix above 3% found."
    title = first.finding.title
    return f"Biggest lever: {title[0].lower()}{title[1:]}."


def _cpu_verdict(facts: Facts, breakdown: Sequence[BreakdownPart]) -> str:
    stall = max((p for p in breakdown if not p.busy), key=lambda p: p.share, default=None)
    work = sum(p.share for p in breakdown if p.busy and p.name != "communication")
    communication = sum(p.share for p in breakdown if p.name == "communication")
    head = "No GPU work was recorded." if facts.quality.gpu_expected else "This is a CPU-only run."
    if communication >= max(0.10, work):
        return f"{head} The training thread waits for communication for {percent(communication)} of the step."
    if stall is not None and stall.share >= HEALTHY_IDLE_SHARE and stall.share > 0.5 * work:
        return f"{head} {stall.label} takes {percent(stall.share)} of the step; model work takes {percent(work)}."
    return f"{head} Model work takes {percent(work)} of the step."
