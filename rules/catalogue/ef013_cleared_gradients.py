"""EF013: a backward pass computes gradients of a network that the script clears before its optimizer reads them."""

from __future__ import annotations

from traceopt.analyzer.autograd.cleared_nodes import ClearedNodes
from traceopt.rules import (
    Evidence,
    Facts,
    Findings,
    Fix,
    Location,
    Risk,
    Rule,
    counted,
    each_step,
    location_of,
    ms,
    per_step,
    percent,
    the_step,
    threshold,
)
from traceopt.rules.savings.work.backward_nodes import (
    Shares,
    node_evidence,
    nodes_per_step_ns,
    products_ns,
    without_nodes,
    without_part_of,
)

NODES_LOW, NODES_ALL = 0.8, 1.0  # of the nodes that serve nothing else
OF_INPUT: Shares = (0.0, 0.5, 0.8)  # of the node before them: as many FLOP for its input as for its weights
OF_WEIGHTS: Shares = (0.1, 0.4, 0.6)  # of products; convolutions of few channels need little time for their weights


class ClearedGradient(Rule):
    """Measures backward nodes whose gradients are set to None before an optimizer reads them, in scripts with several
    optimizers. `traceopt run` follows which optimizer reads the gradients of which backward pass.

    Why it costs: in a GAN, the loss of the discriminator runs the backward pass of the generator as well if the images
    are not detached. The loss of the generator needs the gradients that flow through the discriminator, but not those
    of the discriminator's weights, which are half of its backward pass. The actor's loss through a critic (SAC, DDPG)
    is the same case.

    How to fix: detach what comes from a network that this loss does not train, and turn off the gradients of the
    weights that it only passes through.

        loss = criterion(discriminator(images.detach()), labels)  # the discriminator's step

        discriminator.requires_grad_(False)                       # the generator's step
        loss = criterion(discriminator(generator(noise)), ones)
        loss.backward()
        discriminator.requires_grad_(True)

    When it is wrong: the script may read the gradients itself before it clears them.

    Sources: PyTorch documentation, "Autograd mechanics: setting requires_grad", and "torch.Tensor.detach".
    """

    code = "EF013"
    name = "cleared-gradients"
    title = "Do not compute gradients that are cleared unread"
    family = "efficiency"
    risk = Risk.CORRECTNESS
    risk_note = "Wrong if the script reads these gradients itself"
    confidence = "medium"
    requires = ("whole", "ops", "shapes", "stacks", "settings")

    min_share: float = threshold(0.03, "smallest time of nodes that can go, as a share of the step, to report")

    def applies(self, facts: Facts) -> str | None:
        if len(facts.captured.optimizers) < 2:
            return "The script has fewer than two optimizers."
        if facts.captured.cleared_gradients is None:
            return "Which gradients are cleared was not recorded; traceopt run does."
        return None if facts.captured.cleared_gradients else "No gradients are cleared before an optimizer reads them."

    def check(self, facts: Facts) -> Findings:
        for cleared in facts.cleared_nodes:
            if _time_ns(facts, cleared) < self.min_share * facts.step_ns:
                continue
            yield from self._before(facts, cleared) if len(cleared.nodes) else self._through(facts, cleared)

    def _before(self, facts: Facts, cleared: ClearedNodes) -> Findings:
        """The network comes before what is trained: the pass can end there."""
        yield self.finding(
            title="Detach what comes from a network that this loss does not train",
            why=(
                f"{_passes(facts, cleared)} on into a network that it does not train: its {_parameters(cleared)} get "
                f"gradients that are cleared before their optimizer reads them. These nodes take "
                f"{ms(_time_ns(facts, cleared))} of {each_step(facts)}."
            ),
            saving=without_nodes(
                facts,
                cleared.nodes,
                NODES_LOW,
                NODES_ALL,
                "Assumes the nodes of that network are gone from this pass, and up to 80% of the node before them, "
                "which computes the gradient of its input.",
                (cleared.border, OF_INPUT),
            ),
            evidence=_evidence(facts, cleared, "Backward nodes that serve nothing else"),
            locations=_lines(facts, cleared) or None,
            fix=Fix(
                "Detach the output of that network before it enters this loss, or compute it under torch.no_grad().",
                "loss = criterion(discriminator(images.detach()), labels)",
            ),
        )

    def _through(self, facts: Facts, cleared: ClearedNodes) -> Findings:
        """The network comes after what is trained: gradients pass through it, but not into its weights."""
        shares = " or ".join(map(percent, OF_WEIGHTS))
        yield self.finding(
            title="Turn off gradients of weights that this loss only passes through",
            why=(
                f"{_passes(facts, cleared)} through a network that it does not train: its {_parameters(cleared)} get "
                f"gradients that are cleared before their optimizer reads them. They are a part of these matmuls "
                f"and convolutions, which take {ms(products_ns(facts, cleared.products))} of {each_step(facts)}."
            ),
            saving=without_part_of(
                facts,
                cleared.products,
                OF_WEIGHTS,
                f"Assumes {shares} of these operators' time is for the gradients of weights.",
            ),
            evidence=_evidence(facts, cleared, "Matmuls and convolutions of that pass"),
            locations=_lines(facts, cleared) or None,
            confidence="low",
            fix=Fix(
                "Turn off the gradients of that network's parameters before its forward pass for this loss, and on "
                "again after backward().",
                "discriminator.requires_grad_(False)\nloss = criterion(discriminator(generator(noise)), ones)\n"
                "loss.backward()\ndiscriminator.requires_grad_(True)",
            ),
        )

    def passed(self, facts: Facts) -> str:
        total_ns = sum(_time_ns(facts, cleared) for cleared in facts.cleared_nodes)
        if not facts.cleared_nodes:
            return "Which nodes compute the gradients that are cleared unread is not known."
        return f"Gradients that are cleared unread take {ms(total_ns)} of {the_step(facts)}."


def _time_ns(facts: Facts, cleared: ClearedNodes) -> float:
    """What can go, per step."""
    if len(cleared.nodes):
        return nodes_per_step_ns(facts, cleared.nodes)
    return OF_WEIGHTS[1] * products_ns(facts, cleared.products)


def _passes(facts: Facts, cleared: ClearedNodes) -> str:
    number = round(len(cleared.passes) / facts.steps.count)
    return "A backward pass goes" if number == 1 else f"Each of {number} backward passes {per_step(facts)} goes"


def _parameters(cleared: ClearedNodes) -> str:
    built = cleared.gradients.built
    of = f" (of the optimizer from {built.site})" if built is not None else ""
    return counted(len(cleared.gradients.shapes), "parameter") + of


def _lines(facts: Facts, cleared: ClearedNodes) -> list[Location]:
    """Where the network to detach is called, or else where the pass begins."""
    calls = facts.calls_that_made(cleared.nodes)
    location = location_of(facts, int(calls[0] if len(calls) else cleared.passes[0]))
    return [location] if location is not None else []


def _evidence(facts: Facts, cleared: ClearedNodes, label: str) -> list[Evidence]:
    rows = cleared.nodes if len(cleared.nodes) else cleared.products
    return node_evidence(facts, rows, label, 4)
