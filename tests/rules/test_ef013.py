"""EF013: backward nodes of a network whose gradients the script clears before an optimizer reads them."""

from __future__ import annotations

from typing import Any

import pytest
from support.facts import launched_by, repeated
from support.findings import only

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.run_log.cleared_gradients import read_cleared_gradients
from traceopt.rules.catalogue.ef013_cleared_gradients import ClearedGradient
from traceopt.testing import A100, answer
from traceopt.testing import events as build

STEP_US = 20_000
ENGINE = "<built-in method run_backward of torch._C._EngineBase object at 0x7f>"
GENERATOR, DISCRIMINATOR = [[64, 32], [32]], [[32, 16], [16]]


def layer(start: float, shapes: list[list[int]]) -> list[build.Json]:
    """2 ms of a layer's backward pass, 1.6 ms of it matmuls, then its gradients are added."""
    number = {"Sequence number": round(start), "Fwd thread id": 1}
    nodes = [
        build.op("autograd::engine::evaluate_function: AddmmBackward0", start, 1_800, **number),
        build.op("AddmmBackward0", start + 10, 1_700),
        build.op("aten::mm", start + 20, 800),
        build.op("aten::mm", start + 830, 800),
    ]
    for number, shape in enumerate(shapes):
        at = start + 1_810 + 90 * number
        nodes += [
            build.op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", at, 80),
            build.op("torch::autograd::AccumulateGrad", at + 10, 60, **{"Input Dims": [shape]}),
        ]
    return nodes


def backward_pass(line: int, start: float, *shapes: list[list[int]]) -> list[build.Json]:
    """Layers in the order of the backward pass."""
    nodes = [node for number, one in enumerate(shapes) for node in layer(start + 2_000 * number, one)]
    taken = 2_000 * len(shapes) + 200
    return [
        build.python(f"gan.py({line}): train", start - 200, taken + 100),
        build.python(ENGINE, start - 100, taken),
        *nodes,
    ]


# Other products, so that a GPU is busy most of the time.
BUSY = [build.op("aten::mm", start, us) for start, us in ((100, 4_500), (9_200, 2_500), (16_200, 2_600))]
FIRST = backward_pass(16, 5_000, DISCRIMINATOR, GENERATOR)
SECOND = backward_pass(20, 12_000, DISCRIMINATOR, GENERATOR)


def cleared(backward: int, shapes: list[list[int]], **other: Any) -> dict[str, Any]:
    row = {"backward": backward, "of": 2, "runs": 100, "cleared": 99, "shapes": shapes, "built": [["gan.py(9): main"]]}
    return row | other


def facts(*rows: Any, gpu: bool = False, parts: Any = (FIRST, SECOND), optimizers: int = 2) -> Facts:
    update = [build.annotation("Optimizer.step#Adam.step", 19_000, 500)]
    events = repeated(update, *parts, BUSY if gpu else [], step_us=STEP_US)
    events += launched_by(events, "aten::mm") if gpu else []
    recorded = {
        "cycle": {"name": "timing"},
        "environment": {"torch": "2"},
        "optimizers": [{"class": "torch.optim.adam.Adam"}] * optimizers,
        "cleared_gradients": list(rows),
    }
    device = {"deviceProperties": [A100]} if gpu else {}
    return Facts(build.read(build.document(events, traceopt=recorded, **device)))


@pytest.mark.parametrize("gpu", [False, True])
def test_fires_on_a_network_before_the_trained_one(gpu: bool) -> None:
    found = only(ClearedGradient, facts(cleared(0, GENERATOR), gpu=gpu))
    assert found.title.startswith("Detach")
    assert "its 2 parameters (of the optimizer from gan.py:9) get gradients that are cleared" in found.why
    assert f"take {'1.6' if gpu else '2.0'} ms of each 20.0 ms step" in found.why
    assert [(one.file, one.line) for one in found.locations] == [("gan.py", 16)]
    assert found.saving is not None
    if gpu:
        assert found.saving.low_us <= 1_600 <= found.saving.high_us
    else:
        assert found.saving.low_us < 1_960 < found.saving.est_us < found.saving.high_us < 4_000, "and of the border"


def test_the_line_is_that_of_the_network_to_detach() -> None:
    """Its only layer runs backward from 7,000 us on."""
    forward = [
        build.python("gan.py(12): generate", 4_000, 200),
        build.op("aten::addmm", 4_050, 100, **{"Sequence number": 7_000, "Fwd thread id": 0}),
    ]
    [found] = answer(ClearedGradient, facts(cleared(0, GENERATOR), parts=(forward, FIRST, SECOND)))[1]
    assert [(one.file, one.line) for one in found.locations] == [("gan.py", 12)]


def test_a_network_after_the_trained_one_needs_no_gradients_of_weights() -> None:
    found = only(ClearedGradient, facts(cleared(1, DISCRIMINATOR)))
    assert found.title.startswith("Turn off gradients")
    assert "which take 1.6 ms of each 20.0 ms step" in found.why
    assert [(one.file, one.line) for one in found.locations] == [("gan.py", 20)]
    assert found.saving is not None
    assert found.saving.low_us < 800 < found.saving.high_us < 1_300
    assert found.confidence == "low"


def test_both_in_one_script() -> None:
    _, findings = answer(ClearedGradient, facts(cleared(0, GENERATOR), cleared(1, DISCRIMINATOR)))
    assert [one.title.split()[0] for one in findings] == ["Detach", "Turn"]


@pytest.mark.parametrize(
    ("row", "parts"),
    [
        (cleared(0, [[64, 32], [33]]), (FIRST, SECOND)),
        (cleared(0, [*GENERATOR, *DISCRIMINATOR]), (FIRST, SECOND)),
        (cleared(0, GENERATOR, of=3), (FIRST, SECOND)),
        (cleared(0, GENERATOR), (FIRST,)),
        (cleared(0, GENERATOR), (backward_pass(16, 5_000, GENERATOR, DISCRIMINATOR, GENERATOR), SECOND)),
    ],
    ids=["other shapes", "all of them", "other passes", "a pass less", "an unknown network"],
)
def test_silent_on_what_does_not_fit_the_trace(row: dict[str, Any], parts: Any) -> None:
    check, findings = answer(ClearedGradient, facts(row, parts=parts))
    assert findings == []
    assert check.reason


def test_reasons() -> None:
    assert answer(ClearedGradient, facts(optimizers=1))[0].reason == "The script has fewer than two optimizers."
    reason = answer(ClearedGradient, facts())[0].reason
    assert reason == "No gradients are cleared before an optimizer reads them."


@pytest.mark.parametrize(
    "odd",
    [
        [3],
        [{}],
        [cleared(0, GENERATOR, runs=0)],
        [cleared(0, GENERATOR, cleared=50)],
        [cleared(0, GENERATOR, cleared=101)],
        [cleared(2, GENERATOR)],
        [cleared(0, [])],
        [cleared(0, [[64, "32"]])],
        [cleared(0, [64])],
        [cleared(0, [[-1]])],
    ],
)
def test_odd_rows_are_none(odd: Any) -> None:
    assert read_cleared_gradients(odd) == ()


@pytest.mark.parametrize("odd", [None, "rows", 3, {}])
def test_recordings_of_before_do_not_tell(odd: Any) -> None:
    assert read_cleared_gradients(odd) is None
    recorded = {"environment": {"torch": "2"}, "optimizers": [{"class": "Adam"}] * 2, "cleared_gradients": odd}
    found = Facts(build.read(build.document([build.op("aten::mm", 0, 5)], traceopt=recorded)))
    assert "was not recorded" in (ClearedGradient().applies(found) or "")


def test_passes_into_the_same_network_are_one_finding() -> None:
    """A gradient penalty is no backward pass: torch.autograd.grad adds to no gradient."""
    penalty = [build.python("torch/autograd/__init__.py(462): grad", 4_000, 500), build.python(ENGINE, 4_100, 300)]
    both = cleared(0, GENERATOR), cleared(1, GENERATOR)
    [finding] = answer(ClearedGradient, facts(*both, parts=(FIRST, SECOND, penalty)))[1]
    assert finding.why.startswith("Each of 2 backward passes per step goes on into a network that it does not train")
    [one] = answer(ClearedGradient, facts(both[0], parts=(FIRST, SECOND, penalty)))[1]
    assert finding.saving is not None
    assert one.saving is not None
    assert finding.saving.est_us == pytest.approx(2 * one.saving.est_us)
