"""Steps of compiled code, with what `traceopt run` noted of torch.compile."""

from __future__ import annotations

from typing import Any

from traceopt.analyzer.facts import Facts
from traceopt.testing import A100, Machine


def compilation(frame: int, number: int = 0, function: str = "forward", **values: Any) -> dict[str, Any]:
    head = {"id": f"{frame}/{number}", "co_name": function, "co_filename": "train.py", "co_firstlineno": 5}
    return head | {"duration_us": 1_000_000} | values


def fixed() -> dict[str, Any]:
    return {"breaks": [], "compilations": [compilation(0)]}


def training(pieces: int = 2, frames: int = 0, entry_us: float = 300.0) -> Machine:
    """Steps that launch a short kernel in each piece of compiled code, so that the GPU waits for the host."""
    machine = Machine(A100)
    for _ in range(5):
        with machine.step():
            for piece in range(pieces):
                with machine.annotate("TorchDynamo Cache Lookup"):
                    machine.idle(entry_us)
                with machine.annotate(f"Torch-Compiled Region: {frames + piece}/0"):
                    with machine.annotate("Pregraph bytecode"):
                        machine.idle(entry_us)
                    machine.launch(100)
            machine.synchronize()
    return machine


def with_notes(machine: Machine, dynamo: dict[str, Any] | None) -> Facts:
    trace = machine.facts().trace
    trace.meta.header["traceopt"] = {"dynamo": dynamo, "environment": {"cpu_count": 8}}
    return Facts(trace)
