"""EF015: a recurrent layer runs on one sequence after the other, instead of on a batch of them."""

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

LOW, EXPECTED = 0.4, 0.8  # of the time of the calls: sequences of very different lengths leave more to do


class SingleSequences(Rule):
    """Measures calls of nn.LSTM, nn.GRU and nn.RNN with a batch of a single sequence, if one line makes many of them in
    a step: their forward operators and the backward nodes of the line.

    Why it costs: a time step of one sequence takes about as long as one of a batch, because the operators are small. 48
    sequences one by one are 48 times as many operators, forward and backward.

    How to fix: pad the sequences to one batch. Packing skips the padding.

        lengths = torch.tensor([len(s) for s in sequences])
        x = nn.utils.rnn.pad_sequence(sequences, batch_first=True)
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        _, h = rnn(packed)

    When it is wrong: a sequence that depends on what another one returned cannot be in the same batch.

    Sources: PyTorch documentation, "torch.nn.utils.rnn.pack_padded_sequence".
    """

    code = "EF015"
    name = "single-sequences"
    title = "Run the sequences as one padded batch"
    family = "efficiency"
    effort = "A few lines"
    risk = "Padding must not count in the loss"
    confidence = "medium"
    requires = ("whole", "ops", "shapes", "stacks")

    min_share: float = threshold(0.05, "smallest time of the calls, as a share of the step, to report")
    min_calls: int = threshold(8, "fewest calls of one line per step to count")

    def applies(self, facts: Facts) -> str | None:
        return None if len(facts.single_sequences) else "No recurrent layer gets single sequences."

    def check(self, facts: Facts) -> Findings:
        count = facts.steps.count
        rows = np.sort(np.concatenate([facts.single_sequences, facts.backward_nodes]))
        for site in by_calling_site(facts, rows, held_ns(facts, rows)):
            calls = np.intersect1d(site.rows, facts.single_sequences)
            time_ns = site.cost_ns / count
            if site.location is None or len(calls) < self.min_calls * count or time_ns < self.min_share * facts.step_ns:
                continue
            evidence = [
                Evidence(
                    "Recurrent layer, forward and backward",
                    us(time_ns),
                    rate(len(calls) / count),
                    location=site.location,
                )
            ]
            yield self.finding(
                why=(
                    f"A recurrent layer runs {len(calls) / count:,.0f} times {per_step(facts)}, each time on one "
                    f"sequence. Forward and backward, this line takes {ms(time_ns)} of {each_step(facts)}."
                ),
                saving=without_nodes(
                    facts,
                    site.rows.astype(np.int64),
                    LOW,
                    EXPECTED,
                    "Assumes one batch takes 60% or 20% of this time, at best almost none of it.",
                ),
                evidence=evidence,
                locations=places(evidence),
                fix=Fix(
                    "Pad the sequences to one batch, and pack them, so that padding costs no time.",
                    "x = nn.utils.rnn.pad_sequence(sequences, batch_first=True)\n"
                    "packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)\n"
                    "_, h = rnn(packed)",
                ),
            )

    def passed(self, facts: Facts) -> str:
        calls = len(facts.single_sequences) / facts.steps.count
        return f"Recurrent layers get a single sequence {calls:,.0f} times in {the_step(facts)}."
