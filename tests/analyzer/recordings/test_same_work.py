"""Shapes of the detail cycle say something about the times of the timing cycle only where both work on equal sizes."""

from __future__ import annotations

import pytest

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.recordings.joined_cycles import join_cycles
from traceopt.document.tables import tables
from traceopt.testing.events import op, read
from traceopt.testing.machine import A100, Machine

GEMM = "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x64"
HALF = ["c10::Half", "c10::Half"]
WIDTH = 4096
LONG = 8192  # rows of the batch of the detail cycle
FORWARD, GRADIENT, UPDATE = "aten::addmm", "aten::mm", "aten::_fused_adam_"


def product_us(rows: float) -> float:
    """Of rows x WIDTH x WIDTH at 80 % of the peak."""
    return 2 * rows * WIDTH**2 / (0.8 * 312e12) * 1e6


def cycle(*batches: int, shapes: bool = False, varying_us: float = 0.0) -> Machine:
    """A step for each batch: a product of it, the gradient of its weight, and the update, which is always the same."""
    machine = Machine(A100)

    def run(name: str, us: float, dims: list[list[int]], **launch: list[int]) -> None:
        start = machine.now
        machine.launch(us, name=GEMM, block=[128, 1, 1], **launch)
        sizes = {"Input Dims": dims, "Input type": HALF} if shapes else {}
        machine.events.append(op(name, start, machine.now - start, **sizes))

    for rows in batches:
        with machine.step():
            weight = [WIDTH, WIDTH]
            run(FORWARD, product_us(rows), [[WIDTH], [rows, WIDTH], weight], grid=[rows // 128, 32, 1])
            run(GRADIENT, product_us(rows), [[WIDTH, rows], [rows, WIDTH]], grid=[32, 32, 1])
            run(UPDATE, 100, [weight], grid=[WIDTH, 1, 1])
            if varying_us:
                run("aten::nonzero", varying_us, [[rows]], grid=[int(varying_us), 1, 1])
            machine.synchronize()
    return machine


def joined(timing: Machine, detail: Machine) -> Facts:
    return Facts(join_cycles(read(timing.to_bytes()), read(detail.to_bytes())))


def sized(facts: Facts) -> set[str]:
    """The operators whose shapes fit their times."""
    return {facts.trace.names[name] for name in facts.trace.ops.name[facts.trace.sized]}


def test_equal_batches_have_rates() -> None:
    facts = joined(cycle(LONG, LONG, LONG), cycle(LONG, shapes=True))
    assert not len(facts.trace.resized)
    assert [gemm.peak_share for gemm in tables.gemms(facts)] == pytest.approx([0.8, 0.8], rel=1e-3)
    assert facts.flops.hfu is not None


@pytest.mark.parametrize("share", [0.5, 0.6, 0.8, 0.9, 1.25, 2])
def test_batches_of_another_length_have_none(share: float) -> None:
    rows = int(LONG * share) // 128 * 128
    facts = joined(cycle(rows, rows, rows), cycle(LONG, shapes=True))
    assert sized(facts) == {UPDATE}
    assert (facts.trace.ops.dims >= 0).all(), "the shapes are still known"
    assert tables.gemms(facts) == []
    assert tables.gemm_known_share(facts) == 0
    assert {kernel.tflops for kernel in tables.kernels(facts)} == {None}
    assert facts.flops.hfu is None


def test_each_step_is_judged_by_itself() -> None:
    facts = joined(cycle(LONG, LONG // 2, LONG), cycle(LONG, shapes=True))
    forward = facts.trace.ops.name == facts.trace.names.index(FORWARD)
    assert facts.trace.sized[forward].tolist() == [True, False, True]


def test_work_that_depends_on_the_data_leaves_the_rest() -> None:
    facts = joined(cycle(LONG, LONG, LONG, varying_us=40), cycle(LONG, shapes=True, varying_us=90))
    assert sized(facts) == {FORWARD, GRADIENT, UPDATE}


@pytest.mark.parametrize(("times", "fits"), [(1.0, True), (0.85, True), (1.2, True), (0.6, False), (1.7, False)])
def test_on_a_cpu_longer_batches_take_longer(times: float, fits: bool) -> None:
    """Whatever a single operator takes."""
    sizes = {"Input Dims": [[1024, 1024], [1024, 1024]], "Input type": ["float", "float"]}
    timing, detail = Machine(), Machine()
    with detail.step():
        for us in (3_000, 4_000, 2_000):
            detail.work(us, "aten::mm", **sizes)
    for _ in range(3):
        with timing.step():
            for us, noise in ((3_000, 1), (4_000, 2), (2_000, 0.9)):
                timing.work(times * noise * us, "aten::mm")
    facts = joined(timing, detail)
    assert facts.trace.sized.all() == fits
    assert [one.gflops is not None for one in facts.cpu_work.heavy] == [fits]
    assert facts.cpu_work.heavy[0].duration_ns == facts.trace.ops.duration.sum(), "the time is known"
