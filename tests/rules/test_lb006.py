"""LB006 python-bound: move Python work out of the step."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from support.cpu_steps import STEPS, Events, cpu_answer, silent, the
from support.findings import checked, found, places, saving_of
from support.handmade import handmade

from traceopt.analyzer.facts import Facts
from traceopt.result.finding import Finding
from traceopt.rules.catalogue.lb006_python_bound import PythonBound
from traceopt.testing import A100, Machine, answer
from traceopt.testing import events as build


def python_step(gpu_us: float) -> Callable[[float, int], Iterator[build.Json]]:
    """A kernel of `gpu_us`, and 8 ms of Python, from 200 us on, in calls of half a millisecond."""

    def events(t: float, first_id: int) -> Iterator[build.Json]:
        yield build.runtime("cudaLaunchKernel", t + 100, 5, first_id)
        yield build.kernel("ampere_sgemm_128x64_tn", t + 110, gpu_us, first_id)
        yield build.python("train.py(10): build_mask", t + 200, 8_000)
        for call in range(16):
            yield build.python("<built-in method append of list object>", t + 200 + 500 * call, 400)

    return events


def test_fires_on_python_that_starves_the_gpu() -> None:
    (finding,) = checked("LB006", handmade(python_step(gpu_us=4_000)))
    saving = saving_of(finding)
    assert saving.high_us == 200 + 8_000 - 110 - 4_000  # the Python after the kernel's end
    assert finding.impact == "high"
    assert "train.py:10" in places(finding)


def between_launches(python_us: float) -> list[Finding]:
    """Fourteen pieces of compiled code, each after a function of Python."""
    machine = Machine(A100)
    for _ in range(4):
        with machine.step(), machine.python("train.py(88): train_step"):
            for _ in range(14):
                with machine.python("routing.py(22): choose_expert"):
                    machine.idle(python_us)
                for _ in range(4):
                    machine.launch(20)
    return [finding for code in ("LB006", "LB002") for finding in found(code, machine.facts())]


def test_functions_between_launches_are_no_launch_overhead() -> None:
    """Each is shorter than a millisecond, but no graph removes it."""
    finding, *rest = between_launches(python_us=420)
    assert (finding.code, places(finding)) == ("LB006", {"routing.py:22"})
    assert saving_of(finding).high_us == pytest.approx(14 * (420 - 4 * 20), rel=0.05)  # the kernels run meanwhile
    assert rest == []


def test_a_thread_that_only_waits_is_not_reported() -> None:
    """The monitor of tqdm, for example."""
    machine = Machine(A100)
    machine.events.append(build.python("tqdm/_monitor.py(60): run", 0, 40_000, tid=99))
    for _ in range(4):
        with machine.step(), machine.python("train.py(88): train_step"):
            for _ in range(50):
                machine.idle(100)
                machine.launch(20)
    assert found("LB006", machine.facts()) == []


def test_a_short_function_between_launches_is_dispatch() -> None:
    assert [finding.code for finding in between_launches(python_us=100)] == ["LB002"]


def test_evidence_adds_up_to_the_stall() -> None:
    """Most of it is in calls much shorter than a sample would be; no call is counted."""

    def events(t: float, first_id: int) -> Iterator[build.Json]:
        yield build.runtime("cudaLaunchKernel", t + 100, 5, first_id)
        yield build.kernel("ampere_sgemm_128x64_tn", t + 110, 40, first_id)
        yield build.python("train.py(10): build_mask", t + 200, 8_000)
        for call in range(400):
            yield build.python("<built-in method append of list object>", t + 200 + 20 * call, 2)
            yield build.op("aten::item", t + 210 + 20 * call, 8)

    (finding,) = checked("LB006", handmade(events))
    measured = [row.us_per_step or 0.0 for row in finding.evidence]
    assert sum(measured) == pytest.approx(saving_of(finding).high_us, rel=0.001)
    assert sum(measured) == pytest.approx(8_000 - 400 * 8, rel=0.02)
    assert [row.calls_per_step for row in finding.evidence] == [None] * len(measured)


def test_does_not_blame_the_profiler() -> None:
    def events(t: float, first_id: int) -> Iterator[build.Json]:
        yield build.runtime("cudaLaunchKernel", t + 100, 5, first_id)
        yield build.kernel("ampere_sgemm_128x64_tn", t + 110, 40, first_id)
        yield build.python("train.py(10): main", t + 150, 8_150)
        yield build.python("torch/profiler/profiler.py(700): add_metadata_json", t + 200, 8_000)
        yield build.python("<built-in method _add_metadata_json of PyCapsule object at 0x7f6b>", t + 210, 7_900)

    assert checked("LB006", handmade(events)) == []


def test_does_not_blame_the_wait_for_autograd() -> None:
    def events(t: float, first_id: int) -> Iterator[build.Json]:
        yield build.runtime("cudaLaunchKernel", t + 100, 5, first_id)
        yield build.kernel("ampere_sgemm_128x64_tn", t + 110, 40, first_id)
        yield build.python("train.py(10): main", t + 150, 8_150)
        yield build.python("<built-in method run_backward of torch._C._EngineBase object at 0x7f6b>", t + 200, 8_000)

    assert checked("LB006", handmade(events)) == []


def test_silent_while_the_gpu_works() -> None:
    assert checked("LB006", handmade(python_step(gpu_us=9_800))) == []


ENGINE = "<built-in method run_backward of torch._C._EngineBase object at 0x7f>"


class TestPythonBound:
    """LB006."""

    def test_a_loop_in_every_step(self) -> None:
        def step(t: float, _: int) -> Events:
            yield build.op("aten::mm", t, 1_000)
            yield build.python("masks.py(9): build_mask", t + 1_000, 3_000)
            yield build.op("aten::mm", t + 4_000, 6_000)

        finding, saved_us, places = the("LB006", step)
        assert saved_us == pytest.approx(0.8 * 3_000, rel=0.05)
        assert places == ["masks.py:9"]
        assert " while no operator runs: build_mask (masks.py:9) for 3.0 ms." in finding.why

    def test_each_time_another_function_is_a_thread_without_a_core(self) -> None:
        def step(t: float, index: int) -> Events:
            yield build.python(f"model.py({index}): forward_{index}", t + 1_000, 3_000)
            yield build.op("aten::mm", t + 100, 800)
            yield build.op("aten::mm", t + 4_000, 5_950)

        assert silent("LB006", step)

    def test_a_collection_does_not_end_the_function_that_it_interrupts(self) -> None:
        def step(t: float, _: int) -> Events:
            yield build.op("aten::mm", t, 1_000)
            yield build.python("batch.py(9): to_lists", t + 1_000, 4_000)
            for pause in range(4):
                yield build.op("traceopt: gc", t + 1_800 + 1_000 * pause, 200)
            yield build.op("aten::mm", t + 5_000, 5_000)

        finding, saved_us, places = the("LB006", step)
        assert saved_us == pytest.approx(0.8 * 3_200, rel=0.05)
        assert finding.why.startswith("Python blocks the main thread for 3.2 ms ")
        assert places == ["batch.py:9"]

    @pytest.mark.parametrize(("calls_between", "found"), [(False, False), (True, True)])
    def test_freeing_the_batch_before_is_no_python_work(self, calls_between: bool, found: bool) -> None:
        """It happens when the loop's variable is assigned, directly after the batch was loaded."""

        def step(t: float, _: int) -> Events:
            yield build.python("train.py(9): epoch", t, 9_990)
            yield build.python("hooks.py(3): next_batch", t + 100, 1_000)
            yield build.python("torch/utils/data/dataloader.py(720): __next__", t + 150, 850)
            if calls_between:
                yield build.python("<built-in function len>", t + 1_200, 10)
            yield build.op("aten::mm", t + 4_500, 5_490)

        assert silent("LB006", step) != found

    @pytest.mark.parametrize(("megabytes", "found"), [(40, False), (8, True)])
    def test_freeing_a_large_tensor_is_no_python_work(self, megabytes: int, found: bool) -> None:
        """Memory may be recorded in a single step. Freeing 8 MB does not take 3 ms."""

        def step(t: float, index: int) -> Events:
            yield build.python("model.py(9): forward", t, 9_990)
            yield build.op("aten::to", t + 100, 900)
            for at, sign in ((200, 1), (1_050, -1)) if index == 1 else ():
                size = {"Bytes": sign * megabytes * 1_000_000, "Addr": 64, "Total Allocated": 50_000_000}
                mark = {"name": "[memory]", "pid": build.PID, "tid": build.MAIN, "ts": t + at}
                yield mark | {"ph": "i", "s": "t", "args": size | {"Device Type": 0, "Device Id": -1}}
            yield build.op("aten::mm", t + 4_000, 5_990)

        assert silent("LB006", step) != found

    def test_collections_are_no_python(self) -> None:
        def step(t: float, _: int) -> Events:
            yield build.op("aten::mm", t, 1_000)
            yield build.python("batch.py(9): to_lists", t + 1_000, 4_000)
            yield build.op("traceopt: gc", t + 1_050, 3_900)
            yield build.op("aten::mm", t + 5_000, 5_000)

        assert silent("LB006", step)

    def test_work_between_two_calls_is_placed_between_their_lines(self) -> None:
        """Indexing, arithmetic and comprehensions are no calls."""

        def step(t: float, _: int) -> Events:
            yield build.op("aten::mm", t, 1_000)
            yield build.python("masks.py(9): build_mask", t + 1_000, 4_000)
            yield build.python("<built-in function sorted>", t + 1_000, 100)
            yield build.python("<built-in function print>", t + 4_900, 100)
            yield build.op("aten::mm", t + 5_000, 5_000)

        lines = {2: 14, 3: 16}
        rows = [row for row in range(4 * STEPS) if row % 4 in lines]
        calls = {"count": 4 * STEPS, "rows": rows, "lines": [lines[row % 4] for row in rows]}
        _, [finding] = cpu_answer("LB006", step, traceopt={"call_lines": calls})
        assert str(finding.locations[0]) == "masks.py:14-16"

    def test_tensors_from_lists_in_a_short_step(self) -> None:
        """A fifth of a millisecond is long in a step of 10 ms. What surrounds each operator is not."""

        def step(t: float, _: int) -> Events:
            for number in range(5):
                yield build.op("aten::mm", t + 1_000 * number, 750)
                yield build.python("<built-in method tensor of type object at 0x7f>", t + 1_000 * number + 750, 250)
            for number in range(50):
                yield build.op("aten::mm", t + 5_000 + 100 * number, 60)
                yield build.python("model.py(7): forward", t + 5_060 + 100 * number, 40)

        finding, saved_us, _ = the("LB006", step)
        assert finding.title == "Build tensors from tensors or arrays, not from lists"
        assert "np.stack" in (finding.fix.code or "")
        assert "Keep the items as tensors" in finding.fix.text
        assert saved_us == pytest.approx(0.8 * 5 * 250, rel=0.05)

    @pytest.mark.parametrize("computes", [True, False])
    def test_short_functions_count_if_they_run_no_operator(self, computes: bool) -> None:
        """In a step of 60 ms, twelve functions of half a millisecond, or the code of as many around an operator."""
        events = []
        for index in range(4):
            start = 60_000.0 * index
            events += [build.annotation(f"ProfilerStep#{index}", start, 60_000)]
            events += [build.python("train.py(5): train", start, 60_000)]
            for number in range(12):
                begin, us = start + 5_000 * number, 500 if computes else 5_000
                events += [build.python("watch.py(7): histogram", begin, us), build.op("aten::mm", begin + 500, 4_500)]
        _, findings = answer(PythonBound, Facts(build.read(build.document(events))))
        assert [places(finding) for finding in findings] == [{"watch.py:7"}] * computes
        assert [saving_of(finding).high_us for finding in findings] == [pytest.approx(12 * 500, rel=0.02)] * computes

    @pytest.mark.parametrize("loads", [True, False])
    def test_workers_are_named_where_a_loader_is(self, loads: bool) -> None:
        def step(t: float, _: int) -> Events:
            yield build.annotation("Optimizer.step#SGD.step", t + 9_500, 400)
            yield build.python("masks.py(9): build_mask", t + 1_000, 3_000)
            yield build.op("aten::mm", t + 4_000, 5_000)
            if loads:
                yield build.python("torch/utils/data/dataloader.py(720): __next__", t, 100)

        finding, _, _ = the("LB006", step)
        assert ("loader workers" in finding.fix.text) is loads

    def test_the_engine_is_no_python(self) -> None:
        def step(t: float, _: int) -> Events:
            yield build.op("aten::mm", t, 1_000)
            yield build.python(ENGINE, t + 1_000, 9_000)
            yield build.op("autograd::engine::evaluate_function: MmBackward0", t + 5_000, 2_000)

        assert silent("LB006", step)

    def test_a_gpu_that_was_not_recorded_is_no_cpu_run(self) -> None:
        def step(t: float, _: int) -> Events:
            yield build.python("masks.py(9): build_mask", t + 1_000, 3_000)

        check, _ = cpu_answer("LB006", step, deviceProperties=[{"id": 0, "name": "NVIDIA A100-SXM4-40GB"}])
        assert (check.status, check.reason) == (
            "not_checked",
            "No GPU work was recorded; profile with ProfilerActivity.CUDA.",
        )


@pytest.mark.parametrize("caller", ["diffusers/hooks/offloading.py(9): find_device", "model.py(9): find_device"])
def test_python_inside_a_library_is_not_told_to_move(caller: str) -> None:
    machine = Machine(with_stack=1)
    for _ in range(5):
        with machine.step(), machine.python("train.py(3): loop"):
            with machine.python(caller):
                for _ in range(100):
                    with machine.python("torch/nn/modules/module.py(2868): named_modules"):
                        machine.idle(100)
            machine.launch(5_000)
            machine.synchronize()
    (finding,) = found("LB006", machine.facts())
    assert "102 calls of Python functions were recorded in it" in finding.why
    library = caller.startswith("diffusers")
    assert finding.evidence[0].detail == ("called by diffusers/hooks/offloading.py:9" if library else None)
    assert (finding.fix.code is None) == library
