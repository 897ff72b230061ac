"""Recordings of reinforcement learning: of one process, and of several."""

from __future__ import annotations

from pathlib import Path

import traceopt
from traceopt.result.document import Result
from traceopt.testing import A100, Machine


def training(reward_us: float = 4_000, *, rollout: str = "rollout", reward: str = "reward") -> Machine:
    """Five steps: 5 ms of rollout, rewards on the CPU, 2 ms of weight sync inside 5 ms of training."""
    machine = Machine(A100, with_stack=1)
    for _ in range(5):
        with machine.step(), machine.python("train.py(10): main"):
            with machine.python("train.py(20): generate"), machine.annotate(rollout):
                machine.launch(5_000)
                machine.synchronize()
            with machine.python("train.py(30): score"), machine.annotate(reward):
                machine.work(reward_us)
            with machine.python("train.py(40): learn"), machine.annotate("train"):
                machine.launch(3_000)
                machine.synchronize()
                with machine.annotate("sync_weights"):
                    machine.launch(2_000)
                    machine.synchronize()
    return machine


def worker(task: str, *, steps: int = 6, idle_us: float = 6_000, delay_us: float = 0) -> Machine:
    """A process that has one task of each step, 6 ms, and then waits for the others."""
    machine = Machine(A100, with_stack=1)
    machine.idle(delay_us)
    for _ in range(steps):
        with machine.step():
            with machine.python(f"{task}.py(20): main"), machine.annotate(task):
                machine.launch(6_000)
                machine.synchronize()
                if task == "train":
                    machine.work(5, "Optimizer.step#Adam.step")
            machine.work(idle_us, "aten::item")
    return machine


def run_of(folder: Path, *, ranked: bool = True, **workers: Machine) -> Result:
    """The result of a folder with one trace for each process, which began at the same time."""
    folder.mkdir()
    for rank, (name, machine) in enumerate(workers.items()):
        machine.metadata["baseTimeNanoseconds"] = 1_700_000_000_000_000_000
        if ranked:
            machine.metadata["distributedInfo"] = {"rank": rank, "world_size": len(workers), "backend": "nccl"}
        (folder / f"{name}.json").write_bytes(machine.to_bytes())
    return traceopt.analyze(str(folder), debug=True)
