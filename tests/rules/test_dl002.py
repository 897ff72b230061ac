"""DL002 input-work-on-main-thread: move input preparation off the main thread."""

from __future__ import annotations

import pytest
from support.planted import PlantedFault
from support.recorded_facts import finding, generated

from fixtures.scenarios import CPU
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.vocabulary.causes.table import INPUT_WORK
from traceopt.rules.catalogue.dl002_input_work_on_main_thread import InputWorkOnMainThread
from traceopt.rules.fixes.advice.loading.loader_workers import SHARED_CORE
from traceopt.testing import A100, Machine


class TestPlanted(PlantedFault):
    code = "DL002"


class TestMovedInputWork:
    """DL002: 20 ms of tokenizing on the main thread."""

    def test_on_a_cpu_workers_slow_the_model_down(self) -> None:
        facts = generated("input_work_main_thread", **CPU, threads=1)
        found = finding(facts, "DL002")
        work_us = facts.stalls.typical_ns(INPUT_WORK) / 1e3
        slower_us = (SHARED_CORE - 1) * min(work_us, facts.step_ns / 1e3 - work_us)
        assert found.saving is not None
        assert found.saving.low_us == pytest.approx(0.7 * (work_us - slower_us), rel=0.01)
        assert found.saving.est_us == pytest.approx(0.95 * (work_us - slower_us / 2), rel=0.01)
        assert found.saving.high_us == pytest.approx(work_us, rel=0.01)
        assert "because the workers take CPU time, cache and memory bandwidth from the model." in found.saving.basis

    def test_how_much_they_do_is_measured_by_the_run(self) -> None:
        hand_over = {"us": 500.0, "worker_us": 500.0, "slowdown": 1.0}
        row = {"dataset": "data.Items", "num_workers": 0, "batches": 8, "fetch_us": 8e3, "hand_over": hand_over}
        facts = generated("input_work_main_thread", **CPU, threads=1, change={"loaders": [row]})
        found = finding(facts, "DL002")
        assert found.saving is not None
        assert found.saving.est_us == pytest.approx(0.95 * facts.stalls.typical_ns(INPUT_WORK) / 1e3, rel=0.01)
        assert "the workers take CPU time" not in found.saving.basis

    def test_a_single_core_gains_nothing_from_workers(self) -> None:
        found = finding(generated("input_work_main_thread", **CPU, threads=1, cores=1), "DL002")
        assert found.saving is None
        assert "Or prepare the data once and store it." in found.fix.text

    def test_under_a_gpu_the_workers_that_the_cores_can_run_are_advised(self) -> None:
        found = finding(generated("input_work_main_thread", cores=2, change={"loaders": []}), "DL002")
        assert "num_workers=1" in (found.fix.code or "")


def preparing(us: float) -> Facts:
    """Each step prepares its input on the main thread, and then the GPU works for 2 ms."""
    machine = Machine(A100, with_stack=1)
    for _ in range(5):
        with machine.step(), machine.python("serve.py(3): loop"):
            with machine.python("processor.py(9): preprocess"):
                machine.idle(us)
            with machine.python("processor.py(20): decode_image"):
                machine.idle(1)
            machine.launch(2_000)
            machine.synchronize()
    return machine.facts()


@pytest.mark.parametrize(("us", "processes", "expected"), [(1_500, None, 1_500), (3_000, 3, 3_000)])
def test_input_work_is_priced_as_its_code_prepares_it(us: float, processes: int | None, expected: float) -> None:
    (one,) = InputWorkOnMainThread().check(preparing(us))
    finding, price = one.finding, one.price
    assert finding.saving is not None
    assert price is not None
    assert finding.saving.est_us == pytest.approx(0.95 * expected, rel=0.02)
    assert price.least_step_ns == pytest.approx(us * 1e3 / (processes or 1), rel=0.02)
    assert (f"ProcessPoolExecutor({processes})" in (finding.fix.code or "")) == (processes is not None)
    assert finding.evidence[0].what.endswith("preprocess")
    assert finding.evidence[0].calls_per_step == 1  # not those of the other function on the same line


@pytest.mark.parametrize(("kernels", "whole"), [(400, True), (8, False)])
def test_many_kernels_may_prepare_items_one_by_one(kernels: int, whole: bool) -> None:
    machine = Machine(A100, with_stack=1)
    for _ in range(5):
        with machine.step(), machine.python("train.py(3): loop"):
            with machine.python("data.py(9): augment"):
                for _ in range(kernels):
                    machine.idle(20_000 / kernels)
                    machine.launch(2)
            machine.launch(2_000)
            machine.synchronize()
    found = finding(machine.facts(), "DL002")
    assert (found.title == "Prepare the input with fewer kernels") is whole
    assert found.saving is not None
    assert (found.saving.low_us == 0) is whole
    assert ("It launches 400 kernels per step." in found.why) is whole
    assert ("Kornia" in found.fix.text) is whole
