"""Takes the price from findings that rest on what the state of the recording hides."""

from __future__ import annotations

from msgspec.structs import replace

from traceopt.analyzer.facts import Facts
from traceopt.rules.savings.potential import side_of
from traceopt.rules.savings.price import Priced

UNKNOWN = "What it costs in a steady step is unknown."


def as_far_as_known(one: Priced, facts: Facts) -> Priced:
    """The finding without its saving if that is time of a step that was not recorded; else as it is.

    The device's own work takes as long in any step. The time in which it waits for the host, or for other ranks in a
    collective, does not: the other ranks may be starting up as well.
    """
    state, finding = facts.state, one.finding
    if finding.saving is None or state is None or state.hides == "nothing":
        return one
    if state.hides == "waits" and side_of(one, facts) == "compute":
        return one
    return Priced(replace(finding, saving=None, impact="info", confidence="low", why=f"{finding.why} {UNKNOWN}"))
