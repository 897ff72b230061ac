"""FR001: ranks wait in a collective that another rank has not called."""

from __future__ import annotations

from traceopt.analyzer.companions.flight_recorder.recording import FlightRecording
from traceopt.analyzer.companions.flight_recorder.stuck_calls import Hang, LastCall, StuckCall
from traceopt.result.words.rank_lists import are, ranks_text
from traceopt.rules import Evidence, Facts, Findings, Fix, Rule, counted, required, threshold
from traceopt.rules.fixes.advice.companion_evidence import MAX_ROWS, call_name, waiting_in


class MissingRank(Rule):
    """Compares the collectives that each rank has called, as the dumps of the flight recorder show them. If ranks wait
    in a collective that a member of its process group has not called, that member is the cause. The rule follows such
    waits: a rank that is missing from one collective because it waits in another is not the cause.

    Why it costs: a collective ends when all ranks of its group have called it. One rank that does not call it stops all
    others until the timeout, which is 10 minutes for NCCL, and then the job dies.

    How to fix: look at what the missing rank does after its last call. Usual causes are a branch that only some ranks
    take, data loaders of unequal length, an exception that one rank catches, and a process that was killed.

        if rank == 0:
            dist.barrier()                    # hangs: the other ranks never call it

        dist.barrier()                        # all ranks
        with model.join():                    # or: ranks may have unequal numbers of batches (DDP)
            for batch in loader: ...

    When it is wrong: dumps of a job that runs well can show a rank that is only a moment behind. Make the dumps when
    the job hangs, or make them twice. A rank that wrote no dump may also have failed to write it.

    Sources: https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html.
    """

    code = "FR001"
    name = "missing-rank"
    title = "Let every rank call the collective"
    family = "hangs"
    requires = ("flight_recorder",)
    needs_trace = False

    min_waiting: int = threshold(1, "fewest ranks that wait")

    def check(self, facts: Facts) -> Findings:
        recording = required(facts.companions.flight_recorder)
        for hang in recording.hangs:
            if not hang.culprits or len(hang.waiting) < self.min_waiting:
                continue
            main = hang.calls[0]
            group = recording.groups[main.group]
            ranks = [last.rank for last in hang.culprits]
            yield self.finding(
                title=None if main.missing else f"Find out why {ranks_text(ranks)} wrote no dump",
                why=_why(recording, hang, ranks),
                fix=Fix(_fix(hang, main)),
                impact="high",
                evidence=_evidence(recording, hang),
                locations=[last.site for last in hang.culprits if last.site]
                + [call.site for call in hang.calls if call.site],
                confidence="high" if main.missing and group.known else "medium",
                ranks=ranks,
            )

    def passed(self, facts: Facts) -> str:
        dumps = required(facts.companions.flight_recorder).dumps
        return f"No rank is missing from a collective, according to the dumps of {counted(len(dumps), 'rank')}."


def _why(recording: FlightRecording, hang: Hang, ranks: list[int]) -> str:
    main = hang.calls[0]
    group = recording.groups[main.group]
    if main.missing:
        verb = "has" if len(ranks) == 1 else "have"
        what = f"{ranks_text(ranks).capitalize()} {verb} not called {call_name(main)} of {group.label}"
    else:
        what = f"{ranks_text(ranks).capitalize()} wrote no dump, and {call_name(main)} of {group.label} has not ended"
    others = set(hang.waiting) - set(main.waiting)
    indirectly = f", and {counted(len(others), 'more rank')} {are(others)} blocked by it" if others else ""
    timed_out = " The call has timed out." if hang.timed_out else ""
    return f"{what}. {counted(len(main.waiting), 'rank')} {are(main.waiting)} waiting in it{indirectly}.{timed_out}"


def _fix(hang: Hang, main: StuckCall) -> str:
    if not main.missing:
        return "Look for the end of its process: its log, exit code, and the messages of the kernel (out of memory)."
    places = {str(last.site) for last in hang.culprits if last.site}
    after = f" after {min(places)}" if len(places) == 1 else " after its last call"
    return f"Find what keeps it from the call{after}: a branch, an exception, or a wait for something else."


def _evidence(recording: FlightRecording, hang: Hang) -> list[Evidence]:
    return [_last(last) for last in hang.culprits[:MAX_ROWS]] + [
        waiting_in(recording, call, ranks_text(call.waiting)) for call in hang.calls[:MAX_ROWS]
    ]


def _last(last: LastCall) -> Evidence:
    what = "no call" if last.operation is None else last.operation
    return Evidence(f"Last call of rank {last.rank:,}: {what}", location=last.site)
