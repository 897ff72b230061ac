"""torch.compile: Dynamo sees none of traceopt's wrappers, and steps are found whatever was compiled."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
from runs import TORCH, Run

from traceopt.api import analyze

COMPILED = {"fetch": 1, "zero": 1}  # the update is part of a graph, or wrapped by one
SEEN = COMPILED | {"update": 1} if TORCH > (2, 1) else COMPILED  # Dynamo of 2.1 removes the ranges of all updates

WORK = {
    "model": SEEN,
    "model_of_an_inference": SEEN,
    **({"fused": SEEN} if TORCH > (2, 1) else {}),  # 2.1 has a fused AdamW only for GPUs
    "update_in_a_function": COMPILED,
    "update_as_a_method": COMPILED,
    "whole_step": COMPILED,
}

ALL = pytest.mark.run("compiled.py", *WORK, "update_in_one_graph")
INDUCTOR = pytest.mark.run("compiled.py", "inductor")


@ALL
def test_dynamo_compiles_and_breaks_as_in_the_bare_run(run: Run, bare: Run) -> None:
    """The script prints every loss, the frames that Dynamo compiled, the breaks, and why it refuses."""
    assert bare.code == 0, bare.stderr
    assert run.stdout == bare.stdout
    assert bare.stdout.count("graph breaks") == len(WORK)
    assert "Unsupported" in bare.stdout
    assert run.traces_of("model")["timing"].metadata["dynamo"]["frames"] == {"total": 1, "ok": 1}


@ALL
@pytest.mark.skipif(TORCH < (2, 3), reason="older Dynamo keeps other notes")
def test_the_trace_says_what_dynamo_did(run: Run) -> None:
    trace = run.traces_of("whole_step")["timing"]
    known = analyze([str(trace.path)], debug=True).torch_compile
    assert known is not None
    assert (known.source, known.compilations) == ("run", trace.metadata["dynamo"]["frames"]["ok"])
    assert [phase.name for phase in known.phases] == ["dynamo", "aot_autograd"]
    script = (Path(__file__).parent / "scripts" / "compiled.py").read_text().splitlines()
    places = [one.location for one in known.breaks if one.location is not None]
    assert {place.file for place in places} == {"compiled.py"}
    assert "loss.backward()" in {script[(place.line or 0) - 1].strip() for place in places}


@ALL
@pytest.mark.parametrize(("kind", "work"), WORK.items())
def test_a_step_of_compiled_code_holds_the_same_work(run: Run, kind: str, work: dict[str, int]) -> None:
    check_work(run, kind, work)


@INDUCTOR
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler: apt install g++")
def test_inductor(run: Run) -> None:
    assert run.code == 0, run.stderr
    assert run.stdout.endswith("graph breaks 0\n")
    check_work(run, "inductor", SEEN)
    result = analyze([str(trace.path) for trace in run.traces_of("inductor").values()], debug=True)
    assert result.run.recorded.shapes, "the cycles are joined, though Inductor's ranges have another kind in each"


def check_work(run: Run, kind: str, work: dict[str, int]) -> None:
    timing = run.traces_of(kind)["timing"]
    assert list(timing.steps) == [8, 9, 10, 11, 12]
    for step in timing.steps.values():
        del step["other"]
        assert step == Counter(work)
