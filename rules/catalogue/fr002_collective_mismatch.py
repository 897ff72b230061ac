"""FR002: ranks call a collective with different sizes, or collectives in different orders."""

from __future__ import annotations

from collections.abc import Sequence

from traceopt.analyzer.companions.flight_recorder.dump import Operation
from traceopt.analyzer.companions.flight_recorder.mismatches import Mismatch, Side
from traceopt.analyzer.companions.flight_recorder.recording import FlightRecording
from traceopt.analyzer.companions.flight_recorder.stuck_calls import Hang
from traceopt.result.words.rank_lists import ranks_text
from traceopt.rules import Evidence, Facts, Findings, Fix, Priced, Rule, counted, required
from traceopt.rules.fixes.advice.companion_evidence import MAX_ROWS, waiting_in

MAX_SIZES = 4  # tensors of a call in a sentence


class CollectiveMismatch(Rule):
    """Compares each collective of a process group on all ranks in the dumps of the flight recorder: the operation, the
    number of elements and their type. The first collective that differs is the finding. It also finds ranks that wait
    for each other in a circle, because they call the collectives of two groups in different orders.

    Why it costs: NCCL matches calls by their order. If one rank reduces 1,024 elements and another 2,048, or one
    gathers while the others reduce, the collective hangs or returns wrong numbers, without an error.

    How to fix: let all ranks make the same calls in the same order. Usual causes are a batch of a different size on one
    rank, a branch on a value that differs between ranks, and iteration over a set.

        for name in sorted(names): dist.all_reduce(tensors[name])           # not: for name in set(...)
        loader = DataLoader(dataset, batch_size=32, drop_last=True)         # no smaller last batch on one rank

    When it is wrong: operations whose sizes may differ between ranks, such as all-to-all, are compared by name only.

    Sources: https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html;
    https://docs.pytorch.org/docs/stable/distributed.html (TORCH_DISTRIBUTED_DEBUG=DETAIL).
    """

    code = "FR002"
    name = "collective-mismatch"
    title = "Make the same collective calls on all ranks"
    family = "hangs"
    requires = ("flight_recorder",)
    needs_trace = False

    def check(self, facts: Facts) -> Findings:
        recording = required(facts.companions.flight_recorder)
        for mismatch in recording.mismatches:
            odd = [rank for side in mismatch.sides[1:] for rank in side.ranks]
            sites = [side.site for side in (*mismatch.sides[1:], mismatch.sides[0])]
            yield self.finding(
                why=_why(recording, mismatch),
                fix=Fix(_fix(mismatch)),
                impact="high",
                evidence=[_evidence(side, mismatch) for side in mismatch.sides],
                locations=[site for site in sites if site is not None],
                ranks=sorted(odd),
            )
        for hang in recording.hangs:
            if not hang.culprits:
                yield self._circle(recording, hang)

    def _circle(self, recording: FlightRecording, hang: Hang) -> Priced:
        ranks = sorted({rank for call in hang.calls for rank in call.awaited})
        calls = [f"{call.operation} of {recording.groups[call.group].label}" for call in hang.calls]
        return self.finding(
            why=(
                f"{ranks_text(ranks).capitalize()} wait for each other in {counted(len(calls), 'call')}: "
                f"{', '.join(dict.fromkeys(calls))}. Each call lacks a rank that waits in another one."
            ),
            fix=Fix("Call the collectives of these groups in the same order on all ranks."),
            impact="high",
            evidence=[
                waiting_in(recording, call, f"{ranks_text(call.waiting)}, for {ranks_text(call.awaited)}")
                for call in hang.calls[:MAX_ROWS]
            ],
            locations=[call.site for call in hang.calls[:MAX_ROWS] if call.site is not None],
            ranks=ranks,
        )

    def passed(self, facts: Facts) -> str:
        calls = required(facts.companions.flight_recorder).calls
        return f"All ranks make the same calls, as far as the {counted(len(calls), 'recorded call')} show."


def _why(recording: FlightRecording, mismatch: Mismatch) -> str:
    group = recording.groups[mismatch.group].label
    most, other = mismatch.sides[:2]
    more = f", and {counted(len(mismatch.sides) - 2, 'more variant')}" if len(mismatch.sides) > 2 else ""
    if mismatch.is_of_order:
        return (
            f"Collective number {mismatch.sequence:,} of {group} is {most.operation.name} on {ranks_text(most.ranks)} "
            f"and {other.operation.name} on {ranks_text(other.ranks)}{more}."
        )
    return (
        f"{most.operation.name} number {mismatch.sequence:,} of {group} has {_tensors(most)} on "
        f"{ranks_text(most.ranks)} and {_tensors(other)} on {ranks_text(other.ranks)}{more}."
    )


def _fix(mismatch: Mismatch) -> str:
    if mismatch.is_of_order:
        return "Look for a branch or a loop order that differs between these ranks, just before the lines below."
    return "Look for what gives the tensor another size or type on these ranks: a smaller last batch, another config."


def _evidence(side: Side, mismatch: Mismatch) -> Evidence:
    return Evidence(
        f"{side.operation.name} number {mismatch.sequence:,}: {_tensors(side)}",
        detail=ranks_text(side.ranks),
        location=side.site,
    )


def _tensors(side: Side) -> str:
    """ "inputs of 1024 x 8 (Float)"."""
    return f"{_side('input', side.operation.input_sizes, side.operation.input_dtypes)}{_output(side.operation)}"


def _output(operation: Operation) -> str:
    if (operation.output_sizes, operation.output_dtypes) == (operation.input_sizes, operation.input_dtypes):
        return ""
    return f", {_side('output', operation.output_sizes, operation.output_dtypes)}"


def _side(name: str, sizes: Sequence[tuple[int, ...]], dtypes: Sequence[str]) -> str:
    if not sizes:
        return f"no {name}"
    texts = [" x ".join(map(str, size)) or "one number" for size in sizes[:MAX_SIZES]]
    more = f" and {len(sizes) - MAX_SIZES:,} more" if len(sizes) > MAX_SIZES else ""
    return f"{name} {', '.join(texts)}{more} ({', '.join(sorted(set(dtypes)))})"
