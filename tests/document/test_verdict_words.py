"""The words of the verdict are no stronger than its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from msgspec.structs import replace
from support.cpu_steps import Events, cpu_facts
from support.cpu_work import facts, matmul
from support.traces import GetExample

from traceopt.analyzer.vocabulary.causes.table import CAUSE_OF_KEY
from traceopt.document.efficiency import LOW_UTILIZATION
from traceopt.document.rank_document import rank_document
from traceopt.document.verdict import _GpuVerdict
from traceopt.result.sections.work_rows import BreakdownPart
from traceopt.result.words.message import plain
from traceopt.rules.engine import prepare, run_rules
from traceopt.rules.registry import load_rules
from traceopt.rules.savings.price import Priced
from traceopt.testing import Machine
from traceopt.testing.events import op, python


def parts_of(shares: Mapping[str, float]) -> list[BreakdownPart]:
    causes = {CAUSE_OF_KEY[key]: share for key, share in shares.items()}
    return [BreakdownPart(c.key, c.label, c.busy, share * 1_000, share, None) for c, share in causes.items()]


def verdict_of(**shares: float) -> str:
    machine = Machine()
    for _ in range(6):
        with machine.step():
            machine.launch(1_000)
            machine.synchronize()
    measured = machine.facts()
    return plain(_GpuVerdict(measured, parts_of(shares), [], []).text)


@pytest.mark.parametrize(("idle", "bound"), [(0.05, "GPU-bound"), (0.18, "Mostly GPU-bound")])
def test_a_gpu_that_idles_for_a_tenth_is_mostly_the_limit(idle: float, bound: str) -> None:
    assert verdict_of(compute=1 - idle, launch=idle).startswith(f"{bound}: the GPU is busy for {1 - idle:.0%} of")


@pytest.mark.parametrize(
    ("launch", "says"), [(0.18, "Largest cause: launching GPU work (18%)."), (0.28, "Launch-bound: the host launches")]
)
def test_a_cause_of_less_than_a_fifth_of_the_step_is_no_bottleneck(launch: float, says: str) -> None:
    """Idle time with several causes."""
    text = verdict_of(compute=0.67, launch=launch, queued=0.33 - launch)
    assert text.startswith(f"The GPU is idle for 33% of the step. {says}")


def test_idle_time_of_the_profiler_is_told_apart() -> None:
    text = verdict_of(compute=0.51, profiler=0.17, launch=0.32)
    assert text.startswith("The GPU is idle for 49% of the step (17% for the profiler).")
    assert "for the profiler" not in verdict_of(compute=0.51, profiler=0.02, launch=0.47)


def test_a_cause_of_several_parts_is_named_with_those_of_the_chart() -> None:
    """Together they exceed the largest part below."""
    text = verdict_of(compute=0.67, launch=0.11, python=0.07, queued=0.15)
    assert ". Largest cause: launching GPU work (11%), running Python between launches (7.0%)." in text


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ((), "No fix was found for what takes most, exposed communication (38%)."),
        (
            ("CM001",),
            "The plan has no fix for what takes most, exposed communication (38%).",
        ),  # a finding without a saving
    ],
)
def test_a_limit_larger_than_the_one_that_the_first_fix_treats_is_named(
    example: GetExample, found: Sequence[str], says: str
) -> None:
    facts = example("launch_bound").facts
    plan = run_rules(prepare(load_rules()), facts, debug=True).priced[:1]
    others = [Priced(replace(plan[0].finding, code=code)) for code in found]
    parts = parts_of({"communication": 0.38, "launch": 0.35, "compute": 0.27})
    said = plain(_GpuVerdict(facts, parts, [*plan, *others], plan).text)
    assert "Launch-bound: " in said
    assert said.endswith(f". {says}")


def test_busy_matmuls_without_a_fix_say_how_close_they_come_to_the_peak(example: GetExample) -> None:
    facts = example("healthy").facts
    said = rank_document(facts, run_rules(prepare(load_rules()), facts, debug=True)).verdict
    assert said.endswith("of the step. Matmuls take 75% of the step, at 62% of the bf16 peak: aten::mm, model.py:52.")


def test_what_a_step_reaches_is_said_of_a_busy_gpu(example: GetExample) -> None:
    """Of an idle one, it only repeats that the GPU is idle."""
    idle = example("five_faults").result
    assert idle.efficiency.mfu is not None
    assert idle.efficiency.mfu < LOW_UTILIZATION
    assert "of the bf16 peak" not in idle.verdict


def test_linear_algebra_that_fills_a_step_on_a_cpu_is_named() -> None:
    inverse = op("aten::linalg_inv_ex", 3_000, 6_000, **{"Input Dims": [[700, 700]]})
    step = facts(matmul(100, 2_000), inverse)
    said = rank_document(step, run_rules([], step, debug=True)).verdict
    assert "60% is solvers and decompositions of matrices" in said


@pytest.mark.parametrize(
    ("frames", "says"),
    [
        (["<built-in method stft>", "data.py(12): __getitem__"], "waiting for data (data.py:12)"),  # builds the items
        (["threading.py(600): wait"], "waiting for data (train.py:5)"),  # workers do
    ],
)
def test_a_stall_of_the_main_thread_is_named_with_its_line(frames: list[str], says: str) -> None:
    def step(t: float, _: int) -> Events:
        for index, name in enumerate(["torch/utils/data/dataloader.py(720): __next__", *frames[::-1]]):
            yield python(name, t + 10 + index, 7_000 - 2 * index)
        yield op("aten::mm", t + 8_000, 2_000)

    found = cpu_facts(step)
    said = rank_document(found, run_rules(prepare(load_rules()), found, debug=True)).verdict
    assert f"CPU-only run: {says} takes 70% of the step; model work takes 20%." in plain(said)


def test_a_line_whose_operators_fill_a_step_on_a_cpu_is_named() -> None:
    """As of a divergence over a vocabulary, none of whose operators takes a quarter of the step by itself."""

    def step(t: float, _: int) -> Events:
        yield python("train.py(30): loss", t + 100, 6_400)
        for index, name in enumerate(("xlogy", "mul", "sub", "sum")):
            yield op(f"aten::{name}", t + 200 + 1_500 * index, 1_500 - 100 * index)
        yield op("aten::gelu", t + 7_000, 2_000)

    found = cpu_facts(step)
    said = rank_document(found, run_rules(prepare(load_rules()), found, debug=True)).verdict
    assert "model work takes 74% of the step: 54% is xlogy, mul, sub and others (train.py:30)." in plain(said)


def test_a_line_that_runs_in_few_of_the_steps_is_not_named() -> None:
    """A thread that waits for a core seems to run Python, at another line each time."""

    def step(t: float, index: int) -> Events:
        yield python(f"train.py({20 + index}): part_{index}", t + 10, 6_000)
        yield op("aten::mm", t + 7_000, 3_000)

    found = cpu_facts(step)
    said = rank_document(found, run_rules(prepare(load_rules()), found, debug=True)).verdict
    assert "CPU-only run: other Python takes " in plain(said)


@pytest.mark.parametrize(("code", "named"), [("LB002", False), ("CM002", True)])
def test_launch_bound_names_a_first_fix_of_another_kind(example: GetExample, code: str, named: bool) -> None:
    facts = example("launch_bound").facts
    first = run_rules(prepare(load_rules()), facts, debug=True).priced[0]
    plan = [replace(first, finding=replace(first.finding, code=code))]
    said = plain(_GpuVerdict(facts, parts_of({"launch": 0.6, "compute": 0.4}), plan, plan).text)
    assert "Launch-bound: the host launches" in said
    assert ("First fix: " in said) == named


def test_the_work_that_fills_the_step_comes_before_little_idle_time(example: GetExample) -> None:
    plan = run_rules(prepare(load_rules()), example("launch_bound").facts, debug=True).priced[:1]
    parts = parts_of({"launch": 0.15, "compute": 0.85})
    said = plain(_GpuVerdict(example("healthy").facts, parts, [], plan).text)
    assert said.startswith("Mostly GPU-bound: the GPU is busy for 85% of the step. Matmuls take 75% of the step, at")
    assert said.endswith(" Largest cause of idle time: launching GPU work (15%).")
