"""The script's own `sys.setprofile` or cProfile, next to torch's, which records Python frames with it."""

from __future__ import annotations

import cProfile
import pstats
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from runs import Trace

import traceopt
from traceopt.capture.recording.profile_function import ProfileFunction


def of_script(*_: Any) -> None: ...


def of_torch(*_: Any) -> None: ...


@pytest.fixture(autouse=True)
def own() -> Iterator[None]:
    before: Any = sys.getprofile()
    sys.setprofile(None)
    yield
    sys.setprofile(before)


def recorded(*, before: Any = None, during: Any = None) -> Any:
    """The profile function after torch has recorded; the script sets others before and in the meantime."""
    function = ProfileFunction()
    sys.setprofile(before)
    with function.watched():
        sys.setprofile(of_torch)
    if during != of_torch:
        sys.setprofile(during)
    with function.watched():
        sys.setprofile(None)
    function.give_back()
    return sys.getprofile()


def test_it_is_given_back() -> None:
    assert recorded(before=of_script, during=of_torch) is of_script
    assert recorded(during=of_script) is of_script


def test_what_the_script_removed_stays_removed() -> None:
    assert recorded(during=of_torch) is None
    assert recorded(before=of_script, during=None) is None


def test_without_torch_s_nothing_changes() -> None:
    function = ProfileFunction()
    sys.setprofile(of_script)
    with function.watched():
        pass
    function.give_back()
    function.remove()
    assert sys.getprofile() is of_script


def test_a_forked_child_keeps_the_script_s_alone() -> None:
    function = ProfileFunction()
    with function.watched():
        sys.setprofile(of_torch)
    function.remove()
    assert sys.getprofile() is None


@pytest.mark.torch
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="cProfile uses sys.monitoring")
@pytest.mark.filterwarnings("ignore:traceopt. the plain cycle has no lines of code")
@pytest.mark.parametrize("first", [0, 2], ids=["before", "in the recording"])
def test_cprofile_of_the_script_sees_every_call(tmp_path: Path, first: int) -> None:
    import torch

    def train() -> None:
        torch.ones(2).sum()

    own = cProfile.Profile()
    if not first:
        own.enable()
    with traceopt.profile(tmp_path, wait=0, warmup=1, active=3, with_stack=True) as profiler:
        for step in range(8):
            if step == first > 0:
                own.enable()
            train()
            profiler.step()
    own.disable()
    stats: Any = pstats.Stats(own)
    calls = {name: count for (_, _, name), (count, *_) in stats.stats.items()}
    assert calls["train"] == 8 - first
    [path] = profiler.traces
    python = any(e.get("cat") == "python_function" for e in Trace(path).document["traceEvents"])
    assert python == bool(first)
