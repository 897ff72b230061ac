"""LG004: a debugging mode is on during training."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from traceopt.analyzer.vocabulary.library_frames import is_stored_traceback
from traceopt.rules import (
    OP,
    PYTHON,
    Effort,
    Evidence,
    Facts,
    Findings,
    Fix,
    Intervals,
    Mask,
    Price,
    Priced,
    RemoveLaunches,
    Risk,
    Rule,
    SetVariable,
    by_site,
    each_step,
    host_bounds,
    lacks,
    ms,
    percent,
    priced,
    rate,
    site_locations,
    threshold,
    us,
    without_calls,
)

_NAN_CHECKS = ("aten::isnan", "aten::_is_any_true", "aten::any", "aten::item")


class DebugModeOn(Rule):
    """Measures the work of debugging modes inside the steps: the tracebacks and NaN checks of autograd's anomaly mode,
    the filling of new tensors in deterministic mode, and gradcheck. Also names switches that leave no events but that
    `traceopt run` found set: Python's development mode, a debugging allocator, TORCH_DISTRIBUTED_DEBUG=DETAIL.

    Why it costs: anomaly mode stores a traceback for every operator of the forward pass. After every operator of the
    backward pass it reads from the GPU whether its gradient holds a NaN, which waits for the GPU.
    TORCH_DISTRIBUTED_DEBUG=DETAIL compares every collective between all ranks before it can start.

    How to fix: switch it off, and on again only to look for a bug.

        torch.autograd.set_detect_anomaly(False)
        torch.utils.deterministic.fill_uninitialized_memory = False   # results stay deterministic

    When it is wrong: the mode is on because you are looking for a bug.

    Sources: PyTorch documentation, "Anomaly detection" ("will slow down your program execution"), of
    torch.use_deterministic_algorithms, and of torch.distributed, "Debugging torch.distributed applications".
    """

    code = "LG004"
    name = "debug-mode-on"
    title = "Turn off debugging modes"
    family = "logging"
    effort = Effort.ONE_LINE
    risk = Risk.LATER
    risk_note = "Errors are found later"

    min_share: float = threshold(0.005, "smallest saving of a mode seen in the trace, as a share of the step")

    def missing(self, facts: Facts) -> str | None:
        """The trace itself shows some of the modes."""
        return None if any(mode.seen(facts).any() for mode in _MODES) else lacks(facts, "settings")

    def check(self, facts: Facts) -> Findings:
        for mode in _MODES:
            mask = mode.seen(facts)
            if mask.any():
                area = _area(facts, mask)
                changes = [*without_calls(facts, np.flatnonzero(mask)), RemoveLaunches(facts.regions.work_under(mask))]
                saved = priced(facts, host_bounds(facts, area, 1.0), changes, mode.basis)
                if saved.share >= self.min_share:
                    yield self._measured(facts, mode, mask, saved)
        switches = _switches(facts)
        if switches:
            names = ", ".join(switch for switch, _ in switches)
            yield self.finding(
                why=f"{len(switches)} debugging {'switch is' if len(switches) == 1 else 'switches are'} set: {names}.",
                evidence=[Evidence(switch, detail=effect) for switch, effect in switches],
                fix=Fix(
                    "Unset it and measure the step again: no event shows its cost.",
                    edits=[SetVariable(switch.partition("=")[0], None) for switch, _ in switches if "=" in switch],
                ),
            )

    def _measured(self, facts: Facts, mode: _Mode, mask: Mask, saved: Price) -> Priced:
        area = _area(facts, mask)
        time_ns = facts.steps.host_mean_ns(area)
        sites = by_site(facts, np.flatnonzero(mask))
        switch = facts.captured.anomaly_mode_set
        calls = sum(site.calls for site in sites) / facts.steps.count
        return self.finding(
            title=mode.title,
            why=f"{mode.what} {ms(time_ns)} of {each_step(facts)} on the host.",
            saving=saved,
            evidence=[Evidence(mode.evidence, us(time_ns), rate(calls))],
            locations=[switch.site] if switch is not None and mode is _MODES[0] else site_locations(sites, 2),
            fix=Fix(mode.advice, mode.code),
            shares_cause_with=["HS001"] if mode is _MODES[0] else [],
        )

    def passed(self, facts: Facts) -> str:
        share = sum(_area(facts, mode.seen(facts)).total for mode in _MODES) / facts.steps.window_ns
        return f"Debugging modes take {percent(share)} of the steps, and no debugging switch was recorded as set."


class _Mode(Struct, frozen=True):
    """A debugging mode with events in the trace; `seen` returns its slices as a mask."""

    title: str
    what: str
    evidence: str
    basis: str
    advice: str
    code: str
    seen: Callable[[Facts], Mask]


def _nan_checks(facts: Facts) -> Mask:
    """NaN checks directly below a backward node: no operator calls them there by itself."""
    mask = _below(facts, facts.regions.named(lambda name: name in _NAN_CHECKS, OP), facts.regions.backward)
    reads = facts.regions.named(lambda name: name == "aten::isnan", OP)
    return mask if (mask & reads).any() else np.zeros(len(mask), bool)


def _anomaly_checks(facts: Facts) -> Mask:
    """Those, and the tracebacks stored in the forward pass, if frames were recorded."""
    checks = _nan_checks(facts)
    return checks | facts.regions.named(is_stored_traceback, PYTHON) if checks.any() else checks


def _fills_of_new_tensors(facts: Facts) -> Mask:
    fills = facts.regions.named(lambda name: name == "aten::fill_", OP)
    return _below(facts, fills, facts.regions.named(lambda name: name.startswith("aten::empty"), OP))


def _gradcheck(facts: Facts) -> Mask:
    return facts.regions.named(lambda name: "torch/autograd/gradcheck.py(" in name, PYTHON)


def _below(facts: Facts, mask: Mask, parents: Mask) -> Mask:
    """The slices of one mask whose parent is in the other mask."""
    rows = np.flatnonzero(mask)
    parent = facts.slices.parent[rows]
    below = np.zeros(len(mask), bool)
    below[rows[(parent >= 0) & parents[parent]]] = True
    return below


_MODES = (
    _Mode(
        "Turn off autograd's anomaly detection",
        "Anomaly detection is on: storing tracebacks and checking every gradient for NaN takes",
        "Tracebacks and NaN checks",
        "The host time of the checks, and of the tracebacks in the forward pass if Python frames were recorded; the "
        "low end counts only the part during which the GPU starves.",
        "Turn off anomaly detection once you have found the NaN.",
        "torch.autograd.set_detect_anomaly(False)",
        _anomaly_checks,
    ),
    _Mode(
        "Do not fill new tensors",
        "Deterministic mode fills every new tensor, which takes",
        "aten::fill_ on new tensors",
        "The host time of the fills; the low end counts only fills during which the GPU starves.",
        "Deterministic algorithms do not need it; it only exposes reads of uninitialized memory.",
        "torch.utils.deterministic.fill_uninitialized_memory = False",
        _fills_of_new_tensors,
    ),
    _Mode(
        "Remove gradcheck from the training loop",
        "gradcheck compares gradients to finite differences, which takes",
        "torch.autograd.gradcheck",
        "The host time inside gradcheck; the low end counts only the part during which the GPU starves.",
        "Check gradients in a test, not in the training loop.",
        "# remove: torch.autograd.gradcheck(...)",
        _gradcheck,
    ),
)


def _switches(facts: Facts) -> list[tuple[str, str]]:
    """Switches that leave no events, each with its effect."""
    environment = facts.captured.environment
    variables = environment.variables
    found = []
    if variables.get("TORCH_DISTRIBUTED_DEBUG", "").upper() == "DETAIL":
        found.append(("TORCH_DISTRIBUTED_DEBUG=DETAIL", "compares every collective between all ranks"))
    if environment.python_debug or variables.get("PYTHONDEVMODE", "") not in ("", "0"):
        found.append(("Python development mode (-X dev, PYTHONDEVMODE=1)", "checks every Python allocation"))
    elif "debug" in variables.get("PYTHONMALLOC", ""):
        found.append((f"PYTHONMALLOC={variables['PYTHONMALLOC']}", "checks every Python allocation"))
    if environment.anomaly_mode and not _nan_checks(facts).any():
        found.append(("torch.autograd.set_detect_anomaly", "stores a traceback for every operator"))
    return found


def _area(facts: Facts, mask: Mask) -> Intervals:
    return facts.regions.area(mask)
