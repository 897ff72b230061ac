"""A CPU-only step is split into exclusive phases of the main thread."""

from __future__ import annotations

import pytest
from support.traces import GetExample

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.vocabulary.causes.table import DATA_LOADING, PHASES
from traceopt.testing.events import Json, annotation, op, python, read

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def phases(*events: Json, steps: int = 1) -> dict[str, int]:
    facts = Facts(read([*(annotation(f"ProfilerStep#{i}", 1000 * i, 1000) for i in range(steps)), *events]))
    assert not facts.has_gpu
    found = {phase.key: facts.cpu_phases.total_ns(phase) for phase in PHASES}
    assert sum(found.values()) == 1_000_000 * steps
    return {name: ns for name, ns in found.items() if ns}


def test_one_step() -> None:
    assert phases(
        python("train.py(3): main", 0, 950),
        annotation(LOADER, 10, 90),
        op("aten::stack", 20, 50),  # part of the loader
        op("aten::mm", 150, 100),
        op("autograd::engine::evaluate_function: MmBackward0", 300, 200),
        op("aten::mm", 310, 100),
        annotation("Optimizer.zero_grad#SGD.zero_grad", 550, 20),
        annotation("Optimizer.step#SGD.step", 600, 100),
        op("aten::_foreach_add_", 610, 50),
        python("logging/__init__.py(3): info", 750, 50),
        python("torch/serialization.py(3): save", 820, 30),
        python("<built-in function collect>", 860, 40),
        python("train.py(9): augment", 905, 10),
        python("<built-in function sleep>", 960, 15),
        python("subprocess.py(506): run", 980, 5),
        annotation("_compile.compile_inner (dynamo_timed)", 920, 20),
        op("aten::mm", 925, 10),  # of a constant that is folded
    ) == {
        "data_loading": 90_000,
        "forward": 100_000,
        "backward": 200_000,
        "optimizer": 120_000,
        "logging": 50_000,
        "checkpoint": 30_000,
        "gc": 40_000,
        "compile": 20_000,
        "input_work": 10_000,
        "sleep": 15_000,
        "program": 5_000,
        "python": 950_000 - 660_000,
        "untraced": 30_000,
    }


def test_backward_on_autograds_thread_is_the_steps() -> None:
    """The main thread waits for it in the engine's call, which does not count as Python either."""
    assert phases(
        python("torch/autograd/graph.py(3): _engine_run_backward", 100, 400),
        python("<built-in method run_backward of torch._C._EngineBase object at 0x7f>", 140, 320),
        op("autograd::engine::evaluate_function: MmBackward0", 150, 300, 2),
        annotation("gloo:all_reduce", 440, 15, 7),
    ) == {"backward": 315_000, "communication": 5_000, "python": 80_000, "untraced": 600_000}


def test_an_optimizer_that_runs_the_passes_itself() -> None:
    """Lightning and LBFGS: only the time after the last backward belongs to the optimizer."""
    assert phases(
        annotation("Optimizer.step#AdamW.step", 100, 500),
        op("aten::mm", 120, 100),
        op("autograd::engine::evaluate_function: MmBackward0", 250, 150),
        op("aten::add_", 450, 100),
    ) == {"forward": 100_000, "backward": 150_000, "optimizer": 200_000, "untraced": 550_000}


def test_collectives_on_the_cpu() -> None:
    """gloo runs on its own thread; only time not covered by model work is a wait."""
    assert phases(
        op("aten::mm", 100, 200),
        annotation("gloo:all_reduce", 250, 300, 7),
        annotation("nccl:all_reduce", 700, 100, 7),  # launches GPU work, elsewhere
    ) == {"forward": 200_000, "communication": 250_000, "untraced": 550_000}


def test_by_step() -> None:
    facts = Facts(
        read(
            [
                annotation("ProfilerStep#0", 0, 1000),
                annotation("ProfilerStep#1", 1000, 1000),
                annotation(LOADER, 900, 300),
                op("aten::mm", 1300, 100),
            ]
        )
    )
    loading = facts.cpu_phases.of_steps(DATA_LOADING)
    assert loading.tolist() == [100_000, 200_000]
    assert facts.cpu_phases.by_step.sum(axis=1).tolist() == [1_000_000, 1_000_000]
    assert facts.cpu_phases.typical_ns(DATA_LOADING) == 150_000
    assert facts.cpu_phases.model_work.total == 100_000


def test_every_phase_has_a_label() -> None:
    assert len({phase.host_label or phase.label for phase in PHASES}) == len(PHASES)


def test_the_planted_loader(example: GetExample) -> None:
    slow, fixed = example("cpu_only"), example("cpu_only", fixed=True)
    gained = slow.facts.cpu_phases.typical_ns(DATA_LOADING) - fixed.facts.cpu_phases.typical_ns(DATA_LOADING)
    assert gained == pytest.approx(slow.planted.cost_us * 1e3, rel=0.05)
    work = [example.facts.cpu_phases.model_work.total for example in (slow, fixed)]
    assert work[0] == pytest.approx(work[1], rel=0.02)
