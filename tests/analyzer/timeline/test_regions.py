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
