"""The traces of the evaluation and the right answers, none of which comes from traceopt.

For generated traces the generator knows what it planted and what that costs. For real ones an expert named the limit
and the first fix; nobody knows the true gain or line, so those questions are not asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fixtures.generate import generate
from fixtures.real_traces import TRACES

STEPS = 6


@dataclass(frozen=True)
class Truth:
    """The right answers; None for a question that is not asked. `fixes`: codes of the rules that are right."""

    limit: str
    fixes: tuple[str, ...]
    line: str | None = None
    gain_ms: float | None = None

    @property
    def questions(self) -> list[str]:
        return ["limit", "fix", *(["line"] if self.line else []), *(["gain"] if self.gain_ms else [])]


# What limits the step of a scenario: what was planted, if it stalls the step; else the GPU's own work.
SCENARIOS = {
    "healthy": "compute",
    "slow_loader": "input",
    "input_work_main_thread": "input",
    "worker_restart": "input",
    "cpu_only": "input",
    "logging_stall": "logging",
    "checkpoint_in_step": "checkpoint",
    "gc_pause_recorded": "gc",
    "recompilation": "compile",
    "launch_bound": "launch",
    "decode": "launch",
    "misaligned_vocab": "compute",
    "fp32_matmul": "compute",
    "tf32_off": "compute",
    "unfused_attention": "compute",
}

# Of `expected.json` beside the traces: the largest bottleneck that the expert saw, and what to do first.
REAL = {
    "tracelens/h100/Falconsai_nsfw_image_detection/1016002.json.gz": Truth("launch", ("LB002",)),
    "hta/nccl_parser_config/nccl_data.json.gz": Truth("launch", ("LB002", "CM007")),
    "hta/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz": Truth("compute", ("TC001",)),
    "tracelens/mi300/google_owlv2-large-patch14-ensemble/1016001.json.gz": Truth("input", ("DL001", "DL002")),
    "tracelens/mi300/resnet_act_checkpoint.json.gz": Truth("communication", ("CM001", "CM003", "CM004")),
}


def generated(scenario: str, folder: Path) -> tuple[Path, Truth]:
    """Writes the trace of a scenario. Returns it with the right answers."""
    trace = generate(scenario, steps=STEPS)
    planted = trace.planted
    gain_ms = planted.cost_us / 1e3 if planted.codes else None
    truth = Truth(SCENARIOS[scenario], planted.codes, planted.site, gain_ms)
    return trace.write(folder / f"{scenario}.json"), truth


def real(name: str) -> tuple[Path, Truth]:
    return TRACES / name, REAL[name]
