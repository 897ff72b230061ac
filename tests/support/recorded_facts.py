"""Generated traces with the settings and totals of `traceopt run`, and what the rules answer to them."""

from __future__ import annotations

import io
import json
from functools import cache
from typing import Any

from odd_values import put
from support.findings import RULES

from fixtures.generate import generate
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.reading.trace_reader import read_trace
from traceopt.result.document import Check
from traceopt.result.finding import Finding
from traceopt.rules.engine import run_rules

NOT_RECORDED = "not recorded; record with traceopt run."


def of_document(document: dict[str, Any]) -> Facts:
    return Facts(read_trace(io.BytesIO(json.dumps(document).encode()), "trace.json"))


def generated(scenario: str, *, fixed: bool = False, change: dict[str, Any] | None = None, **fields: Any) -> Facts:
    """The facts of a scenario; `change` replaces parts of its metadata: {"gc": ..., "environment.threads": 3}."""
    events, own = _document(scenario, fixed, **{"metadata": True, **fields})
    for path, value in (change or {}).items():
        own = put(own, tuple(path.split(".")[:-1]), own_part(own, path) | {path.split(".")[-1]: value})
    text = b'{"traceopt": ' + json.dumps(own).encode() + b", " + events[1:] if own else events
    return Facts(read_trace(io.BytesIO(text), "trace.json"))


@cache
def _document(scenario: str, fixed: bool, **fields: Any) -> tuple[bytes, dict[str, Any]]:
    """All but the metadata of `traceopt run` as JSON, and the metadata."""
    document = generate(scenario, fixed=fixed, **fields).document
    own = document.pop("traceopt", {})
    return json.dumps(document).encode(), own


def own_part(own: dict[str, Any], path: str) -> dict[str, Any]:
    for key in path.split(".")[:-1]:
        own = own[key]
    return own


def answer(facts: Facts, code: str) -> tuple[Check, list[Finding]]:
    outcome = run_rules([RULES[code]], facts, debug=True)
    [check] = outcome.checks
    return check, outcome.findings


def finding(facts: Facts, code: str) -> Finding:
    check, findings = answer(facts, code)
    assert findings, check.reason
    return findings[0]


def reason(facts: Facts, code: str, status: str) -> str:
    check, _ = answer(facts, code)
    assert check.status == status, check.reason
    return check.reason
