"""Compiles different parts of a step, and prints each loss and Dynamo's counters: python compiled.py KIND...

`inductor` needs a C++ compiler.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import quick_torch  # noqa: F401
import torch
import torch._dynamo.utils  # all of the compiler, not the stand-ins of tests/light_torch
from forked import run_forked
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

os.environ |= {
    "TORCHINDUCTOR_CACHE_DIR": os.path.abspath("cache"),
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "TORCHINDUCTOR_VEC_ISA_OK": "1",  # else it compiles a program for each instruction set that the CPU has
}


def train(
    compile_model: Callable[[Any], Any] = lambda model: model,
    compile_update: Callable[[Any], Any] = lambda optimizer: optimizer.step,
    compile_step: Callable[[Any], Any] = lambda step: step,
    **optimizer_flags: bool,
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **optimizer_flags)
    forward, update = compile_model(model), compile_update(optimizer)

    def step(x: Tensor) -> Tensor:
        loss = forward(x).pow(2).mean()
        loss.backward()
        update()
        optimizer.zero_grad()
        return loss

    step = compile_step(step)
    for (x,) in DataLoader(TensorDataset(torch.randn(160, 16)), batch_size=4):
        print(step(x).item().hex())
    from torch._dynamo.utils import counters

    print("frames", dict(counters["frames"]), "graphs", counters["stats"].get("unique_graphs"))
    print("graph breaks", sum(counters["graph_break"].values()))


def compiled(**options: Any) -> Callable[[Any], Any]:
    return lambda function: torch.compile(function, **({"backend": "aot_eager"} | options))


def model() -> None:
    train(compile_model=compiled())


def model_of_an_inference() -> None:
    """Calls in evaluation mode may be the steps of an inference, until something is compiled."""

    def called_before(model: Any) -> Any:
        model.eval()
        for _ in range(3):
            model(torch.randn(4, 16))
        return compiled()(model.train())

    train(compile_model=called_before)


def inductor() -> None:
    train(compile_model=compiled(backend="inductor"))


def fused() -> None:
    train(compile_model=compiled(), fused=True)


def update_in_a_function() -> None:
    train(compile_model=compiled(), compile_update=lambda optimizer: compiled()(lambda: optimizer.step()))


def update_as_a_method() -> None:
    train(compile_model=compiled(), compile_update=lambda optimizer: compiled()(optimizer.step))


def update_in_one_graph() -> None:
    """Dynamo refuses."""
    try:
        train(compile_update=lambda optimizer: compiled(fullgraph=True)(lambda: optimizer.step()))
    except Exception as error:
        print(type(error).__name__, str(error).partition("from user code")[0])


def whole_step() -> None:
    train(compile_step=compiled())


KINDS = {
    function.__name__: function
    for function in (
        model,
        model_of_an_inference,
        inductor,
        fused,
        update_in_a_function,
        update_as_a_method,
        update_in_one_graph,
        whole_step,
    )
}

IMPORTS = ("torch._dynamo.backends.debugging", "torch._inductor.compile_fx")

if __name__ == "__main__":
    run_forked(KINDS, sys.argv[1:], imports=IMPORTS)
