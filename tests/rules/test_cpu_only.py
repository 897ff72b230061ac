"""Rules on a run without a GPU: what the main thread does is the cost, in traces made by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from traceopt.analyzer.facts import Facts
from traceopt.result.document import Check
from traceopt.result.finding import Finding
from traceopt.rules.engine import run_rules
from traceopt.rules.registry import builtin_rules
from traceopt.testing import events as build

RULES = {rule.code: rule for rule in builtin_rules()}
STEP_US, STEPS = 10_000, 4
ENGINE = "<built-in method run_backward of torch._C._EngineBase object at 0x7f>"

Events = Iterator[build.Json]


def answer(code: str, step: Callable[[float, int], Events], **metadata: object) -> tuple[Check, list[Finding]]:
    """What a rule says of four steps; `step(start, index)` yields the events of one."""
    events = []
    for index in range(STEPS):
        start = index * STEP_US
        events.append(build.annotation(f"ProfilerStep#{index}", start, STEP_US))
        events.append(build.python("train.py(5): train", start, STEP_US))
        events += step(start, index)
    outcome = run_rules([RULES[code]()], Facts(build.read(build.document(events, **metadata))), debug=True)
    return outcome.checks[0], outcome.findings


def the(code: str, step: Callable[[float, int], Events]) -> tuple[Finding, float, list[str]]:
    """The only finding, what it saves of a step (us), and its places."""
    check, findings = answer(code, step)
    assert len(findings) == 1, check.reason
    [finding] = findings
    assert finding.saving is not None
    return finding, finding.saving.est_us, [str(place) for place in finding.locations]


def silent(code: str, step: Callable[[float, int], Events]) -> bool:
    return answer(code, step)[0].status in ("passed", "not_applicable")


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
        _, [finding] = answer("LB006", step, traceopt={"call_lines": calls})
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
        assert finding.title == "Build tensors from one array, not from a list"
        assert "np.stack" in (finding.fix.code or "")
        assert saved_us == pytest.approx(0.8 * 5 * 250, rel=0.05)

    def test_the_engine_is_no_python(self) -> None:
        def step(t: float, _: int) -> Events:
            yield build.op("aten::mm", t, 1_000)
            yield build.python(ENGINE, t + 1_000, 9_000)
            yield build.op("autograd::engine::evaluate_function: MmBackward0", t + 5_000, 2_000)

        assert silent("LB006", step)

    def test_a_gpu_that_was_not_recorded_is_no_cpu_run(self) -> None:
        def step(t: float, _: int) -> Events:
            yield build.python("masks.py(9): build_mask", t + 1_000, 3_000)

        check, _ = answer("LB006", step, deviceProperties=[{"id": 0, "name": "NVIDIA A100-SXM4-40GB"}])
        assert (check.status, check.reason) == (
            "not_checked",
            "No GPU work was recorded; profile with ProfilerActivity.CUDA.",
        )


class TestOptimizer:
    """OP001."""

    def step(self, optimizer: str, operator: str, calls: int = 100) -> Callable[[float, int], Events]:
        def events(t: float, _: int) -> Events:
            yield build.annotation(f"Optimizer.step#{optimizer}.step", t + 5_000, 3_000)
            for index in range(calls):
                yield build.op(operator, t + 5_000 + 29 * index, 20)

        return events

    def test_one_parameter_after_the_other(self) -> None:
        finding, saved_us, places = the("OP001", self.step("AdamW", "aten::addcdiv_"))
        assert saved_us == pytest.approx(0.6 * 3_000, rel=0.05)
        assert (finding.title, places) == ("Use a fused optimizer", ["train.py:5"])

    def test_fused_or_small_or_without_a_fused_version(self) -> None:
        assert silent("OP001", self.step("AdamW", "aten::_fused_adamw_"))
        assert silent("OP001", self.step("AdamW", "aten::addcdiv_", calls=20))
        assert silent("OP001", self.step("RMSprop", "aten::addcdiv_"))

    def test_the_passes_of_a_closure_are_not_the_optimizers(self) -> None:
        def step(t: float, index: int) -> Events:
            yield from self.step("AdamW", "aten::mul")(t, index)
            yield build.op("autograd::engine::evaluate_function: MmBackward0", t + 7_950, 45)

        assert silent("OP001", step)


class TestCollectives:
    """CM002 and CM001 with gloo, which runs on a thread of its own."""

    def step(self, calls: int, us: float, elements: int) -> Callable[[float, int], Events]:
        def events(t: float, _: int) -> Events:
            yield build.python("average.py(3): average", t + 4_000, calls * us)
            for index in range(calls):
                begin = t + 4_000 + index * us
                yield build.op("c10d::allreduce_", begin, 2)
                sizes = {"Input Dims": [[elements]], "Input type": ["float"]}
                yield build.annotation("gloo:all_reduce", begin + 3, us - 4, 7, **sizes)

        return events

    def test_a_call_for_each_parameter(self) -> None:
        finding, saved_us, places = the("CM002", self.step(calls=40, us=100, elements=1000))
        assert saved_us == pytest.approx(0.8 * 40 * 96 * (1 - 4 / 40), rel=0.05)
        assert places == ["average.py:3"]
        assert "40 small collectives" in finding.why
        assert the("CM001", self.step(calls=40, us=100, elements=1000))[2] == ["average.py:3"]

    def test_what_remains_is_what_the_bytes_take(self) -> None:
        """Calls on 4 kB take 40 us, and on 404 kB 60 us, so the 8.16 MB of all 40 calls take 408 us and a call. The
        rest goes: it is known what remains.
        """

        def step(t: float, _: int) -> Events:
            for index in range(40):
                begin, elements = t + 4_000 + 100 * index, (1_000, 101_000)[index % 2]
                sizes = {"Input Dims": [[elements]], "Input type": ["float"]}
                yield build.op("c10d::allreduce_", begin, 2)
                yield build.annotation("gloo:all_reduce", begin + 2, (40, 60)[index % 2], 7, **sizes)

        left = (408 + 50) / (40 * 50)  # of the calls
        finding, saved_us, _ = the("CM002", step)
        assert saved_us == pytest.approx((1 - left) * 40 * (50 + 2), rel=0.02)
        assert finding.saving is not None
        assert "removes all of these calls' exposed and host time" in finding.saving.basis
        assert finding.saving.high_us == pytest.approx(39 / 40 * 40 * 50 + (1 - left) * 40 * 2, rel=0.02), (
            "one call left"
        )

    def test_a_long_call_right_after_another_is_no_late_rank(self) -> None:
        """Every tenth call waits 500 us for a core."""

        def step(t: float, _: int) -> Events:
            begin = t + 4_000
            for index in range(40):
                length = 500 if index % 10 == 9 else 50
                yield build.op("c10d::allreduce_", begin, 2)
                yield build.annotation("gloo:all_reduce", begin + 2, length, 7)
                begin += length + 5

        assert the("CM002", step)[1] == pytest.approx(0.8 * (36 * 50 + 4 * 500 + 40 * 2) * (1 - 4 / 40), rel=0.02)

    def test_few_or_large_ones(self) -> None:
        assert silent("CM002", self.step(calls=4, us=1_000, elements=1000))
        assert silent("CM002", self.step(calls=40, us=100, elements=1 << 20))

    def test_a_reduction_in_each_micro_step(self) -> None:
        """CM006."""

        def step(t: float, _: int, last_only: bool = False) -> Events:
            for micro in (0, 4_000):
                yield build.annotation("DistributedDataParallel.forward", t + micro, 900)
                yield build.op("aten::addmm", t + micro, 900)
                yield build.op("autograd::engine::evaluate_function: AddmmBackward0", t + micro + 1_000, 1_000)
                if micro or not last_only:
                    yield build.op("c10d::allreduce_", t + micro + 1_500, 10)
                    yield build.annotation("gloo:all_reduce", t + micro + 1_520, 1_480, 7)
            yield build.annotation("Optimizer.step#SGD.step", t + 8_000, 1_000)

        finding, saved_us, places = the("CM006", step)
        assert saved_us == pytest.approx(0.95 * 1_000, rel=0.06)
        assert finding.saving is not None
        assert finding.saving.high_us == pytest.approx(1_500, rel=0.02), "the gloo thread shares the model's cores"
        assert places == ["train.py:5"]
        assert silent("CM006", lambda t, index: step(t, index, last_only=True))

    def test_copies_into_buckets_go_with_the_reductions(self) -> None:
        """CM006 on two micro-steps: 40 copies of 10 us in each backward pass, and 20 back after the reduction."""

        def step(t: float, _: int) -> Events:
            for micro in (0, 4_000):
                at = t + micro
                yield build.annotation("DistributedDataParallel.forward", at, 900)
                yield build.op("aten::addmm", at, 900)
                yield build.op("autograd::engine::evaluate_function: AddmmBackward0", at + 1_000, 1_000)
                for index in range(40):
                    yield build.op("torch::distributed::reducer::mul_out", at + 1_000 + 12 * index, 10)
                yield build.op("c10d::allreduce_", at + 1_990, 10)
                yield build.annotation("gloo:all_reduce", at + 2_000, 1_000, 7)
                for index in range(20):
                    yield build.op("torch.distributed.ddp.reducer::copy_bucket_to_grad", at + 3_000 + 10 * index, 10)
            yield build.annotation("Optimizer.step#SGD.step", t + 8_000, 1_000)

        finding, saved_us, _ = the("CM006", step)
        assert saved_us == pytest.approx(0.95 * (1_010 + 400 + 200), rel=0.01)
        assert "The host spends another 0.60 ms on them" in finding.why

    def test_the_call_of_a_collective_is_no_compute(self) -> None:
        """The gloo thread takes the core of the thread that calls it, so the call ends with the collective."""

        def step(t: float, _: int) -> Events:
            yield build.op("aten::mm", t, 4_000)
            for index in range(40):
                begin = t + 4_000 + index * 100
                yield build.op("c10d::allreduce_", begin, 96)
                yield build.annotation("gloo:all_reduce", begin + 3, 90, 7)

        finding, saved_us, _ = the("CM002", step)
        assert saved_us == pytest.approx(0.8 * 40 * 96 * (1 - 4 / 40), rel=0.01)
        assert "Their calls take 0.24 ms of host time." in finding.why
        assert "overlap" not in finding.why

    def test_the_frame_of_a_call_is_host_time(self) -> None:
        """torch.distributed checks the arguments for 50 us, and wakes up 10 us after the collective has ended."""

        def step(t: float, _: int) -> Events:
            for index in range(40):
                begin = t + 1_000 + 200 * index
                yield build.python("torch/distributed/distributed_c10d.py(2810): all_reduce", begin, 160)
                yield build.op("c10d::allreduce_", begin + 50, 2)
                yield build.annotation("gloo:all_reduce", begin + 52, 98, 7)

        assert the("CM002", step)[1] == pytest.approx(0.8 * 40 * 160 * (1 - 4 / 40), rel=0.02)

    def test_the_wait_for_a_late_rank_has_another_cause(self) -> None:
        def step(t: float, index: int) -> Events:
            yield from self.step(calls=40, us=100, elements=1000)(t, index)
            yield build.annotation("gloo:all_reduce", t + 1_000, 2_500, 7)

        assert the("CM002", step)[1] < 0.8 * (41 * 96 + 300)


class TestAttention:
    """AT001."""

    def step(self, *names: str) -> Callable[[float, int], Events]:
        """Operators of a millisecond, one after the other."""

        def events(t: float, _: int) -> Events:
            yield build.python("model.py(8): attention", t + 1_000, 1_000 * len(names))
            for index, name in enumerate(names):
                yield build.op(name, t + 1_000 * (index + 1), 1_000)

        return events

    def test_product_softmax_product(self) -> None:
        step = self.step("aten::addmm", "aten::bmm", "aten::masked_fill", "aten::_softmax", "aten::bmm", "aten::mm")
        _, saved_us, places = the("AT001", step)
        assert saved_us == pytest.approx(0.9 * 2_000, rel=0.05)
        assert places == ["model.py:8"]

    def test_the_fused_operator_drops_no_weights(self) -> None:
        names = ("aten::bmm", "aten::_softmax", "aten::bernoulli_", "aten::mul", "aten::bmm", "aten::mm")
        assert silent("AT001", self.step(*names))

    def test_in_training_the_fused_backward_repeats_a_product(self) -> None:
        def step(t: float, index: int) -> Events:
            yield from self.step("aten::bmm", "aten::masked_fill", "aten::_softmax", "aten::bmm", "aten::mm")(t, index)
            yield build.annotation("Optimizer.step#SGD.step", t + 8_000, 1_000)

        assert the("AT001", step)[1] == pytest.approx(0.9 * 2_000 - 2_000 / 6, rel=0.05)

    @pytest.mark.parametrize(
        "names",
        [
            ("aten::bmm", "aten::masked_fill", "aten::_softmax", "aten::mm", "aten::bmm"),
            ("aten::bmm", "aten::mm", "aten::mm", "aten::masked_fill", "aten::_softmax_backward_data", "aten::bmm"),
        ],
    )
    def test_the_projection_of_the_value_may_run_in_between(self, names: tuple[str, ...]) -> None:
        _, saved_us, _ = the("AT001", self.step(*names, "aten::mm"))
        assert saved_us == pytest.approx(0.9 * 2_000, rel=0.05)

    @pytest.mark.parametrize(
        "names",
        [
            ("aten::addmm", "aten::_softmax", "aten::bmm"),  # a gate
            ("aten::bmm", "aten::_softmax", "aten::mm", "aten::mm", "aten::bmm"),
            ("aten::bmm", "aten::_softmax_backward_data", "aten::mm", "aten::bmm"),
            ("aten::bmm", "aten::addmm", "aten::_softmax", "aten::bmm"),
            ("aten::_scaled_dot_product_flash_attention_for_cpu",),
        ],
    )
    def test_other_softmaxes(self, names: tuple[str, ...]) -> None:
        assert silent("AT001", self.step(*names))

    def test_the_long_way_of_the_fused_operator(self) -> None:
        def step(t: float, index: int) -> Events:
            yield build.op("aten::_scaled_dot_product_attention_math", t + 900, 4_000)
            yield from self.step("aten::bmm", "aten::_softmax", "aten::bmm")(t, index)

        assert silent("AT001", step)


class TestMathBackend:
    """AT002: scaled_dot_product_attention that a CPU runs as separate operators."""

    SDPA = "aten::scaled_dot_product_attention"

    def step(self, dropout: str = "0.1", sequence: int = 11) -> Callable[[float, int], Events]:
        """4 ms of attention forward and 3 ms backward, each with 2 ms of products. `sequence` is the number that the
        backward of the softmax says.
        """
        shape = [2, 4, 8, 16]
        inputs = {
            "Input Dims": [shape, shape, shape, [], [], []],
            "Input type": ["float", "float", "float", "", "Scalar", "Scalar"],
            "Concrete Inputs": ["", "", "", "", dropout, "False"],
        }

        def events(t: float, _: int) -> Events:
            yield build.op("aten::addmm", t + 100, 500)
            yield build.python("model.py(8): attention", t + 900, 4_100)
            yield build.op(self.SDPA, t + 900, 4_000, **inputs)
            yield build.op("aten::_scaled_dot_product_attention_math", t + 900, 4_000)
            yield build.op("aten::bmm", t + 900, 1_000, **{"Sequence number": 10})
            yield build.op("aten::_safe_softmax", t + 1_900, 1_000, **{"Sequence number": 11})
            yield build.op("aten::dropout", t + 2_900, 1_000, **{"Sequence number": 12})
            yield build.op("aten::bmm", t + 3_900, 1_000, **{"Sequence number": 13})
            backward = (("Bmm", 13, "aten::bmm"), ("Softmax", sequence, "aten::_softmax_backward_data"))
            for index, (node, number, name) in enumerate((*backward, ("Bmm", 10, "aten::bmm"))):
                began = t + 5_000 + 1_000 * index
                numbers = {"Sequence number": number, "Fwd thread id": 1}
                yield build.op(f"autograd::engine::evaluate_function: {node}Backward0", began, 1_000, **numbers)
                yield build.op(name, began, 1_000)
            yield build.annotation("Optimizer.step#SGD.step", t + 9_000, 500)

        return events

    def test_dropout_is_the_reason(self) -> None:
        finding, saved_us, places = the("AT002", self.step())
        assert saved_us == pytest.approx(0.9 * 3_000 - 4_000 / 6, rel=0.05)
        assert places == ["model.py:8"]
        assert "does not support dropout of the attention weights; this call has 0.1." in finding.fix.text
        assert finding.risk == "Trains without dropout of the attention weights"
        assert "takes 7.0 ms of each 10.0 ms step, 3.0 ms of it between the matmuls" in finding.why

    def test_its_backward_is_not_attention_of_the_script(self) -> None:
        assert silent("AT001", self.step())

    def test_the_backward_of_another_softmax_is(self) -> None:
        assert not silent("AT001", self.step(sequence=21))
        assert "takes 4.0 ms of each" in the("AT002", self.step(sequence=21))[0].why

    def test_without_a_reason_there_is_nothing_to_change(self) -> None:
        check, findings = answer("AT002", self.step(dropout="0."))
        assert not findings
        assert check.reason.endswith("takes 70% of the step. The trace does not show why.")

    def test_a_call_that_is_fused_passes(self) -> None:
        def step(t: float, _: int) -> Events:
            yield build.op(self.SDPA, t + 900, 4_000)
            yield build.op("aten::_scaled_dot_product_flash_attention_for_cpu", t + 900, 4_000)

        assert answer("AT002", step)[0].status == "passed"

    @pytest.mark.parametrize("odd", ["", "x", "[]"])
    def test_odd_inputs_are_no_dropout(self, odd: str) -> None:
        assert silent("AT002", self.step(dropout=odd))


class TestLogging:
    """LG001."""

    def test_images_that_every_step_writes(self) -> None:
        def step(t: float, _: int) -> Events:
            yield build.op("aten::mm", t, 5_000)
            yield build.python("vae.py(9): save_grid", t + 5_000, 4_000)
            yield build.python("PIL/Image.py(7): resize", t + 5_000, 1_000)
            yield build.python("PIL/Image.py(8): save", t + 6_000, 3_000)
            yield build.op("aten::mm", t + 9_000, 1_000)

        finding, saved_us, places = the("LG001", step)
        assert finding.title == "Save images every N steps, off the main thread"
        assert saved_us == pytest.approx(4_000, rel=0.05)
        assert places == ["vae.py:9"]
        assert silent("DL002", step)


class TestTinyOperators:
    """LB001."""

    def step(self, calls: int, us: float) -> Callable[[float, int], Events]:
        def events(t: float, _: int) -> Events:
            yield build.python("model.py(8): embed", t + 1_000, 6_000)
            for index in range(calls):
                yield build.op("aten::embedding", t + 1_000 + 30 * index, us)
            yield build.op("aten::mm", t + 8_000, 1_000)

        return events

    def test_many_at_one_line(self) -> None:
        finding, saved_us, places = the("LB001", self.step(calls=150, us=10))
        assert saved_us == pytest.approx(0.7 * 150 * 30, rel=0.05)  # with what lies between them
        assert (finding.title, places) == ("Batch many small operations into one", ["model.py:8"])
        assert "nn.Embedding" in (finding.fix.code or "")

    def test_small_layers_that_one_call_runs_are_no_loop(self) -> None:
        """As of nn.Sequential: each needs the result of the one before, so its parameters stay."""

        def step(t: float, _: int) -> Events:
            yield from self.step(calls=150, us=10)(t, 0)
            yield build.python("torch/nn/modules/container.py(250): forward", t + 1_000, 4_490)
            for index in range(150):
                begin = t + 5_500 + 10 * index
                yield build.op("autograd::engine::evaluate_function: EmbeddingBackward0", begin, 5)
                yield build.op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", begin + 6, 2)
            yield build.annotation("Optimizer.step#SGD.step", t + 9_100, 800)

        finding, saved_us, places = the("LB001", step)
        assert saved_us == pytest.approx(0.3 * 150 * (30 + 6), rel=0.05)
        assert finding.saving is not None
        assert finding.saving.low_us == 0
        assert (finding.confidence, places) == ("low", ["model.py:8"])
        assert "parameters" not in finding.why
        assert "many small layers" in finding.fix.text

    def test_parameters_of_their_own_go_with_the_loop(self) -> None:
        """Each of 150 tables has a parameter: autograd, zero_grad and the optimizer visit it."""

        def step(t: float, _: int, own: int = 150) -> Events:
            yield from self.step(calls=150, us=10)(t, 0)
            for index in range(150):
                begin = t + 5_500 + 10 * index
                yield build.op("autograd::engine::evaluate_function: EmbeddingBackward0", begin, 5)
                if index < own:
                    name = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
                    yield build.op(name, begin + 6, 2)
            yield build.annotation("Optimizer.zero_grad#SGD.zero_grad", t + 9_000, 100)
            yield build.annotation("Optimizer.step#SGD.step", t + 9_100, 800)
            yield build.op("aten::_fused_sgd_", t + 9_200, 500)

        finding, saved_us, _ = the("LB001", step)
        alone = the("LB001", lambda t, index: step(t, index, own=0))
        visits_us = 150 * 2 + 100 + 300  # not the fused operator
        assert saved_us == pytest.approx(0.7 * 150 * (30 + 6) + visits_us, rel=0.02)
        assert "150 of the 150 parameters" in finding.why
        assert "parameters" not in alone[0].why

    def test_the_operators_that_it_counts_are_named(self) -> None:
        def step(t: float, _: int) -> Events:
            yield build.python("model.py(8): embed", t, 9_000)
            for index in range(60):
                yield build.op("aten::add", t + 50 * index, 8)
                yield build.op("autograd::engine::evaluate_function: MulBackward0", t + 50 * index + 10, 8)
                yield build.op("aten::copy_", t + 50 * index + 20, 4)
                yield build.op("aten::sum", t + 50 * index + 30, 4)
            yield build.op("aten::add", t + 8_000, 8)

        finding = the("LB001", step)[0]
        assert "61 aten::add, 60 " in finding.why
        assert "60 MulBackward0" in finding.why
        assert "and others" in finding.why
        assert "compile the function that runs the loop" in finding.fix.text
        assert "nn.Embedding" not in (finding.fix.code or "")
        counted = {row.what: row.calls_per_step for row in finding.evidence}
        assert counted == {"aten::add": 61, "MulBackward0": 60, "aten::copy_": 60, "aten::sum": 60}

    @pytest.mark.parametrize(("else_us", "share", "code"), [(0, 0.9, "torch._foreach_"), (4_000, 0.7, "torch.compile")])
    def test_a_function_that_updates_tensors_one_by_one(self, else_us: int, share: float, code: str) -> None:
        """It takes 3 ms, and 4 ms more where it computes something else as well."""

        def step(t: float, _: int) -> Events:
            yield build.annotation("Optimizer.step#SGD.step", t, 400)
            yield build.python("ema.py(4): update", t + 500, 3_000 + else_us)
            for index in range(150):
                yield build.op("aten::mul", t + 500 + 20 * index, 5)
                yield build.op("aten::copy_", t + 510 + 20 * index, 5)
            if else_us:
                yield build.op("aten::mm", t + 3_500, else_us)

        finding, saved_us, places = the("LB001", step)
        assert saved_us == pytest.approx(share * 3_000, rel=0.05)
        assert places == ["ema.py:4"]
        assert ("update takes 3.0 ms" in finding.why) == (not else_us)
        assert "forward and backward" not in finding.why
        assert code in (finding.fix.code or "")

    def test_the_engines_own_nodes_are_no_lines(self) -> None:
        def step(t: float, _: int) -> Events:
            for index in range(300):
                name = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
                yield build.op(name, t + 10 * index, 9)
                yield build.op("aten::detach", t + 10 * index + 2, 4)

        assert silent("LB001", step)

    def test_few_or_longer_ones(self) -> None:
        assert silent("LB001", self.step(calls=60, us=10))
        assert silent("LB001", self.step(calls=110, us=50))

    @pytest.mark.parametrize(
        ("operator", "rows", "found"),
        [
            ("aten::relu", 8, True),
            ("aten::relu", 8_192, False),
            ("aten::add_", 8_192, False),
            ("aten::select", 8_192, True),
        ],
    )
    def test_arithmetic_on_many_elements_is_not_tiny(self, operator: str, rows: int, found: bool) -> None:
        """A view of a large tensor is."""

        def step(t: float, _: int) -> Events:
            yield build.python("model.py(8): render", t, 9_000)
            for index in range(150):
                yield build.op(operator, t + 50 * index, 25, **{"Input Dims": [[rows, 16], []]})

        assert silent("LB001", step) is not found

    def test_the_backward_pass_of_one_call_is_no_loop(self) -> None:
        """nn.GRU is one operator; its backward pass has nodes for each time step."""

        def step(t: float, _: int) -> Events:
            yield build.python("model.py(8): encode", t, 9_000)
            yield build.op("aten::gru", t, 3_000)
            for index in range(300):
                yield build.op("autograd::engine::evaluate_function: MulBackward0", t + 3_000 + 15 * index, 8)

        assert silent("LB001", step)

    @pytest.mark.parametrize("large", [False, True])
    def test_a_loop_of_many_lines_that_call_few(self, large: bool) -> None:
        """A decoder runs 30 times: each of five lines calls 30 tiny operators. They have to be much of the step."""

        def step(t: float, _: int) -> Events:
            for index in range(150):
                yield build.python(f"decoder.py({10 + index % 5}): line_{index % 5}", t + 50 * index, 48)
                yield build.op("aten::add", t + 50 * index, 8)
                if large:
                    yield build.op("aten::conv2d", t + 50 * index + 8, 40)

        if large:
            assert silent("LB001", step)
            return
        finding, _, places = the("LB001", step)
        assert finding.title == "Reduce the overhead of many small operations"
        assert "5 lines of a loop call 150 operators" in finding.why
        assert len(places) == 3

    def test_a_loop_that_one_operator_replaces_is_the_upper_end(self) -> None:
        """Each iteration calls two tiny operators and a larger one. What a step calls once is no loop."""

        def step(t: float, _: int) -> Events:
            for index in range(100):
                yield build.python("model.py(8): run", t + 60 * index, 20)
                yield build.op("aten::add", t + 60 * index, 8)
                yield build.op("aten::mul", t + 60 * index + 10, 8)
                yield build.python("model.py(8): run", t + 60 * index + 20, 40)
                yield build.op("aten::mm", t + 60 * index + 20, 40)
            yield build.op("aten::conv2d", t + 7_000, 2_000)

        finding, saved_us, _ = the("LB001", step)
        assert finding.saving is not None
        assert saved_us == pytest.approx(0.7 * 100 * 20, rel=0.05)
        assert finding.saving.high_us == pytest.approx(100 * 60, rel=0.05)
        assert "all lines of run that call as many operators go away (6.0 ms)" in finding.saving.basis

    @pytest.mark.parametrize(("rounds", "findings"), [(120, 1), (2, 2)])
    def test_lines_that_a_loop_runs_in_turn_are_one_finding(self, rounds: int, findings: int) -> None:
        """Two functions call 120 tiny operators each: one after the other, or in long runs."""

        def step(t: float, _: int) -> Events:
            length = 120 // rounds
            for turn in range(rounds):
                for half, name in enumerate(("model.py(8): route", "model.py(30): expert")):
                    begin = t + (2 * turn + half) * length * 30
                    yield build.python(name, begin, length * 30)
                    for index in range(length):
                        yield build.op("aten::add", begin + 30 * index, 10)
            yield build.op("aten::mm", t + 8_000, 1_000)

        found = answer("LB001", step)[1]
        assert len(found) == findings
        calls = "2 lines of a loop call 240" if findings == 1 else "One line calls 120"
        assert all(finding.why.startswith(calls) for finding in found)
        assert {str(place) for finding in found for place in finding.locations} == {"model.py:8", "model.py:30"}
        total_us = sum(finding.saving.est_us for finding in found if finding.saving is not None)
        assert total_us == pytest.approx(0.7 * 240 * 30, rel=0.05)

    def test_the_profiler_makes_no_operator_large(self) -> None:
        """Steps are 3 ms longer with the profiler, which runs at the start of each of the events."""
        ledger = {
            "step_us": [7_000.0] * 20 + [10_000.0] * STEPS,
            "windows": [{"cycle": "timing", "warmup_from": 20, "from": 20, "until": 20 + STEPS}],
        }
        traceopt = {"cycle": {"name": "timing"}, "environment": {"torch": "2"}, "ledger": ledger}

        def step(t: float, _: int) -> Events:
            yield build.python("model.py(8): embed", t, 9_000)
            for index in range(150):
                yield build.op("aten::embedding", t + 40 * index, 36)
                for inner in range(9):
                    yield build.op("aten::empty", t + 40 * index + 1 + 3 * inner, 2)

        assert answer("LB001", step)[1] == []
        assert answer("LB001", step, traceopt=traceopt)[1] != []

    def test_what_comes_between_two_of_them_is_another_work(self) -> None:
        def step(t: float, _: int) -> Events:
            yield build.python("model.py(8): embed", t, 9_000)
            for index in range(120):
                yield build.op("aten::embedding", t + 10 * index, 8)
            yield build.op("aten::embedding", t + 7_000, 8)  # 6 ms later

        assert the("LB001", step)[1] == pytest.approx(0.7 * (119 * 10 + 2 * 38), rel=0.05)

    def test_a_call_that_lost_its_core_is_one_of_them(self) -> None:
        def step(t: float, _: int) -> Events:
            yield build.python("model.py(8): embed", t, 9_000)
            for index in range(120):
                yield build.op("aten::embedding", t + 10 * index, 10)
            yield build.op("aten::embedding", t + 1_200, 1_000)

        assert the("LB001", step)[1] == pytest.approx(0.7 * (120 * 10 + 1_000), rel=0.05)


class TestSlowLineOfADataSet:
    """DL001 names the deepest line that holds most of the loading."""

    def step(self, sleep_us: float, library: str = "numpy/rec.py") -> Callable[[float, int], Events]:
        def events(t: float, _: int) -> Events:
            yield build.python("torch/utils/data/dataloader.py(720): __next__", t, 5_000)
            yield build.python("data.py(7): __getitem__", t + 100, 4_600)
            yield build.python("data.py(11): augment", t + 200, 4_400)
            yield build.python(f"{library}(3): decode", t + 300, sleep_us)
            yield build.python("<built-in function sort>", t + 4_300, 200)
            yield build.op("aten::mm", t + 6_000, 3_000)

        return events

    def lines(self, of_call: int) -> dict[str, object]:
        """Of the six Python events of each step, the last four have the line of their call."""
        count = 6 * STEPS
        rows = [row for row in range(count) if row % 6 in (2, 3, 4, 5)]
        lines = {2: 8, 3: 9, 4: of_call, 5: of_call + 1}
        return {"call_lines": {"count": count, "rows": rows, "lines": [lines[row % 6] for row in rows]}}

    def test_the_call_that_takes_most(self) -> None:
        _, [finding] = answer("DL001", self.step(sleep_us=3_500), traceopt=self.lines(of_call=13))
        assert finding.why.endswith(" 70% of the loading is at data.py:13.")
        assert "data.py:13" in [str(place) for place in finding.locations]

    @pytest.mark.parametrize(("library", "said"), [("pandas/core/series.py", True), ("numpy/rec.py", False)])
    def test_a_table_that_is_looked_up_row_by_row(self, library: str, said: bool) -> None:
        _, [finding] = answer("DL001", self.step(3_500, library), traceopt=self.lines(of_call=13))
        assert ("convert the columns to arrays or tensors once" in finding.fix.text) is said

    def test_the_line_where_a_function_begins_is_no_slow_line(self) -> None:
        _, [finding] = answer("DL001", self.step(sleep_us=3_500))
        assert finding.why.endswith(" 88% of the loading is in augment.")

    def test_time_that_is_spread(self) -> None:
        """No call in augment() takes most of it."""
        _, [finding] = answer("DL001", self.step(sleep_us=1_000), traceopt=self.lines(of_call=13))
        assert "of the loading is at" not in finding.why
        assert [(row.what, str(row.location)) for row in finding.evidence][-2:] == [
            ("numpy/rec.py(3): decode", "data.py:13"),
            ("<built-in function sort>", "data.py:14"),
        ]


class TestOtherDevices:
    """A rule that cannot apply to the device of a run does not ask for another recording of it."""

    CPU_RULES = ("CP001", "CP002", "CP003", "CP004", "CP005", "CP006", "EF004")

    @pytest.mark.parametrize("code", CPU_RULES)
    def test_rules_for_the_cpu_do_not_apply_to_a_gpu(self, code: str) -> None:
        """The trace has neither shapes nor the settings of the run, which all of them lack."""

        def step(t: float, index: int) -> Events:
            yield build.op("aten::mm", t, 1_000)
            yield build.runtime("cudaLaunchKernel", t + 100, 10, index + 1)
            yield build.kernel("gemm", t + 200, 5_000, index + 1)

        check, _ = answer(code, step)
        assert (check.status, check.reason) == ("not_applicable", "This run uses a GPU.")

    @pytest.mark.parametrize("code", ["RH001", "RH002"])
    def test_samples_of_a_gpu_do_not_apply_to_the_cpu(self, code: str) -> None:
        def step(t: float, _: int) -> Events:
            yield build.op("aten::mm", t, 9_000)

        check, _ = answer(code, step)
        assert (check.status, check.reason) == ("not_applicable", "This run uses no GPU.")
