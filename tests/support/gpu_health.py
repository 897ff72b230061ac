"""A run with samples of its GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from traceopt.analyzer.companions.companions import Companions
from traceopt.analyzer.companions.gpu_samples.samples import read_gpu_samples
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.reading.sources import TraceSource
from traceopt.testing import A100, Machine


def source(folder: Path, *lines: str) -> TraceSource:
    file = folder / "host.gpu_samples.jsonl"
    file.write_text("".join(f"{line}\n" for line in lines))
    return TraceSource(str(file), None, file.name)


def sampled(folder: Path, **gpu: Any) -> Facts:
    """A run of a minute on one GPU."""
    head = {
        "traceopt_gpu_samples": 1,
        "host": "host",
        "gpus": [{"index": 0, "name": "H100", "max_sm_mhz": 2000, "power_limit_w": 700}],
    }
    one = {"index": 0, "sm_mhz": 1900, "reasons": 0, "celsius": 60, "use_percent": 95, "processes": [[7, 1, True]]}
    lines = [json.dumps({"s": second, "gpus": [one | gpu]}) for second in range(60)]
    known = read_gpu_samples([source(folder, json.dumps(head), *lines)], [])
    machine = Machine(A100)
    with machine.step():
        machine.launch(100)
        machine.synchronize()
    facts = machine.facts()
    return Facts(facts.trace, companions=replace(Companions(), gpu_samples=known))
