"""Rules on a run without a GPU: what the main thread does is the cost, in traces made by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.cpu_steps import STEPS, Events, cpu_answer, silent, the

from traceopt.analyzer.facts import Facts
from traceopt.result.experiments import Compared, Comparison, Lookup
from traceopt.testing import events as build


class TestTinyOperators:
    """LB002."""

    def step(self, calls: int, us: float) -> Callable[[float, int], Events]:
        def events(t: float, _: int) -> Events:
            yield build.python("model.py(8): embed", t + 1_000, 6_000)
            for index in range(calls):
                yield build.op("aten::embedding", t + 1_000 + 30 * index, us)
            yield build.op("aten::mm", t + 8_000, 1_000)

        return events

    def test_many_at_one_line(self) -> None:
        finding, saved_us, places = the("LB002", self.step(calls=150, us=10))
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

        finding, saved_us, places = the("LB002", step)
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

        finding, saved_us, _ = the("LB002", step)
        alone = the("LB002", lambda t, index: step(t, index, own=0))
        visits_us = 150 * 2 + 100 + 300  # not the fused operator
        assert saved_us == pytest.approx(0.7 * 150 * (30 + 6) + visits_us, rel=0.02)
        assert "150 of the 150 parameters" in finding.why
        assert "parameters" not in alone[0].why

    def test_gradients_of_tables_count_if_they_are_no_tiny_operators(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """On a slow core the gradient of a small table takes 50 us. The loop is no update of untrained tensors."""

        def step(t: float, number: int) -> Events:
            yield build.annotation("Optimizer.step#SGD.step", t + 9_900, 50)
            yield build.python("model.py(8): embed", t + 500, 3_000)
            shapes = {"Input Dims": [[100, 8], [64]]}
            gradient = {
                "Input Dims": [[64, 8], [64], [], [], []],
                "Concrete Inputs": ["", "", "100", "-1", "False"],
                "Input type": ["float", "long int"],
            }
            for index in range(100):
                link, begin = {"Sequence number": 1000 * number + index}, t + 4_000 + 55 * index
                node = "autograd::engine::evaluate_function: EmbeddingBackward0"
                yield build.op("aten::embedding", t + 500 + 30 * index, 10, **link, **{"Fwd thread id": 0}, **shapes)
                yield build.op(node, begin, 50, **link, **{"Fwd thread id": 1})
                yield build.op("aten::embedding_dense_backward", begin + 2, 45, **gradient)
            join = {"Sequence number": 1000 * number + 100}  # of the results, which then are those of one table
            yield build.op("aten::cat", t + 3_500, 300, **join, **{"Fwd thread id": 0})
            cat = "autograd::engine::evaluate_function: CatBackward0"
            yield build.op(cat, t + 3_850, 140, **join, **{"Fwd thread id": 1})

        finding, saved_us, _ = the("LB002", step)
        assert "100 aten::embedding" in finding.why
        assert "forward and backward" in finding.why
        assert "nn.Embedding" in (finding.fix.code or "")
        time_us = 100 * (30 + 55) + 300 + 140
        assert saved_us == pytest.approx(0.7 * time_us, rel=0.01)
        now = Lookup(100, 100, 8, 64, "fp32")
        comparison = Comparison(now, Lookup(1, 10_000, 8, 6_400, "fp32"))
        assert finding.saving is not None
        assert finding.saving.experiments == (comparison,)
        for before_us, after_us, left_us in ((10_000, 2_000, time_us / 5), (5_000, 1_000, 1_000)):
            answer = Compared(comparison, before_us * 1e3, after_us * 1e3, 0.0)
            monkeypatch.setattr(Facts, "compared", {comparison: answer})
            assert the("LB002", step)[1] == pytest.approx(time_us - left_us, rel=0.01)

    def test_the_operators_that_it_counts_are_named(self) -> None:
        def step(t: float, _: int) -> Events:
            yield build.python("model.py(8): embed", t, 9_000)
            for index in range(60):
                yield build.op("aten::add", t + 50 * index, 8)
                yield build.op("autograd::engine::evaluate_function: MulBackward0", t + 50 * index + 10, 8)
                yield build.op("aten::copy_", t + 50 * index + 20, 4)
                yield build.op("aten::sum", t + 50 * index + 30, 4)
            yield build.op("aten::add", t + 8_000, 8)

        finding = the("LB002", step)[0]
        assert "61 aten::add, 60 " in finding.why
        assert "60 MulBackward0" in finding.why
        assert "and others" in finding.why
        assert "Compiling the function that runs the loop may help as well, or make it slower" in finding.fix.text
        assert finding.confidence == "low"
        assert "nn.Embedding" not in (finding.fix.code or "")
        counted = {row.what: row.calls_per_step for row in finding.evidence}
        assert counted == {"aten::add": 61, "MulBackward0": 60, "aten::copy_": 60, "aten::sum": 60}

    @pytest.mark.parametrize(("else_us", "share", "code"), [(0, 0.9, "torch._foreach_"), (4_000, 0.3, "torch.stack")])
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

        finding, saved_us, places = the("LB002", step)
        assert saved_us == pytest.approx(share * 3_000, rel=0.05)
        assert places == ["ema.py:4"]
        assert ("update takes 3.0 ms" in finding.why) == (not else_us)
        assert "forward and backward" not in finding.why
        assert code in (finding.fix.code or "")

    def test_what_numpy_computes_in_the_function_stays(self) -> None:
        def step(t: float, _: int) -> Events:
            yield build.annotation("Optimizer.step#SGD.step", t, 400)
            yield build.python("watch.py(4): watch", t + 500, 6_000)
            for index in range(150):
                yield build.op("aten::mul", t + 500 + 40 * index, 5)
                yield build.python("numpy/lib/_histograms_impl.py(685): histogram", t + 510 + 40 * index, 20)

        finding, saved_us, _ = the("LB002", step)
        assert "watch takes 3.0 ms" in finding.why
        assert saved_us == pytest.approx(0.9 * 3_000, rel=0.05)

    @pytest.mark.parametrize(
        ("operators", "code"),
        [
            (("aten::mul_", "aten::add_"), "torch._foreach_lerp_"),
            (("aten::linalg_vector_norm", "aten::item"), "clip_grad_norm_"),
        ],
    )
    @pytest.mark.parametrize("weights", [150, 60])
    def test_a_loop_over_the_weights_is_named(self, operators: tuple[str, str], code: str, weights: int) -> None:
        """150 rounds; the model has as many weights, or others."""

        def step(t: float, _: int) -> Events:
            yield build.annotation("Optimizer.step#SGD.step", t, 400)
            for index in range(weights):
                name = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
                yield build.op(name, t + 500 + 5 * index, 3)
            yield build.python("train.py(4): visit", t + 2_000, 3_000)
            for index in range(150):
                for place, operator in enumerate(operators):
                    yield build.op(operator, t + 2_000 + 20 * index + 10 * place, 5)

        finding, _, _ = the("LB002", step)
        assert ("It is a loop over the 150 weights of the model." in finding.why) == (weights == 150)
        assert (finding.title == "Treat all weights in one call instead of a loop") == (weights == 150)
        assert weights != 150 or code in (finding.fix.code or "")

    @pytest.mark.parametrize(
        ("other", "first"), [((), "Build the tensor of filterbank() at once"), (("aten::mul",), "Batch many small")]
    )
    def test_a_function_that_writes_elements_is_told_to_build_its_tensor_at_once(
        self, other: tuple[str, ...], first: str
    ) -> None:
        """Only where it does nothing else."""

        def step(t: float, _: int) -> Events:
            yield build.annotation("Optimizer.step#SGD.step", t, 400)
            yield build.python("mel.py(4): filterbank", t + 500, 4_000)
            for index in range(150):
                for place, operator in enumerate(("aten::select", "aten::lift_fresh", "aten::copy_", *other)):
                    yield build.op(operator, t + 500 + 26 * index + 6 * place, 3)

        finding, _, places = the("LB002", step)
        assert finding.title.startswith(first)
        assert places == ["mel.py:4"]
        assert "filterbank takes 3.9 ms" in finding.why or "filterbank takes 4.0 ms" in finding.why
        assert ("register_buffer" in finding.fix.text) == (not other)
        assert ("item by item" in finding.fix.text) == bool(other)
        assert "batch" not in finding.risk_words

    def test_the_engines_own_nodes_are_no_lines(self) -> None:
        def step(t: float, _: int) -> Events:
            for index in range(300):
                name = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
                yield build.op(name, t + 10 * index, 9)
                yield build.op("aten::detach", t + 10 * index + 2, 4)

        assert silent("LB002", step)

    def test_few_or_longer_ones(self) -> None:
        assert silent("LB002", self.step(calls=60, us=10))
        assert silent("LB002", self.step(calls=110, us=50))

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

        assert silent("LB002", step) is not found

    def test_the_backward_pass_of_one_call_is_no_loop(self) -> None:
        """nn.GRU is one operator; its backward pass has nodes for each time step."""

        def step(t: float, _: int) -> Events:
            yield build.python("model.py(8): encode", t, 9_000)
            yield build.op("aten::gru", t, 3_000)
            for index in range(300):
                yield build.op("autograd::engine::evaluate_function: MulBackward0", t + 3_000 + 15 * index, 8)

        assert silent("LB002", step)

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
            assert silent("LB002", step)
            return
        finding, _, places = the("LB002", step)
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

        finding, saved_us, _ = the("LB002", step)
        assert finding.saving is not None
        assert saved_us == pytest.approx(0.3 * 100 * 20, rel=0.05)
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

        found = cpu_answer("LB002", step)[1]
        assert len(found) == findings
        calls = "2 lines of a loop call 240" if findings == 1 else "One line calls 120"
        assert all(finding.why.startswith(calls) for finding in found)
        assert {str(place) for finding in found for place in finding.locations} == {"model.py:8", "model.py:30"}
        total_us = sum(finding.saving.est_us for finding in found if finding.saving is not None)
        assert total_us == pytest.approx(0.3 * 240 * 30, rel=0.05)

    def test_rounds_that_read_values_wait_for_each_other(self) -> None:
        """A solver with an adaptive step, or an environment: nothing is promised for stacking or compiling."""

        def step(t: float, _: int, reads: int = 50) -> Events:
            yield build.python("ode.py(8): solve", t, 9_000)
            for index in range(150):
                yield build.op("aten::add", t + 50 * index, 20)
                if index < reads:
                    yield build.op("aten::_local_scalar_dense", t + 50 * index + 30, 5)

        _, [finding] = cpu_answer("LB002", step)
        assert (finding.saving, finding.confidence) == (None, "low")
        assert "The host reads values between the rounds" in finding.why
        assert "can be one call on stacked inputs" in finding.fix.text
        assert the("LB002", lambda t, index: step(t, index, reads=1))[0].saving is not None  # the loss

    def test_a_loop_over_the_items_of_a_tensor_is_told_of_operators_on_all_of_it(self) -> None:
        """As of a matrix of confusions that is counted pixel by pixel."""

        def step(t: float, _: int) -> Events:
            yield build.python("metric.py(8): confusion", t, 6_000)
            for index in range(100):
                yield build.op("aten::select", t + 60 * index, 10)
                yield build.op("aten::add_", t + 60 * index + 20, 10)
            yield build.op("autograd::engine::evaluate_function: AddmmBackward0", t + 7_000, 2_000)
            yield build.annotation("Optimizer.step#SGD.step", t + 9_100, 500)

        finding, _, _ = the("LB002", step)
        assert "bincount" in (finding.fix.code or "")
        assert "foreach" not in finding.fix.text

    @pytest.mark.parametrize("decides", [False, True])
    def test_rounds_that_decide_may_need_each_other(self, decides: bool) -> None:
        """As those that mine triplets or suppress boxes, without gradients; not those of a metric for each class."""

        def step(t: float, _: int) -> Events:
            yield build.python("mine.py(8): mine", t, 6_000)
            for index in range(50):
                place = {"Input Dims": [[64, 32], [], []], "Concrete Inputs": ["", "0", str(index)]}
                yield build.op("aten::select", t + 100 * index, 20, **place)
                yield build.op("aten::sub", t + 100 * index + 30, 20)
                yield build.op("aten::norm", t + 100 * index + 60, 20)
                if decides:
                    yield build.op("aten::is_nonzero", t + 100 * index + 85, 10)
                yield build.op("aten::_local_scalar_dense", t + 100 * index + 87, 5)
            yield build.op("autograd::engine::evaluate_function: AddmmBackward0", t + 7_000, 2_000)
            yield build.annotation("Optimizer.step#SGD.step", t + 9_100, 500)

        finding, _, _ = the("LB002", step)
        assert finding.saving is not None
        assert (finding.confidence == "low", "into a mask" in finding.fix.text) == (decides, decides)
        assert (finding.saving.low_us == 0) is decides

    @pytest.mark.parametrize("chooses", [False, True])
    def test_rounds_that_choose_what_the_next_one_picks_need_each_other(self, chooses: bool) -> None:
        """As those of farthest point sampling; not those of an average that is updated tensor by tensor."""

        def step(t: float, _: int) -> Events:
            yield build.python("sample.py(8): farthest", t, 6_000)
            for index in range(50):
                yield build.op("aten::index" if chooses else "aten::mul_", t + 100 * index, 20)
                yield build.op("aten::sub", t + 100 * index + 30, 20)
                yield build.op("aten::max" if chooses else "aten::add_", t + 100 * index + 60, 20)
            yield build.op("autograd::engine::evaluate_function: AddmmBackward0", t + 7_000, 2_000)
            yield build.annotation("Optimizer.step#SGD.step", t + 9_100, 500)

        finding, _, _ = the("LB002", step)
        assert finding.saving is not None
        assert (finding.saving.low_us == 0) is chooses
        assert ("foreach" in finding.fix.text) is not chooses

    @pytest.mark.parametrize("policy", [False, True])
    def test_rounds_that_read_values_of_ever_other_items_may_be_independent(self, policy: bool) -> None:
        """As a loss over pairs with an `if`; not as a policy that fills a buffer."""

        def step(t: float, _: int) -> Events:
            yield build.python("loss.py(8): pairs", t, 9_000)
            for index in range(50):
                place = {"Input Dims": [[64, 32], [], []], "Concrete Inputs": ["", "0", str(index)]}
                yield build.op("aten::select", t + 150 * index, 20, **place)
                yield build.op("aten::linear" if policy else "aten::sub", t + 150 * index + 50, 20)
                yield build.op("aten::norm", t + 150 * index + 100, 20)
                yield build.op("aten::_local_scalar_dense", t + 150 * index + 130, 5)

        _, [finding] = cpu_answer("LB002", step)
        assert (finding.saving is None) is policy
        assert finding.confidence == "low"
        if finding.saving is not None:
            assert finding.title == "Batch the rounds of a loop, if they are independent"
            assert (finding.saving.low_us, finding.saving.high_us) == (0, pytest.approx(50 * 140, rel=0.1))
            assert "into a mask" in finding.fix.text

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

        assert cpu_answer("LB002", step)[1] == []
        assert cpu_answer("LB002", step, traceopt=traceopt)[1] != []

    def test_what_comes_between_two_of_them_is_another_work(self) -> None:
        def step(t: float, _: int) -> Events:
            yield build.python("model.py(8): embed", t, 9_000)
            for index in range(120):
                yield build.op("aten::embedding", t + 10 * index, 8)
            yield build.op("aten::embedding", t + 7_000, 8)  # 6 ms later

        assert the("LB002", step)[1] == pytest.approx(0.7 * (119 * 10 + 2 * 38), rel=0.05)

    def test_a_call_that_lost_its_core_is_one_of_them(self) -> None:
        def step(t: float, _: int) -> Events:
            yield build.python("model.py(8): embed", t, 9_000)
            for index in range(120):
                yield build.op("aten::embedding", t + 10 * index, 10)
            yield build.op("aten::embedding", t + 1_200, 1_000)

        assert the("LB002", step)[1] == pytest.approx(0.7 * (120 * 10 + 1_000), rel=0.05)


class TestOtherDevices:
    """A rule that cannot apply to the device of a run does not ask for another recording of it."""

    CPU_RULES = ("CP002", "CP004", "CP006")

    @pytest.mark.parametrize("code", CPU_RULES)
    def test_rules_for_the_cpu_do_not_apply_to_a_gpu(self, code: str) -> None:
        """The trace has neither shapes nor the settings of the run, which all of them lack."""

        def step(t: float, index: int) -> Events:
            yield build.op("aten::mm", t, 1_000)
            yield build.runtime("cudaLaunchKernel", t + 100, 10, index + 1)
            yield build.kernel("gemm", t + 200, 5_000, index + 1)

        check, _ = cpu_answer(code, step)
        assert (check.status, check.reason) == ("not_applicable", "This run uses a GPU.")

    @pytest.mark.parametrize("code", ["RH001", "RH002"])
    def test_samples_of_a_gpu_do_not_apply_to_the_cpu(self, code: str) -> None:
        def step(t: float, _: int) -> Events:
            yield build.op("aten::mm", t, 9_000)

        check, _ = cpu_answer(code, step)
        assert (check.status, check.reason) == ("not_applicable", "This run uses no GPU.")
