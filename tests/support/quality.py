"""Steps on a GPU, and what the trace-quality rules say of a trace."""

from __future__ import annotations

from collections.abc import Iterator

from traceopt.analyzer.facts import Facts
from traceopt.rules.engine import RulesOutcome, run_rules
from traceopt.rules.registry import builtin_rules
from traceopt.testing import events as small_traces

RULES = [rule() for rule in builtin_rules() if rule.code.startswith("TQ")]
GPU = {"id": 0, "name": "NVIDIA A100-SXM4-40GB", "totalGlobalMem": 42_297_524_224, "computeMajor": 8, "computeMinor": 0}
STEP_US = 10_000.0


def outcome(facts: Facts) -> RulesOutcome:
    return run_rules(RULES, facts, debug=True)


def notes(facts: Facts) -> dict[str, str]:
    """Texts of the notes by code."""
    return {note.code: note.text for note in outcome(facts).notes}


def why_silent(facts: Facts, code: str) -> str:
    """Why a rule did not speak."""
    (check,) = (check for check in outcome(facts).checks if check.code == code)
    assert check.status in ("passed", "not_applicable", "not_checked")
    return check.reason


def on_a_gpu(events: list[small_traces.Json], **metadata: object) -> Facts:
    return Facts(small_traces.read(small_traces.document(events, **{"deviceProperties": [GPU], **metadata})))


def steps(count: int = 3, busy_us: float = 9_900, name: str = "ProfilerStep#{}") -> Iterator[small_traces.Json]:
    """Steps of 10 ms with one kernel each."""
    for index in range(count):
        start = index * STEP_US
        yield small_traces.annotation(name.format(index), start, STEP_US)
        yield from launched(start + 20, busy_us, index + 1)


def launched(at: float, kernel_us: float, correlation: int, wait_us: float = 10) -> list[small_traces.Json]:
    """A kernel and its launch."""
    return [
        small_traces.op("aten::mm", at - 10, 30),
        small_traces.runtime("cudaLaunchKernel", at, 5, correlation),
        small_traces.kernel("ampere_sgemm_128x64_tn", at + wait_us, kernel_us, correlation),
    ]
