"""Helpers for testing rules: small traces, and assertions on what a rule finds in them.

    from traceopt.testing import A100, Machine, assert_finds, assert_silent

`Machine` simulates a host and its GPU; `traceopt.testing.events` builds traces event by event.
"""

from traceopt.testing.assertions import answer, assert_finds, assert_silent
from traceopt.testing.machine import A100, Machine, facts_of

__all__ = ["A100", "Machine", "answer", "assert_finds", "assert_silent", "facts_of"]
