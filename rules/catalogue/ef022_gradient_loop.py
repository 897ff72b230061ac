"""EF022: a Python loop calls autograd for each row of a Jacobian, or for each sample of a batch."""

from __future__ import annotations

from msgspec import Struct

from traceopt.analyzer.autograd.gradient_loops import GradientLoop
from traceopt.rules import (
    Confidence,
    Facts,
    Findings,
    Fix,
    Price,
    Priced,
    Risk,
    Rule,
    by_calling_site,
    each_step,
    ms,
    per_step,
    percent,
    priced_host,
    site_evidence,
    the_step,
    threshold,
)
from traceopt.rules.savings.work.backward_nodes import without_nodes

ROUNDS_LEFT = 3  # a batched call takes about as long as so many rounds: vmap adds work around each operator
LOW = 0.5  # of the expected gain


class Form(Struct, frozen=True):
    """What the rounds of a loop compute, and how one call does."""

    title: str
    what: str
    fix: Fix
    confidence: Confidence


FORMS = {
    "rows": Form(
        "Compute the Jacobian with one batched backward pass",
        "goes backward through the same graph for each row of a Jacobian",
        Fix(
            "Run the backward pass of all rows at once with torch.func.vmap. Otherwise pass is_grads_batched=True to "
            "torch.autograd.grad, or vectorize=True to torch.autograd.functional.jacobian.",
            "y, backward = torch.func.vjp(f, x)\n"
            "rows = torch.eye(y.numel()).view(-1, *y.shape)  # on the device of y\n"
            "(jacobian,) = torch.func.vmap(backward)(rows)",
        ),
        "medium",
    ),
    "samples": Form(
        "Compute the gradients of all samples at once",
        "runs a forward and a backward pass for each sample",
        Fix(
            "If only the sum of the gradients is needed, run the samples as one batch. If each sample's gradient is "
            "needed, torch.func.vmap of torch.func.grad computes all of them at once.",
            "def loss_of(weights, x, y):\n"
            "    return loss(torch.func.functional_call(model, weights, (x[None],)), y[None])\n\n"
            "weights = dict(model.named_parameters())\n"
            "gradients = torch.func.vmap(torch.func.grad(loss_of), (None, 0, 0))(weights, xs, ys)",
        ),
        "low",
    ),
}


class GradientLoopRule(Rule):
    """Measures lines that call the autograd engine many times per step: for each row of a Jacobian or Hessian, with
    torch.autograd.grad on the same graph, or for each sample of a batch, after a forward pass of its own. The backward
    pass of the results counts too.

    Why it costs: each call runs the same small operators for one row. Starting an operator, and Python around it, take
    longer than its computation, so all rows at once take little longer than one.

    How to fix: run the backward pass of all rows at once.

        y, backward = torch.func.vjp(f, x)
        rows = torch.eye(y.numel()).view(-1, *y.shape)
        (jacobian,) = torch.func.vmap(backward)(rows)

    If each sample of a batch has a Jacobian of its own, a row holds the same output of all samples, which do not mix.

        rows = torch.eye(y.shape[1])[:, None].expand(-1, *y.shape)     # y: samples x outputs
        (jacobians,) = torch.func.vmap(backward)(rows)                 # or: torch.func.vmap(torch.func.jacrev(f))(xs)

    Without a change of the forward pass: torch.autograd.grad(y, x, rows, is_grads_batched=True), and vectorize=True for
    torch.autograd.functional.jacobian. These run the operators that they do not know one by one. For each sample's
    gradient, write the loss of one sample.

        gradients = torch.func.vmap(torch.func.grad(loss_of), (None, 0, 0))(weights, xs, ys)

    When it is wrong: rounds that need the result of the round before cannot be batched. Loops that compute something of
    the gradients between two calls, such as solvers, do not count. Neither do loops that update weights. All rows at
    once take more memory: as much as the rounds together, or use the argument chunk_size of vmap. Layers that keep
    statistics of a batch, such as batch norm, give other results for samples together. With dropout, vmap needs
    randomness="different".

    Sources: PyTorch documentation, "torch.autograd.grad" (is_grads_batched), "torch.func.jacrev" and
    "Per-sample-gradients".
    """

    code = "EF022"
    name = "gradient-loop"
    title = "Compute all gradients with one batched call"
    family = "efficiency"
    risk = Risk.MEMORY
    requires = ("work", "whole", "ops", "stacks", "shapes")

    min_share: float = threshold(0.05, "smallest time of such a loop, as a share of the step, to report")
    min_calls: int = threshold(4, "fewest calls of the engine by one line per step to count")

    def applies(self, facts: Facts) -> str | None:
        return None if facts.gradient_loops else "No line calls autograd for each row or each sample."

    def check(self, facts: Facts) -> Findings:
        for loop in facts.gradient_loops:
            is_long = facts.steps.mean_ns(loop.area) >= self.min_share * facts.step_ns
            if is_long and loop.calls_per_step >= self.min_calls:
                yield self._finding(facts, loop)

    def _finding(self, facts: Facts, loop: GradientLoop) -> Priced:
        form = FORMS[loop.kind]
        sites = by_calling_site(facts, loop.calls)
        return self.finding(
            title=form.title,
            why=(
                f"A line {form.what}, {loop.calls_per_step:,.0f} times {per_step(facts)}. With the backward pass of "
                f"the results, this takes {ms(facts.steps.mean_ns(loop.area))} of {each_step(facts)}, "
                f"{percent(loop.short_share)} of it in short operators and around operators."
            ),
            saving=_price(facts, loop),
            evidence=site_evidence(facts, sites, "Calls of the autograd engine"),
            fix=form.fix,
            confidence=form.confidence,
        )

    def passed(self, facts: Facts) -> str:
        share = sum(facts.steps.mean_ns(loop.area) for loop in facts.gradient_loops) / facts.step_ns
        return f"Loops that call autograd for each row or sample take {percent(share)} of {the_step(facts)}."


def _price(facts: Facts, loop: GradientLoop) -> Price:
    expected = loop.short_share * max(0.0, 1 - ROUNDS_LEFT / loop.calls_per_step)
    shares = LOW * expected, expected, 1 - 1 / loop.calls_per_step
    low, usual, high = map(percent, shares)
    basis = (
        f"Assumes {low}, {usual} or {high} of this time goes away: one call for all takes about as long as "
        f"{ROUNDS_LEFT} rounds, and long operators take as long as before."
    )
    if facts.has_gpu:
        return without_nodes(facts, loop.nodes, *shares[:2], basis, high=shares[2])
    return priced_host(facts, loop.area, facts.steps.mean_ns(loop.area), shares, basis)
