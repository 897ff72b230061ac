"""Takes the saving from findings that rest on time of a step that was not recorded."""

from __future__ import annotations

from msgspec.structs import replace

from traceopt.analyzer.arrays.intervals import intersect, merge, subtract
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.recording_state import DOMINANT_SHARE
from traceopt.analyzer.replay.changes import AsyncCopy, RemoveHost
from traceopt.analyzer.vocabulary.causes.table import DISPATCH, LONG_PYTHON, UNRECORDED
from traceopt.rules.savings.potential import side_of
from traceopt.rules.savings.price import Priced

_ORDINARY = (*DISPATCH, LONG_PYTHON, UNRECORDED)  # host work without a name of its own
UNKNOWN = "What it costs in a steady step is unknown."


def without_unrecorded_saving(fix: Priced, facts: Facts) -> Priced:
    """The finding without its saving if that is time of a step that was not recorded; else as it is.

    The device's own work takes as long in any step. The time in which it waits for the host, or for other ranks in a
    collective, does not: the other ranks may be starting up as well.
    """
    if fix.finding.saving is None or not (_state_hides(fix, facts) or _edges_hide(fix, facts)):
        return fix
    why = fix.finding.why + f" {UNKNOWN}"
    return Priced(replace(fix.finding, saving=None, impact="info", confidence="low", why=why))


def _state_hides(fix: Priced, facts: Facts) -> bool:
    state = facts.state
    if state is None or state.hides == "nothing":
        return False
    return state.hides == "everything" or side_of(fix, facts) != "compute"


def _edges_hide(fix: Priced, facts: Facts) -> bool:
    """Whether most of the idle time that the fix removes is ordinary host work before the first or after the last GPU
    work of the only step. With its neighbors recorded, their GPU work could lie there.
    """
    removed = [change.area for change in fix.changes if isinstance(change, RemoveHost)]
    if not removed or not facts.has_gpu or any(isinstance(change, AsyncCopy) for change in fix.changes):
        return False
    starving = intersect(merge(*removed), facts.gaps.starved)
    named = merge(*(area for cause, area in facts.flow_areas.items() if cause not in _ORDINARY))
    ordinary = subtract(intersect(starving, facts.quality.edges), named)
    return ordinary.total > DOMINANT_SHARE * starving.total
