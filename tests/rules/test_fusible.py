"""For which optimizers fused=True is advised: with sparse gradients or an older torch it ends in an error."""

from __future__ import annotations

import pytest

from traceopt.analyzer.facts import Facts
from traceopt.rules.fixes.optimizers import fused, fusible
from traceopt.testing import A100
from traceopt.testing import events as build


def facts(version: str | None, *, gpu: bool, sparse: bool = False) -> Facts:
    backward = "aten::embedding_sparse_backward" if sparse else "aten::embedding_dense_backward"
    events = [build.annotation("ProfilerStep#0", 0, 1_000), build.op(backward, 10, 100)]
    if gpu:
        events += [build.runtime("cudaLaunchKernel", 20, 2, 1), build.kernel("k", 30, 50, 1)]
    own = {"schema": 1, **({} if version is None else {"torch_version": version})}
    return Facts(build.read(build.document(events, traceopt=own, **({"deviceProperties": [A100]} if gpu else {}))))


@pytest.mark.parametrize(
    ("version", "on_gpu", "on_cpu"),
    [
        ("2.1.2+cu121", "Adam AdamW", ""),
        ("2.3.0", "Adam AdamW SGD", ""),
        ("2.4.0", "Adam AdamW SGD", "Adam AdamW SGD Adagrad"),
        ("2.13.0a0", "Adam AdamW SGD Adagrad", "Adam AdamW SGD Adagrad"),
        (None, "Adam AdamW SGD", "Adam AdamW SGD Adagrad"),
        ("main", "Adam AdamW SGD", "Adam AdamW SGD Adagrad"),
    ],
)
def test_by_version_and_device(version: str | None, on_gpu: str, on_cpu: str) -> None:
    assert fusible(facts(version, gpu=True)) == tuple(on_gpu.split())
    assert fusible(facts(version, gpu=False)) == tuple(on_cpu.split())


def test_no_fused_form_takes_sparse_gradients() -> None:
    assert fusible(facts("2.13.0", gpu=True, sparse=True)) == ()
    [edit] = fused(["SGD"], ())
    assert edit.code == "torch.optim.SGD(..., foreach=True)"
