"""Rules on the model's work of a CPU-only run: what its operators reach, and what the CPU could do better."""

from __future__ import annotations

import pytest
from support.cpu_work import convolution, facts, matmul

from traceopt.document.efficiency import cpu_lever, kind_of_work
from traceopt.document.rank_document import rank_document
from traceopt.document.tables import tables
from traceopt.reports.html.page import render_html
from traceopt.result.words.message import plain
from traceopt.rules.engine import run_rules
from traceopt.testing import events as build


class TestOperatorInALoop:
    """The verdict's words on an operator that a loop over classes calls, for logits of one size."""

    def said(self, *between: build.Json, name: str = "aten::_softmax", sizes: int = 1) -> str:
        calls = [
            build.op(name, 1_000 + 1_500 * call, 1_000, **{"Input Dims": [[8, 24 + call % sizes, 4_096], [], []]})
            for call in range(5)
        ]
        return kind_of_work(facts(matmul(0, 500), *calls, *between))

    def test_it_may_be_needed_only_once(self) -> None:
        assert "_softmax, 5 times for the same sizes. Once is enough if its input is the same" in self.said()

    def test_layers_or_other_sizes_are_other_inputs(self) -> None:
        assert "_softmax" in self.said(sizes=2)
        assert "Once" not in self.said(sizes=2)
        assert "Once" not in self.said(matmul(2_100, 200))
        assert "Once" not in self.said(name="aten::copy_")


class TestLever:
    """What the verdict says of a run without a fix."""

    def test_other_operators_can_be_fused(self) -> None:
        said = cpu_lever(facts(matmul(0, 4_500), build.op("aten::gelu", 4_600, 5_000)))
        assert "torch.compile fuses such operators" in said
        assert "mostly gelu" in said

    def test_matmuls_below_the_peak_may_be_too_small(self) -> None:
        assert "a larger batch" in cpu_lever(facts(matmul(0, 9_900)))

    def test_full_batch_training_has_no_larger_batch(self) -> None:
        said = cpu_lever(facts(matmul(0, 9_700), build.annotation("Optimizer.step#SGD.step", 9_800, 100)))
        assert "another shape, dtype or number of threads" in said
        assert "batch" not in said

    def test_no_compiler_for_what_is_differentiated_twice(self) -> None:
        again = build.op("autograd::engine::evaluate_function: TanhBackwardBackward0", 9_700, 100)
        said = cpu_lever(facts(matmul(0, 4_500), build.op("aten::gelu", 4_600, 5_000), again))
        assert "torch.compile" not in said

    @pytest.mark.parametrize("name", ["fill_", "scatter_add_", "copy_", "sum"])
    def test_no_compiler_fuses_what_is_not_pointwise(self, name: str) -> None:
        said = cpu_lever(facts(matmul(0, 4_500), build.op(f"aten::{name}", 4_600, 5_000)))
        assert said.endswith(f"of it: mostly {name}.")

    def test_convolutions_of_images_have_another_layout(self) -> None:
        said = cpu_lever(facts(convolution(0, 9_900)))
        assert said.startswith(" Convolutions below the measured peak")
        assert said.endswith("channels_last may make them faster.")

    def test_small_operators_are_counted(self) -> None:
        calls = [build.op("aten::add", 4_600 + 25 * call, 20) for call in range(200)]
        said = plain(cpu_lever(facts(matmul(0, 4_500), *calls)))
        assert said.startswith(" 200 small operators take 4.0 ms of it")

    def test_where_cores_are_lacking_only_small_operators_are_said(self) -> None:
        small = [build.op("aten::add", 4_600 + 25 * call, 20) for call in range(200)]
        assert "200 small operators" in plain(cpu_lever(facts(matmul(0, 4_500), *small), crowded=True))
        assert cpu_lever(facts(matmul(0, 4_500), build.op("aten::gelu", 4_600, 5_000)), crowded=True) == ""
        assert cpu_lever(facts(matmul(0, 9_900)), crowded=True) == ""

    def test_operators_of_the_data_loading_are_not_the_models(self) -> None:
        batch = build.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 3_000)
        said = cpu_lever(
            facts(batch, build.op("aten::stft", 10, 2_900), matmul(3_000, 3_500), build.op("aten::gelu", 6_600, 3_000))
        )
        assert "gelu" in said
        assert "stft" not in said

    def test_at_the_peak_nothing_is_left(self) -> None:
        assert cpu_lever(facts(matmul(0, 4_500), matmul(4_600, 4_500))) == ""


class TestReport:
    def test_operators_with_their_rates(self) -> None:
        found = tables.cpu(facts(matmul(0, 5_000), build.op("aten::gelu", 6_000, 1_000)))
        assert found is not None
        [row] = found.operators
        assert (row.name, row.dtype, row.calls_per_step) == ("aten::mm", "fp32", 1.0)
        assert row.gflops_per_s == pytest.approx(400)
        assert row.peak_share == pytest.approx(0.8)
        assert row.share == pytest.approx(0.5)

    def test_a_peak_that_the_run_exceeds_is_not_its_peak(self) -> None:
        found = tables.cpu(facts(matmul(0, 2_000)))
        assert found is not None
        assert found.operators[0].peak_share is None
        assert not found.rates

    def test_a_table_in_the_page_and_the_share_in_the_verdict(self) -> None:
        traced = facts(matmul(0, 9_900))
        document = rank_document(traced, run_rules([], traced))
        assert "at 40% of the measured peak" in document.verdict
        page = render_html(document, static=True)
        assert '<h2 id="gemms">Matmuls, convolutions and attention</h2>' in page
        assert "fp32 matmul" in page

    def test_without_shapes_there_is_none(self) -> None:
        assert tables.cpu(facts(build.op("aten::mm", 0, 5_000))) is None
