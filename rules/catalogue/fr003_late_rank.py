"""FR003: the other ranks wait for one that joins collectives late."""

from __future__ import annotations

from traceopt.analyzer.companions.flight_recorder.late_ranks import LateRank as Late
from traceopt.analyzer.companions.flight_recorder.recording import FlightRecording
from traceopt.rules import (
    Effort,
    Evidence,
    Facts,
    Findings,
    Fix,
    Rule,
    counted,
    ms,
    percent,
    required,
    threshold,
)

_SECOND_NS = 1e9


class LateRank(Rule):
    """Measures in the dumps of the flight recorder how long ranks wait for one that joins collectives late. With
    TORCH_NCCL_ENABLE_TIMING=1 it compares durations: the collective is shortest on the rank that comes last. Without,
    it compares the times of the calls, and only delays of many seconds count, because the clocks of hosts differ.

    Why it costs: a collective ends when the last rank has called it. The other GPUs do nothing until then, and if one
    rank is later than the timeout, the job dies.

    How to fix: move work that only one rank does out of the way of the others, or let the others expect it.

        if rank == 0:
            threading.Thread(target=save, args=(state,)).start()           # not: save(state), while 255 ranks wait
        dist.init_process_group("nccl", timeout=timedelta(minutes=30))     # if the wait cannot be avoided

    When it is wrong: a host whose clock is wrong by more than the threshold looks late if no durations were recorded.
    The last stage of a pipeline is late by design.

    Sources: https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html.
    """

    code = "FR003"
    name = "late-rank"
    title = "Remove the delay of the rank that all others wait for"
    family = "hangs"
    effort = Effort.DEPENDS
    requires = ("flight_recorder",)
    needs_trace = False

    min_late_s: float = threshold(10.0, "shortest single delay by the clocks of the hosts, s")
    min_share: float = threshold(0.05, "smallest share of the recorded time that others wait, by durations")
    min_times: float = threshold(0.5, "smallest share of the collectives that the rank joins last, by durations")

    def check(self, facts: Facts) -> Findings:
        recording = required(facts.companions.flight_recorder)
        for late in recording.late:
            if not self._counts(late):
                continue
            sites = [site for site in (late.after, late.site) if site is not None]
            yield self.finding(
                why=_why(recording, late),
                fix=Fix(_fix(late)),
                evidence=_evidence(recording, late),
                locations=sites,
                confidence="high" if late.measured else "medium",
                ranks=[late.rank],
            )

    def _counts(self, late: Late) -> bool:
        if not late.measured:
            return late.longest_ns >= self.min_late_s * _SECOND_NS
        often = late.collectives >= self.min_times * late.compared
        return often and late.waited_ns >= self.min_share * late.recorded_ns

    def passed(self, facts: Facts) -> str:
        if any(late.measured for late in required(facts.companions.flight_recorder).late):
            return "No rank holds up the others, according to the durations of the collectives."
        return "No rank joins a collective many seconds late. Shorter delays need TORCH_NCCL_ENABLE_TIMING=1."


def _why(recording: FlightRecording, late: Late) -> str:
    where = f"{late.operation} number {late.sequence:,} of {recording.groups[late.group].label}"
    if late.measured:
        share = percent(late.waited_ns / late.recorded_ns) if late.recorded_ns else ""
        return (
            f"Rank {late.rank:,} is the last in {late.collectives:,} of {late.compared:,} timed collectives. The "
            f"others wait for it for {share} of the time, at most {ms(late.longest_ns)} at once, in {where}."
        )
    seconds = late.longest_ns / _SECOND_NS
    over = " That is longer than its timeout." if 0 < late.timeout_ns <= late.longest_ns else ""
    return f"Rank {late.rank:,} called {where} {seconds:,.0f} s after the other ranks.{over}"


def _fix(late: Late) -> str:
    if late.after is None:
        return "Find what only this rank does before the call."
    return f"Find what only this rank does between {late.after} and the late call."


def _evidence(recording: FlightRecording, late: Late) -> list[Evidence]:
    rows = [
        Evidence(
            f"Latest call: {late.operation} of {recording.groups[late.group].label}",
            detail=f"{counted(late.collectives, 'late call')} in all",
            location=late.site,
        )
    ]
    if late.after is not None:
        rows.append(Evidence(f"The call before it, on rank {late.rank:,}", location=late.after))
    return rows
