"""EF029: a loss multiplies log-probabilities by a one-hot matrix, instead of picking that of each target."""

from __future__ import annotations

from traceopt.rules import (
    Facts,
    Findings,
    Fix,
    Risk,
    Rule,
    each_step,
    ms,
    percent,
    the_step,
    threshold,
)
from traceopt.rules.savings.work.backward_nodes import node_evidence, nodes_per_step_ns, without_nodes

LOW, EXPECTED = 0.6, 0.9  # of the time: the log-softmax stays, and its gradient is still of that size


class OneHotLoss(Rule):
    """Measures `F.one_hot(ids, classes)` that a loss multiplies by a log-softmax: creating the matrix, its cast, the
    multiplication, what else is computed in its size after the log-softmax, and the backward pass of all that.

    Why it costs: all products but one of each row are zero. The matrix and each intermediate result have a number for
    each token and word, which is written to memory and read back.

    How to fix: F.cross_entropy reads the number of each target. It also takes weights of classes, label smoothing and
    an index to ignore.

        loss = F.cross_entropy(logits.flatten(0, -2), ids.flatten())
        loss = F.cross_entropy(logits.flatten(0, -2), ids.flatten(), label_smoothing=0.1)

    A loss that weights the log-probabilities, such as the focal loss, picks them first.

        log_p = F.log_softmax(logits, -1).gather(-1, ids[..., None]).squeeze(-1)
        loss = -((1 - log_p.exp()) ** gamma * log_p).mean()

    When it is wrong: the matrix is also needed for something else. If a step has other probabilities of its size, such
    as those of a teacher, nothing is reported.

    Sources: PyTorch documentation, "torch.nn.functional.cross_entropy" and "torch.gather".
    """

    code = "EF029"
    name = "one-hot-loss"
    title = "Use class ids in the loss instead of one-hot targets"
    family = "efficiency"
    risk = Risk.ROUNDING
    confidence = "medium"
    requires = ("whole", "ops", "shapes")

    min_share: float = threshold(0.03, "smallest time of these operators, as a share of the step, to report")

    def applies(self, facts: Facts) -> str | None:
        return None if len(facts.one_hot_losses) else "No loss multiplies log-probabilities by a one-hot matrix."

    def check(self, facts: Facts) -> Findings:
        losses = facts.one_hot_losses
        time_ns = nodes_per_step_ns(facts, losses.rows)
        if time_ns < self.min_share * facts.step_ns:
            return
        yield self.finding(
            why=(
                f"Log-probabilities are multiplied by a one-hot matrix with {losses.classes:,} columns. With all that "
                f"is computed in its size, and the backward pass, this takes {ms(time_ns)} of {each_step(facts)}. "
                "Cross entropy reads one number of each row."
            ),
            saving=without_nodes(
                facts,
                losses.rows,
                LOW,
                EXPECTED,
                f"Assumes the fix removes {percent(LOW)}, {percent(EXPECTED)} or 100% of these operators' time.",
            ),
            evidence=node_evidence(facts, losses.products, "Product with the one-hot matrix"),
            fix=Fix(
                "Pass the ids of the classes to F.cross_entropy. A loss of its own picks the log-probability of each "
                "target first: log_p.gather(-1, ids[..., None]).",
                "loss = F.cross_entropy(logits.flatten(0, -2), ids.flatten())  # no F.one_hot",
            ),
        )

    def passed(self, facts: Facts) -> str:
        share = percent(nodes_per_step_ns(facts, facts.one_hot_losses.rows) / facts.step_ns)
        return f"Losses with one-hot targets take {share} of {the_step(facts)}."
