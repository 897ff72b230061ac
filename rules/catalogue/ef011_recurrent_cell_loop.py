"""EF011: a Python loop runs a recurrent cell on each time step, or a recurrent layer on each sequence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from traceopt.rules import (
    I8,
    Confidence,
    Evidence,
    Facts,
    Findings,
    Fix,
    Former,
    Priced,
    Risk,
    Rule,
    SiteCost,
    by_calling_site,
    each_step,
    ms,
    per_step,
    rate,
    the_step,
    threshold,
    us,
)
from traceopt.rules.savings.work.backward_nodes import held_ns, without_nodes


class Loop(Struct, frozen=True):
    """What a loop runs one by one, and what its fix is. `low` and `expected`: the share of its time that goes."""

    runs: str  # for the sentence "... 20 times per step{each}."
    each: str
    evidence: str
    fix: Fix
    low: float
    expected: float
    basis: str
    title: str | None = None
    risk_note: str | None = None
    confidence: Confidence | None = None


CELLS = Loop(
    runs="A loop calls a recurrent cell",
    each="",
    evidence="Recurrent cells, forward and backward",
    fix=Fix(
        "Give the whole sequence to nn.LSTM, nn.GRU or nn.RNN. This is possible if no time step needs the output of "
        "the one before as its input.",
        "out, _ = rnn(x)  # rnn = nn.LSTM(inputs, hidden, batch_first=True), then the head on all of out",
    ),
    low=0.0,
    expected=0.5,
    basis="Assumes that the layer takes half of this time. Nothing is saved if the loop has to stay.",
)
SEQUENCES = Loop(
    runs="A recurrent layer runs",
    each=", each time on one sequence",
    evidence="Recurrent layer, forward and backward",
    fix=Fix(
        "Pad the sequences to one batch, and pack them, so that padding costs no time.",
        "x = nn.utils.rnn.pad_sequence(sequences, batch_first=True)\n"
        "packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)\n"
        "_, h = rnn(packed)",
    ),
    low=0.4,  # sequences of very different lengths leave more to do
    expected=0.8,
    basis="Assumes one batch takes 60% or 20% of this time, at best almost none of it.",
    title="Run the sequences as one padded batch",
    risk_note="Padding must not count in the loss",
    confidence="medium",
)


class RecurrentCellLoop(Rule):
    """Measures recurrent cells (nn.LSTMCell, nn.GRUCell, nn.RNNCell) that one line calls many times per step, and calls
    of nn.LSTM, nn.GRU and nn.RNN with a batch of a single sequence, if one line makes many of them: their forward
    operators and the backward nodes of the line. Single sequences are known if shapes were recorded.

    Why it costs: each time step of a cell is a few small operators, forward and backward. The layer nn.LSTM multiplies
    the inputs of all time steps by their weights at once, and runs the time steps in one operator (cuDNN on a GPU). In
    the same way, a time step of one sequence takes about as long as one of a batch: 48 sequences one by one are 48
    times as many operators.

    How to fix: give the whole sequence to the layer, and apply what follows to the whole output.

        rnn = nn.LSTM(inputs, hidden, batch_first=True)   # instead of nn.LSTMCell(inputs, hidden)
        out, _ = rnn(x)                                   # instead of a loop over x[:, t]; num_layers=2 for two cells
        logits = head(out)

    Pad sequences to one batch. Packing skips the padding.

        lengths = torch.tensor([len(s) for s in sequences])
        x = nn.utils.rnn.pad_sequence(sequences, batch_first=True)
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        _, h = rnn(packed)

    When it is wrong: if the input of a time step depends on the output of the one before (a decoder that is fed its own
    output, attention in every step), the loop over a cell has to stay. Its range therefore begins at 0. A sequence that
    depends on what another one returned cannot be in the same batch.

    Sources: PyTorch documentation, "torch.nn.LSTM", "torch.nn.LSTMCell" and "torch.nn.utils.rnn.pack_padded_sequence".
    """

    code = "EF011"
    name = "recurrent-cell-loop"
    title = "Use nn.LSTM or nn.GRU instead of a loop over a cell"
    family = "efficiency"
    risk = Risk.CORRECTNESS
    risk_note = "Not possible if a time step needs the output of the one before as its input"
    confidence = "low"
    requires = ("whole", "ops", "stacks")
    former = (Former("EF015", "single-sequences", {"min_share": "min_sequences_share"}),)

    min_share: float = threshold(0.1, "smallest time of the cells, as a share of the step, to report")
    min_sequences_share: float = threshold(0.05, "smallest time of single sequences, as a share of the step, to report")
    min_calls: int = threshold(8, "fewest calls by one line per step to count")

    def applies(self, facts: Facts) -> str | None:
        if len(facts.recurrent_cells) or len(facts.single_sequences):
            return None
        return "No recurrent cell was called, and no recurrent layer gets single sequences."

    def check(self, facts: Facts) -> Findings:
        yield from self._loops(facts, CELLS, facts.recurrent_cells, self.min_share)
        yield from self._loops(facts, SEQUENCES, facts.single_sequences, self.min_sequences_share)

    def _loops(self, facts: Facts, loop: Loop, calls: I8, least: float) -> Iterator[Priced]:
        """A finding for each function with lines that make many of these calls: stacked cells are one layer."""
        count = facts.steps.count
        rows = np.sort(np.concatenate([calls, facts.backward_nodes]))
        lines = defaultdict[object, list[SiteCost]](list)
        for site in by_calling_site(facts, rows, held_ns(facts, rows)):
            if site.location is not None and _often(facts, site, calls) >= self.min_calls:
                lines[site.location.file, site.location.function].append(site)
        for sites in lines.values():
            time_ns = sum(site.cost_ns for site in sites) / count
            if time_ns < least * facts.step_ns:
                continue
            often = [_often(facts, site, calls) for site in sites]
            takes = "this line takes" if len(sites) == 1 else f"these {len(sites)} lines take"
            yield self.finding(
                title=loop.title,
                risk_note=loop.risk_note,
                confidence=loop.confidence,
                why=(
                    f"{loop.runs} {sum(often):,.0f} times {per_step(facts)}{loop.each}. Forward and backward, {takes} "
                    f"{ms(time_ns)} of {each_step(facts)}."
                ),
                saving=without_nodes(
                    facts,
                    np.concatenate([site.rows for site in sites]).astype(np.int64),
                    loop.low,
                    loop.expected,
                    loop.basis,
                ),
                evidence=[
                    Evidence(
                        loop.evidence,
                        us(site.cost_ns / count),
                        rate(_often(facts, site, calls)),
                        location=site.location,
                    )
                    for site in sites
                ],
                fix=loop.fix,
            )

    def passed(self, facts: Facts) -> str:
        cells, sequences = (len(calls) / facts.steps.count for calls in (facts.recurrent_cells, facts.single_sequences))
        return (
            f"Recurrent cells are called {cells:,.0f} times in {the_step(facts)}, and recurrent layers get a single "
            f"sequence {sequences:,.0f} times. That takes little of it."
        )


def _often(facts: Facts, site: SiteCost, calls: I8) -> float:
    """How many of these calls a line makes per step."""
    return len(np.intersect1d(site.rows, calls)) / facts.steps.count
