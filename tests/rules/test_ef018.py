"""EF018 index-backward: pick rows with index_select."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace
from support.findings import found, saving_of
from support.gpu_steps import steps
from support.planted import PlantedFault

from traceopt.analyzer.autograd.row_gradients import UNKNOWN_DIM, _indexed_dim
from traceopt.analyzer.facts import Facts
from traceopt.result.experiments import Compared, Comparison, RowGradient
from traceopt.rules.savings.known_error import ERROR_ON_CPU
from traceopt.testing import Machine
from traceopt.testing.events import Json, kernel, op, python, runtime

EVALUATE = "autograd::engine::evaluate_function: "
TABLE, ROWS = [65536, 32], [400000, 32]


class TestIndexBackward(PlantedFault):
    code = "EF018"


def embedding(
    threads: int | None = 1, padding: str = "-1", backward_us: float = 6_000, kind: str = "float", rows: int = 2_000
) -> Facts:
    """A run on the CPU that looks rows up; its backward is linked by its sequence number."""
    settings = {"environment": {"threads": threads}} if threads else {}
    machine = Machine(with_stack=1, record_shapes=1, traceopt={"version": 1, **settings})
    for number in range(3):
        with machine.step():
            with machine.python("model.py(9): forward"):
                ids = {"Sequence number": number, "Fwd thread id": 0, "Input Dims": [TABLE, [9]]}
                machine.work(300, "aten::embedding", **ids)
            start = machine.now
            machine.idle(1)
            values = {"Concrete Inputs": ["", "", str(rows), padding, "False"], "Input type": [kind, "long int"]}
            machine.work(
                backward_us, "aten::embedding_dense_backward", **{"Input Dims": [ROWS, [9], [], [], []], **values}
            )
            machine.idle(1)
            node = f"{EVALUATE}EmbeddingBackward0"
            linked = {"Sequence number": number, "Fwd thread id": 1}
            machine.events.append(op(node, start, machine.now - start, **linked))
            machine.work(3_000, "aten::mm", **{"Input Dims": [[64, 64], [64, 64]], "Input type": ["float", "float"]})
    return machine.facts()


class TestOnTheCpu:
    def test_the_saving_follows_from_picking_the_rows(self) -> None:
        (finding,) = found("EF018", embedding())
        saving = saving_of(finding)
        assert (saving.low_us, saving.est_us) == pytest.approx(((1 - ERROR_ON_CPU) * 5_100, 5_100), rel=0.02)
        assert [str(place) for place in finding.locations] == ["model.py:9"]
        assert "table.weight.index_select" in (finding.fix.code or "")

    def test_both_ways_measured_tell_the_saving(self, monkeypatch: pytest.MonkeyPatch) -> None:
        now = RowGradient(2_000, 32, 400_000, "fp32", "embedding")
        comparison = Comparison(now, replace(now, picked_by="index_select"))
        asked = saving_of(found("EF018", embedding())[0]).experiments
        assert asked == (comparison,)
        monkeypatch.setattr(Facts, "compared", {comparison: Compared(comparison, 4e6, 1e6, 0.0)})
        saving = saving_of(found("EF018", embedding())[0])
        assert saving.est_us == pytest.approx(0.75 * 6_000, rel=0.001)
        assert "easured on this device" in saving.basis

    def test_the_additions_use_one_of_the_threads(self) -> None:
        (finding,) = found("EF018", embedding(threads=4))
        assert saving_of(finding).est_us == pytest.approx(6_000 - 4 * 900, rel=0.02)

    @pytest.mark.parametrize(
        "other",
        [
            {"backward_us": 950},
            {"threads": 8},
            {"threads": None},
            {"padding": "0"},
            {"rows": 1_000_000},
            {"kind": "c10::BFloat16"},
        ],
    )
    def test_silent_where_index_select_may_be_no_faster(self, other: dict[str, Any]) -> None:
        assert found("EF018", embedding(**other)) == []

    def test_silent_on_assignments(self) -> None:
        machine = Machine(with_stack=1)
        for _ in range(3):
            with machine.step(), machine.python("model.py(9): forward"):
                machine.work(5_000, "aten::index_put_", **{"Input Dims": [TABLE, [], ROWS, []]})
        assert found("EF018", machine.facts()) == []


class TestWithoutLinks:
    """A backward pass that only its kernel shows, on the thread of the forward pass."""

    @staticmethod
    def events(*lines: int) -> Iterator[Json]:
        sizes = {"Input Dims": [TABLE, [[400000]]], "Input type": ["float", "TensorList"]}
        for number, line in enumerate(lines, 1):
            yield op("aten::index", 100 * number, 20, **sizes)
            yield python(f"train.py({line}): forward", 100 * number, 20)
            yield runtime("cudaLaunchKernel", 100 * number + 5, 2, number)
            yield kernel("index_elementwise_kernel", 100 * number + 20, 80, number)
        yield op(
            "aten::_index_put_impl_",
            1_000,
            50,
            **{"Input Dims": [TABLE, [[400000]], ROWS, [], []], "Input type": ["float", "TensorList", "float"]},
        )
        yield runtime("cudaLaunchKernel", 1_010, 2, 9)
        yield kernel("void at::native::indexing_backward_kernel<float, 4>(...)", 1_100, 8_500, 9)
        yield runtime("cudaDeviceSynchronize", 1_200, 8_405, 10)

    def test_the_line_is_that_of_the_only_indexing_of_these_sizes(self) -> None:
        (finding,) = found("EF018", steps(list(self.events(21))))
        assert [str(place) for place in finding.locations] == ["train.py:21"]
        assert finding.saving is not None

    def test_of_two_lines_none_is_named(self) -> None:
        (finding,) = found("EF018", steps(list(self.events(21, 34))))
        assert (finding.locations, finding.saving) == ([], None)


@pytest.mark.parametrize(
    ("whole", "picked", "dim"),
    [
        ([100, 8], [40, 8], 0),
        ([100, 8], [5, 40, 8], 0),
        ([100], [70], 0),
        ([8, 50, 4], [8, 20, 4], 1),
        ([8, 50, 4], [3, 4], UNKNOWN_DIM),
        ([8, 50, 4], [4, 20, 2], UNKNOWN_DIM),
    ],
)
def test_sizes_tell_the_dimension(whole: list[int], picked: list[int], dim: int) -> None:
    assert _indexed_dim(f"[{whole}, [], {picked}, [], []]") == dim
