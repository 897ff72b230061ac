"""Steps of matmuls and convolutions on a CPU whose peaks are known."""

from __future__ import annotations

from typing import Any

from support.facts import repeated

from traceopt.analyzer.facts import Facts
from traceopt.result.document import Check
from traceopt.result.finding import Finding
from traceopt.rules.engine import run_rules
from traceopt.rules.registry import builtin_rules
from traceopt.testing import events as build

RULES = {rule.code: rule for rule in builtin_rules()}
STEP_US = 10_000
SIDE = 1_000  # a product takes 2 GFLOP
BF16 = {"model": "Example", "flags": ["avx2", "avx512_bf16"], "threads_per_core": 1}
PEAKS = {"matmul_gflops_per_s": {"fp32": 500.0, "bf16": 2_000.0, "fp64": 250.0}, "copy_gb_per_s": 20.0}


def matmul(start: float, duration: float, dtype: str = "float", side: int = SIDE) -> build.Json:
    return build.op("aten::mm", start, duration, **{"Input Dims": [[side, side]] * 2, "Input type": [dtype] * 2})


def convolution(start: float, duration: float, dtype: str = "float") -> build.Json:
    sizes = {"Input Dims": [[8, 64, 28, 28], [64, 64, 3, 3], [], [], [], [], [], [], []], "Input type": [dtype] * 2}
    values = ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]
    return build.op("aten::convolution", start, duration, **sizes, **{"Concrete Inputs": values})


def facts(
    *operators: build.Json, cpu: dict[str, Any] = BF16, peaks: dict[str, Any] | None = PEAKS, **own: Any
) -> Facts:
    """Four steps of these operators, whose times count from the start of a step."""
    environment = {"cpu": cpu, "threads": 4, "cpu_count": 4} | own.pop("environment", {})
    events = repeated(operators, step_us=STEP_US)
    own = {"environment": environment, **({"cpu_peaks": peaks} if peaks else {}), **own}
    return Facts(build.read(build.document(events, traceopt=own)))


def answer(code: str, found: Facts) -> tuple[Check, list[Finding]]:
    outcome = run_rules([RULES[code]()], found, debug=True)
    return outcome.checks[0], outcome.findings


def finding(code: str, found: Facts) -> Finding:
    check, findings = answer(code, found)
    assert len(findings) == 1, check.reason
    return findings[0]


def silent(code: str, found: Facts) -> bool:
    check, findings = answer(code, found)
    return not findings and check.status in ("passed", "not_applicable")
