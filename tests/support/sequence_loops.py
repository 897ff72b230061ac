"""A loop over time steps that indexes a tensor and calls a recurrent cell."""

from __future__ import annotations

from traceopt.analyzer.facts import Facts
from traceopt.testing import A100
from traceopt.testing import events as build

STEP_US, STEPS, TIMES = 20_000, 4, 20
NODE = "autograd::engine::evaluate_function: "


def sequence_loop(
    *,
    times: int = TIMES,
    index_us: int = 50,
    gpu: bool = False,
    inside: build.Json | None = None,
    index: tuple[str, str] = ("aten::select", "SelectBackward0"),
    calls: int = 1,
) -> Facts:
    """Each time step of the loop indexes for 20 us and calls a cell for 100 us. The backward pass takes 50 us for the
    index and 150 us for the cell, a GPU 30 us for each. `inside`: what does the indexing, for the first 30 us. `index`:
    the operator and its node. `calls` of the function that indexes.
    """
    events: list[build.Json] = []
    launches = 0
    for step in range(STEPS):
        start = step * STEP_US
        events.append(build.annotation(f"ProfilerStep#{step}", start, STEP_US))
        events += [
            build.python("train.py(21): forward", start + 8_000 * call / calls, 8_000 / calls) for call in range(calls)
        ]
        events.append(build.annotation("Optimizer.step#SGD.step", start + 19_000, 500))
        for time in range(times):
            at, back = start + 10 + 150 * time, start + 8_100 + 300 * time
            first = 1_000 * step + 2 * time
            picked, cell = ({"Sequence number": first + n, "Fwd thread id": 1} for n in (0, 1))
            nodes = [
                build.op(f"{NODE}UnsafeSplitBackward0", back, 150, **cell),
                build.op(NODE + index[1], back + 200, index_us, **picked),
            ]
            events += [
                build.op(index[0], at, 20, **picked | {"Fwd thread id": 0}),
                build.op("aten::lstm_cell", at + 30, 100, **cell | {"Fwd thread id": 0}),
                *nodes,
                *([] if inside is None else [inside | {"ts": at - 5}]),
            ]
            for node in nodes if gpu else []:
                launches += 1
                events.append(build.runtime("cudaLaunchKernel", node["ts"] + 1, 2, launches))
                events.append(build.kernel("elementwise_kernel", node["ts"] + 5, 30, launches))
    return Facts(build.read(build.document(events, **({"deviceProperties": [A100]} if gpu else {}))))
