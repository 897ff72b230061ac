"""RH002: another process works on a GPU of the run."""

from __future__ import annotations

from traceopt.analyzer.companions.gpu_samples.samples import Gpu
from traceopt.rules import Effort, Evidence, Facts, Findings, Fix, Rule, counted, percent, required, size, threshold


class SharedGpu(Rule):
    """Measures which processes have a context on a GPU of the run. `traceopt run` samples them with NVML once a second.
    Processes that the run started itself do not count.

    Why it costs: processes share a GPU by taking turns. Kernels of one wait while the other works, and its memory is
    not available.

    How to fix: end the other process, or select a GPU that is free.

        nvidia-smi                                   # which processes are on which GPU
        CUDA_VISIBLE_DEVICES=1 traceopt run train.py

    When it is wrong: the other process may only hold memory, such as an idle notebook. A server that the run started
    through another service (Ray, Slurm's daemons) looks like a foreign process. In a container, NVML often shows other
    process numbers than the container does, and then this rule finds nothing. This rule is built from NVIDIA's
    documentation of NVML.

    Sources: NVIDIA, NVML API reference, "nvmlDeviceGetComputeRunningProcesses".
    """

    code = "RH002"
    name = "shared-gpu"
    title = "Give the run a GPU of its own"
    family = "run health"
    effort = Effort.ONE_LINE
    confidence = "medium"
    requires = ("gpu_samples",)
    needs_trace = False

    min_share: float = threshold(0.2, "smallest share of the run's samples with another process")
    min_samples: int = threshold(3, "fewest samples with another process")

    def applies(self, facts: Facts) -> str | None:
        if not any(gpu.of_run for gpu in required(facts.companions.gpu_samples).gpus):
            return "The samples do not say which processes belong to this run."
        return None

    def check(self, facts: Facts) -> Findings:
        for gpu in required(facts.companions.gpu_samples).of_run:
            share = _share(gpu)
            if share < self.min_share or len(gpu.shared) < self.min_samples:
                continue
            most: dict[int, int] = {}
            for sample in gpu.shared:
                for pid, held in sample.others:
                    most[pid] = max(most.get(pid, 0), held or 0)
            yield self.finding(
                why=(
                    f"Another program uses GPU {gpu.index} ({gpu.name}) in {percent(share)} of the samples of this run."
                ),
                fix=Fix("End the other process, or select a free GPU with CUDA_VISIBLE_DEVICES."),
                evidence=[
                    Evidence(f"Process {pid}", detail=f"up to {size(held)}" if held else "memory not known")
                    for pid, held in sorted(most.items(), key=lambda item: -item[1])[:5]
                ],
            )

    def passed(self, facts: Facts) -> str:
        count = len(required(facts.companions.gpu_samples).of_run)
        return f"No other process lasted on {counted(count, 'GPU')} of this run."


def _share(gpu: Gpu) -> float:
    own = sum(sample.own for sample in gpu.samples)
    return len(gpu.shared) / own if own else 0.0
