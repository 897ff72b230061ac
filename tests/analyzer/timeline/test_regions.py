"""Parts of the program that are recognized by name."""

from __future__ import annotations

import pytest

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.testing import Machine
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


@pytest.mark.parametrize(
    ("optimizer", "called", "own"),
    [
        ("torch/optim/adam.py(214): step", "train.py(30): closure", ["aten::update"]),
        ("torch/optim/adam.py(214): step", "watch.py(8): log_norms", ["aten::update"]),
        ("torch/optim/adam.py(214): step", "lightning/pytorch/precision.py(96): _wrap_closure", ["aten::update"]),
        ("muon.py(40): step", "train.py(30): closure", ["aten::update"]),
        ("muon.py(40): step", "muon.py(9): newton_schulz", ["aten::called", "aten::update"]),
        ("torch/optim/adam.py(214): step", "torch/optim/adam.py(347): _single", ["aten::called", "aten::update"]),
    ],
)
def test_what_an_optimizer_step_calls_is_not_always_its_own(optimizer: str, called: str, own: list[str]) -> None:
    """Closures and hooks are not, functions of the optimizer are, also of one that the user wrote."""
    machine = Machine()
    with machine.python("torch/optim/optimizer.py(509): wrapper"):
        machine.idle(5)
        with machine.annotate("Optimizer.step#Adam.step"):
            machine.idle(5)
            with machine.python(optimizer):
                machine.idle(5)
                with machine.python(called):
                    machine.idle(5)
                    machine.work(50, "aten::called")
                machine.idle(5)
                machine.work(10, "aten::update")
    regions = machine.facts().regions
    rows = regions.updates & (regions.slices.kind == OP)
    assert [regions.trace.names[code] for code in regions.slices.name[rows]] == own


def test_kernels_of_a_closure_are_not_the_optimizers() -> None:
    machine = Machine()
    with machine.annotate("Optimizer.step#LBFGS.step"):
        machine.idle(5)
        with machine.python("torch/optim/lbfgs.py(340): step"):
            for _ in range(2):
                machine.idle(5)
                with machine.python("train.py(30): closure"):
                    machine.idle(5)
                    machine.launch(100, name="gemm")
                    machine.work(50, "autograd::engine::evaluate_function: MmBackward0")
                machine.launch(10, name="direction")
    regions = machine.facts().regions
    names = regions.gpu.work.name[regions.update_work]
    assert [regions.trace.names[code] for code in names] == ["direction", "direction"]
