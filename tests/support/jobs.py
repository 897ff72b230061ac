"""The facts of generated jobs."""

from __future__ import annotations

from functools import cache
from typing import Any

from fixtures.generate import generate
from traceopt.analyzer.facts import Facts
from traceopt.testing import facts_of


@cache
def facts_with(scenario: str = "healthy", **job: Any) -> Facts:
    """Of a scenario of fixtures/, with some fields of its job changed."""
    return facts_of(generate(scenario, **job).to_bytes())
