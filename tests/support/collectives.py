"""Ranks that run collectives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from traceopt.rules.registry import builtin_rules
from traceopt.testing import Machine
from traceopt.testing.machine import A100

RULES = {rule.code: rule for rule in builtin_rules()}
RANKS = 8
COMPUTE, COMMUNICATION = 7, 20  # streams
NODE = [A100 | {"id": number} for number in range(RANKS)]


def machine(world_size: int = RANKS, devices: Sequence[dict[str, Any]] = NODE) -> Machine:
    """The first of several ranks, on a node that lists these devices."""
    job = {"backend": "nccl", "rank": 0, "world_size": world_size}
    return Machine(deviceProperties=list(devices), distributedInfo=job)


def collective(rank: Machine, us: float, kind: str = "allreduce", megabytes: float = 1.0, **args: Any) -> None:
    """A collective over all ranks; `megabytes` is what this rank puts in."""
    sizes = {"In msg nelems": int(megabytes * 1e6 / 4), "dtype": "Float", "Group size": RANKS}
    about = {"Collective name": kind, "Process Group Name": "0", **sizes}
    rank.launch(us, **({"stream": COMMUNICATION, "name": "ncclDevKernel_Generic(x)"} | about | args))


def after_compute(compute_us: float, us: float, **args: Any) -> Machine:
    """Each step computes, and then one collective runs alone."""
    rank = machine(**{key: args.pop(key) for key in ("world_size", "devices") if key in args})
    for _ in range(4):
        with rank.step():
            rank.launch(compute_us)
            rank.synchronize()
            collective(rank, us, **args)
            rank.synchronize()
    return rank
