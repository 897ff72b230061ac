"""Comparisons in a process of their own: what hangs or breaks is a line, and a second run asks the cache."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args

import pytest
from msgspec.structs import replace

from traceopt.measuring import comparing, session
from traceopt.measuring.cache import Cache
from traceopt.measuring.session import MeasuringError, measure
from traceopt.measuring.work import Work, prepare
from traceopt.result.experiments import (
    AllPairs,
    Compared,
    Comparison,
    Experiment,
    Lookup,
    Matmul,
    OptimizerStep,
    PairKind,
    RowGradient,
    VocabularyLoss,
)

PRODUCTS = [Comparison(Matmul(m, m, m, 1, "fp64"), Matmul(m, m, m, 1, "fp32")) for m in (2, 3, 4)]
# Stands for the process that measures: 3 x 3 ends it, 4 x 4 never answers.
FAKE = """
import json, os, sys, time
print(json.dumps({"type": "device", "name": "cpu of the test", "torch": "2.13.0"}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if asked["before"]["m"] == 3:
        os._exit(9)
    if asked["before"]["m"] == 4:
        time.sleep(600)
    times = {"before_ns": 2e6, "after_ns": 1e6, "spread": 0.01}
    print(json.dumps({"type": "compared", "comparison": asked, **times}), flush=True)
"""
DEVICE = "cpu of the test"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    script = tmp_path / "fake.py"
    script.write_text(FAKE)
    monkeypatch.setattr(session, "WORDS", (sys.executable, str(script)))
    return script


@pytest.mark.usefixtures("fake")
def test_a_process_that_ends_or_hangs_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "LONGEST_S", 0.5)
    rates = measure([*PRODUCTS, PRODUCTS[0]], "cpu", DEVICE, budget_s=600)
    assert [(one.comparison, one.speedup) for one in rates.compared] == [(PRODUCTS[0], 2.0)]
    assert [one.comparison for one in rates.failures] == PRODUCTS[1:]
    assert "ended" in rates.failures[0].why
    assert "took longer" in rates.failures[1].why


@pytest.mark.usefixtures("fake")
def test_the_budget_is_kept() -> None:
    def clock(times: Iterator[float]) -> float:
        return next(times)

    sizes = [Comparison(Matmul(m, 9, 9, 1, "fp64"), Matmul(m, 9, 9, 1, "fp32")) for m in (10, 11, 12)]
    passed = iter([0.0, 0.0, 7.0, 7.0, 21.0, 21.0])  # the second comparison ends after 21 s
    rates = measure(sizes, "cpu", DEVICE, budget_s=20, clock=lambda: clock(passed), progress=lambda *_: None)
    assert [one.comparison for one in rates.compared] == sizes[:2]


def test_a_second_run_answers_from_the_cache(fake: Path, tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    first = measure(PRODUCTS[:1], "cpu", DEVICE, budget_s=20, cache=cache)
    fake.write_text(FAKE.replace("2e6", "9e6"))
    assert measure(PRODUCTS[:1], "cpu", DEVICE, budget_s=20, cache=cache) == first
    assert measure(PRODUCTS[:1], "cpu", DEVICE, budget_s=20) != first


@pytest.mark.usefixtures("fake")
def test_another_device_is_refused() -> None:
    with pytest.raises(MeasuringError, match="another device"):
        measure(PRODUCTS, "cpu", "NVIDIA H100 80GB HBM3", budget_s=20)


def test_a_process_that_does_not_start_is_an_error(fake: Path) -> None:
    fake.write_text("print('no')")
    with pytest.raises(MeasuringError, match="did not start"):
        measure(PRODUCTS, "cpu", DEVICE, budget_s=20)


def test_a_slow_start_is_called_slow(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.write_text("input()")  # says nothing, and ends with its input
    monkeypatch.setattr("traceopt.measuring.session.START_S", 0.1)
    with pytest.raises(MeasuringError, match="torch was not ready within 0 s; try again"):
        measure(PRODUCTS, "cpu", DEVICE, budget_s=20)


@pytest.mark.torch
def test_torch_measures_what_it_can() -> None:
    from traceopt.capture.metadata.cpu import describe_machine

    adam = ((1000, 3), (10, 2))
    unknown = Comparison(OptimizerStep("Nothing", adam, "single"), OptimizerStep("Nothing", adam, "fused"))
    steps = Comparison(OptimizerStep("AdamW", adam, "single"), OptimizerStep("AdamW", adam, "fused"))
    rates = measure([unknown, steps], "cpu", describe_machine()["model"] or "CPU", threads=1, budget_s=60)
    assert "Nothing" in rates.failures[0].why
    assert [type(one) for one in rates.compared] in ([Compared], [])  # []: other programs held the cores


@pytest.mark.torch
@pytest.mark.parametrize("picked_by", ["embedding", "indexing", "index_select"])
def test_gradients_of_picked_rows_are_added_up(picked_by: Literal["embedding", "indexing", "index_select"]) -> None:
    import torch

    [gradient] = prepare(torch, "cpu", RowGradient(5, 2, 40, "fp32", picked_by))()
    assert gradient.shape == (5, 2)
    assert gradient.sum().item() == 80


@pytest.mark.torch
@pytest.mark.parametrize("kind", get_args(PairKind))
def test_both_forms_of_all_pairs_are_the_same(kind: PairKind) -> None:
    import torch

    one = AllPairs(2, 3, 4, 5, kind, "fp32", backward=True)
    torch.manual_seed(0)
    plain = prepare(torch, "cpu", one)()
    torch.manual_seed(0)
    for gradient, other in zip(plain, prepare(torch, "cpu", replace(one, by_matmul=True))(), strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-3, atol=1e-4)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (VocabularyLoss(6, 3, 50, "fp32", 6), VocabularyLoss(6, 3, 50, "fp32", 4)),
        (Lookup(2, 9, 3, 5, "fp32"), Lookup(2, 9, 3, 5, "fp32", sparse=True)),
    ],
)
def test_both_ways_give_the_same_gradients(one: Experiment, other: Experiment) -> None:
    import torch

    gradients = []
    for experiment in (one, other):
        torch.manual_seed(0)
        work = prepare(torch, "cpu", experiment)
        gradients.append([gradient.to_dense() for gradient in work()])
    for first, second in zip(*gradients, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-3, atol=1e-4)


@pytest.mark.torch
@pytest.mark.parametrize("sparse", [False, True])
def test_an_update_takes_the_gradients_as_they_are(sparse: bool) -> None:
    import torch

    (gradient,) = prepare(torch, "cpu", Lookup(1, 9, 3, 5, "fp32", sparse=sparse, updated=True))()
    assert (gradient.is_sparse, gradient.sum().item()) == (sparse, 15)


def test_short_work_is_timed_after_a_run_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that follows other work takes 5 ms longer: it finds other data in the caches."""
    last = [""]

    def timer(work: Work) -> float:
        name = str(work())
        cold_ns = 0.0 if last[0] == name else 5e6
        last[0] = name
        return cold_ns + (40e6 if name == "before" else 1e6)

    def prepared(_torch: object, _device: str, experiment: Experiment) -> Work:
        return lambda: "after" if experiment == comparison.after else "before"

    comparison = Comparison(Matmul(8, 8, 8, 1, "fp64"), Matmul(8, 8, 8, 1, "fp32"))
    monkeypatch.setattr(comparing, "prepare", prepared)
    monkeypatch.setattr(comparing, "_on_cpu", timer)
    monkeypatch.setattr(comparing, "SECONDS", 0.0)
    answer = comparing.compare(None, "cpu", comparison)
    assert (answer.before_ns, answer.after_ns) == pytest.approx((45e6, 1e6))
