"""Parts of the program that are recognized by name."""

from __future__ import annotations

from traceopt.analyzer.facts import Facts
from traceopt.testing.events import annotation, op, read


def test_compiled_regions_keep_their_highest_number() -> None:
    names = ["Torch-Compiled Region: 0/0", "Torch-Compiled Region: 0/2", "Torch-Compiled Region: 1/0", "aten::mm"]
    events = [annotation(name, 10 * i, 5) for i, name in enumerate(names)]
    assert Facts(read(events)).regions.compiled == {"0": 2, "1": 0}


def test_autograd_nodes_of_the_median_step() -> None:
    """Every operator reports the next free sequence number, so the last number of a step is no node."""
    events = [annotation(f"ProfilerStep#{i}", 100 * i, 100) for i in range(3)]
    for i in range(3):
        sequences = [7, 7, 8, 9] if i else [1, 2, 3, 4, 5, 6]
        events += [op("aten::mm", 100 * i + 10 * k, 5, **{"Sequence number": n}) for k, n in enumerate(sequences)]
        events += [op("Mm", 100 * i + 80, 5, **{"Sequence number": 99, "Fwd thread id": 1})]
    assert Facts(read(events)).autograd_nodes == 2.0


def test_recomputation_without_python_stacks() -> None:
    """The operators that record gradients in the node of a checkpoint, but not those of its own backward pass."""
    node, inner = {"Sequence number": 5, "Fwd thread id": 1}, {"Sequence number": 9, "Fwd thread id": 1}
    records = {"Sequence number": 8, "Fwd thread id": 0}
    events = [
        op("autograd::engine::evaluate_function: CheckpointFunctionBackward", 0, 100, **node),
        op("CheckpointFunctionBackward", 1, 98, **node),
        op("aten::linear", 10, 20, **records),
        op("aten::gelu", 30, 10, **records),
        op("aten::detach", 41, 1),
        op("autograd::engine::evaluate_function: GeluBackward0", 50, 40, **inner),
        op("GeluBackward0", 51, 38, **inner),
        op("aten::gelu_backward", 52, 30),
        op("autograd::engine::evaluate_function: MulBackward0", 110, 20, **node),  # of gradients of gradients
        op("aten::mul", 112, 10, **records),
    ]
    regions = Facts(read(events)).regions
    names = [regions.trace.names[code] for code in regions.slices.name[regions.recompute]]
    assert names == ["aten::linear", "aten::gelu"]
