"""Which findings have no price, because the state of the recording hides what a steady step is."""

from __future__ import annotations

from traceopt.analyzer.facts import Facts
from traceopt.rules.savings.potential import side_of
from traceopt.rules.savings.price import Priced


def is_hidden(one: Priced, facts: Facts) -> bool:
    """Whether a finding with a saving rests on time that the recording's state hides.

    The device's own work takes as long in any step. The time in which it waits for the host, or for other ranks in a
    collective, does not: the other ranks may be starting up as well.
    """
    if one.finding.saving is None or facts.state is None or facts.state.hides == "nothing":
        return False
    return facts.state.hides == "everything" or side_of(one, facts) != "compute"
