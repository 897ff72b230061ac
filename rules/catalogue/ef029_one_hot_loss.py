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

# Of the time, low to high: the log-softmax stays, and its gradient is still of that size. With label smoothing, the
# gradient of the sum of each row asks for memory, too: measured on a CPU, where this takes long.
PICKED = (0.6, 0.9, 1.0)
SMOOTHED = (0.3, 0.7, 1.0)

PICK = Fix(
    "Pass the ids of the classes to F.cross_entropy. A loss of its own picks the log-probability of each target first: "
    "log_p.gather(-1, ids[..., None]).",
    "loss = F.cross_entropy(logits.flatten(0, -2), ids.flatten())  # no one-hot matrix",
)
SMOOTH = Fix(
    "Pass the logits, without log_softmax, and the ids of the classes to F.cross_entropy with label_smoothing. "
    "It smooths over all classes; ignore_index leaves out padding.",
    "loss = F.cross_entropy(logits.flatten(0, -2), ids.flatten(), label_smoothing=0.1)  # no matrix of targets",
)


class OneHotLoss(Rule):
    """Measures losses that multiply a log-softmax by a matrix made of class ids: by `F.one_hot(ids, classes)`, or by
    one constant with another number scattered into each row. It counts creating the matrix, its casts and copies, the
    multiplication or the KL divergence, what else is computed in its size after the log-softmax, and the backward pass
    of all that. With label smoothing, only copies and the logarithms of the KL divergence count.

    Why it costs: all elements of a row but one are the same. The matrix and each intermediate result have a number for
    each token and word, which is written to memory and read back.

    How to fix: F.cross_entropy reads the number of each target. It also takes weights of classes, label smoothing and
    an index to ignore.

        loss = F.cross_entropy(logits.flatten(0, -2), ids.flatten())
        loss = F.cross_entropy(logits.flatten(0, -2), ids.flatten(), label_smoothing=0.1)

    A loss that weights the log-probabilities, such as the focal loss, picks them first.

        log_p = F.log_softmax(logits, -1).gather(-1, ids[..., None]).squeeze(-1)
        loss = -((1 - log_p.exp()) ** gamma * log_p).mean()

    When it is wrong: the matrix is also needed for something else. A loss that gives the ignored class no probability
    differs a little: F.cross_entropy smooths over all classes. If a step has other probabilities of its size, such as
    those of a teacher, nothing is reported.

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
        return None if len(facts.one_hot_losses) else "No loss multiplies log-probabilities by a matrix of class ids."

    def check(self, facts: Facts) -> Findings:
        losses = facts.one_hot_losses
        time_ns = nodes_per_step_ns(facts, losses.rows)
        if time_ns < self.min_share * facts.step_ns:
            return
        matrix = "smoothed one-hot" if losses.smoothed else "one-hot"
        low, expected, high = SMOOTHED if losses.smoothed else PICKED
        yield self.finding(
            why=(
                f"Log-probabilities are multiplied by a {matrix} matrix with {losses.classes:,} columns. "
                + (
                    f"Its copies, and logarithms that cross entropy does not need, take {ms(time_ns)} of "
                    f"{each_step(facts)}. Cross entropy reads one number of each row, and its sum."
                    if losses.smoothed
                    else f"With all that is computed in its size, and the backward pass, this takes {ms(time_ns)} of "
                    f"{each_step(facts)}. Cross entropy reads one number of each row."
                )
            ),
            saving=without_nodes(
                facts,
                losses.rows,
                low,
                expected,
                f"Assumes the fix removes {percent(low)}, {percent(expected)} or {percent(high)} of this time.",
                high=high,
            ),
            evidence=node_evidence(facts, losses.products, f"Product with the {matrix} matrix"),
            fix=SMOOTH if losses.smoothed else PICK,
        )

    def passed(self, facts: Facts) -> str:
        share = percent(nodes_per_step_ns(facts, facts.one_hot_losses.rows) / facts.step_ns)
        return f"Losses with one-hot targets take {share} of {the_step(facts)}."
