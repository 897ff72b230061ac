"""Runs a rule on a trace with the real engine, and asserts what it finds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from traceopt.analyzer.facts import Facts
from traceopt.result.document import Check
from traceopt.result.finding import Finding
from traceopt.rules.engine import configure, run_rules
from traceopt.rules.rule import Rule
from traceopt.testing.machine import Machine, facts_of

AnyTrace = Facts | Machine | bytes | Sequence[dict[str, Any]]


def answer(rule: type[Rule], trace: AnyTrace, **thresholds: Any) -> tuple[Check, list[Finding]]:
    """The engine's answer for the rule: its check (status and reason) and its findings with replayed savings.

    `trace`: a Machine, the bytes of a trace file, a list of events, or Facts. Exceptions of the rule are raised.
    """
    facts = trace if isinstance(trace, Facts) else facts_of(trace)
    outcome = run_rules([configure(rule, thresholds)], facts, debug=True)
    (check,) = outcome.checks
    return check, outcome.findings


def assert_finds(
    rule: type[Rule],
    trace: AnyTrace,
    *,
    saving_us: float | None = None,
    tolerance: float = 0.1,
    location: str | None = None,
    **thresholds: Any,
) -> Finding:
    """Asserts that the rule finds something, and returns its most valuable finding.

    `saving_us`: the expected saving per step, within `tolerance` (a share of it). `location`: "train.py:12", which must
    be among the finding's locations.
    """
    check, findings = answer(rule, trace, **thresholds)
    _expect(bool(findings), f"{rule.code} finds nothing: {check.status}: {check.reason}")
    first = findings[0]
    if saving_us is not None:
        found_us = first.saving.est_us if first.saving is not None else 0.0
        close = abs(found_us - saving_us) <= tolerance * saving_us
        _expect(close, f"{rule.code} saves {found_us:g} us per step, expected {saving_us:g}")
    if location is not None:
        places = [str(place) for place in first.locations]
        _expect(location in places, f"{rule.code} names {places}, expected {location}")
    return first


def assert_silent(rule: type[Rule], trace: AnyTrace, **thresholds: Any) -> Check:
    """Asserts that the rule was checked and finds nothing; returns its check."""
    check, findings = answer(rule, trace, **thresholds)
    _expect(not findings, f"{rule.code} finds: {findings[0].why if findings else ''}")
    _expect(check.status == "passed", f"{rule.code} was not checked: {check.status}: {check.reason}")
    return check


def _expect(holds: bool, message: str) -> None:
    """Raises AssertionError also under `python -O`, which drops assert statements."""
    if not holds:
        raise AssertionError(message)
