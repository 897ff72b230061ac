"""EF011: a Python loop over time steps calls a recurrent cell, such as nn.LSTMCell."""

from __future__ import annotations

import numpy as np

from traceopt.rules import (
    Evidence,
    Facts,
    Findings,
    Fix,
    Rule,
    by_calling_site,
    each_step,
    ms,
    per_step,
    places,
    rate,
    the_step,
    threshold,
    us,
)
from traceopt.rules.savings.backward_nodes import held_ns, without_nodes

LOW, EXPECTED = 0.0, 0.5  # of the time of the cells; nothing if the loop has to stay


class RecurrentCellLoop(Rule):
    """Measures recurrent cells (nn.LSTMCell, nn.GRUCell, nn.RNNCell) that one line calls many times per step: their
    forward operators and the backward nodes of the line.

    Why it costs: each time step is a few small operators, forward and backward. The layer nn.LSTM multiplies the inputs
    of all time steps by their weights at once, and runs the time steps in one operator (cuDNN on a GPU).

    How to fix: give the whole sequence to the layer, and apply what follows to the whole output.

        rnn = nn.LSTM(inputs, hidden, batch_first=True)   # instead of nn.LSTMCell(inputs, hidden)
        out, _ = rnn(x)                                   # instead of a loop over x[:, t]
        logits = head(out)

    When it is wrong: if the input of a time step depends on the output of the one before (a decoder that is fed its own
    output, attention in every step), the loop has to stay. The range therefore begins at 0.

    Sources: PyTorch documentation, "torch.nn.LSTM" and "torch.nn.LSTMCell".
    """

    code = "EF011"
    name = "recurrent-cell-loop"
    title = "Use nn.LSTM or nn.GRU instead of a loop over a cell"
    family = "efficiency"
    effort = "A few lines"
    risk = "Not possible if a time step needs the output of the one before as its input"
    confidence = "low"
    requires = ("whole", "ops", "stacks")

    min_share: float = threshold(0.1, "smallest time of the cells, as a share of the step, to report")
    min_calls: int = threshold(8, "fewest calls of a cell by one line per step to count")

    def applies(self, facts: Facts) -> str | None:
        return None if len(facts.recurrent_cells) else "No recurrent cell was called."

    def check(self, facts: Facts) -> Findings:
        count = facts.steps.count
        rows = np.sort(np.concatenate([facts.recurrent_cells, facts.backward_nodes]))
        for site in by_calling_site(facts, rows, held_ns(facts, rows)):
            cells = np.intersect1d(site.rows, facts.recurrent_cells)
            time_ns = site.cost_ns / count
            if site.location is None or len(cells) < self.min_calls * count or time_ns < self.min_share * facts.step_ns:
                continue
            nodes = site.rows.astype(np.int64)
            evidence = [
                Evidence(
                    "Recurrent cells, forward and backward",
                    us(time_ns),
                    rate(len(cells) / count),
                    location=site.location,
                )
            ]
            yield self.finding(
                why=(
                    f"A loop calls a recurrent cell {len(cells) / count:,.0f} times {per_step(facts)}. Forward and "
                    f"backward, this line takes {ms(time_ns)} of {each_step(facts)}."
                ),
                saving=without_nodes(
                    facts,
                    nodes,
                    LOW,
                    EXPECTED,
                    "Assumes that the layer takes half of this time. Nothing is saved if the loop has to stay.",
                ),
                evidence=evidence,
                locations=places(evidence),
                fix=Fix(
                    "Give the whole sequence to nn.LSTM, nn.GRU or nn.RNN. This is possible if no time step needs the "
                    "output of the one before as its input.",
                    "out, _ = rnn(x)  # rnn = nn.LSTM(inputs, hidden, batch_first=True), then the head on all of out",
                ),
            )

    def passed(self, facts: Facts) -> str:
        calls = len(facts.recurrent_cells) / facts.steps.count
        return f"Recurrent cells are called {calls:,.0f} times in {the_step(facts)}, which takes little of it."
