"""DL007: the sampler of a DataLoader, which workers do not run; DL001 promises nothing for it."""

from __future__ import annotations

import pytest
from support.findings import only

from traceopt.analyzer.facts import Facts
from traceopt.rules.catalogue.dl001_dataloader_stall import DataloaderStall
from traceopt.rules.catalogue.dl007_slow_sampler import SlowSampler
from traceopt.testing import answer
from traceopt.testing import events as build

STEP_US, STEPS = 20_000, 4
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def facts(*, sampling_us: int, building_us: int, tid: int = build.MAIN) -> Facts:
    """Steps that load a batch for some time: the sampler first, then the data set."""
    events: list[build.Json] = []
    loading_us = sampling_us + building_us + 100
    for step in range(STEPS):
        start = step * STEP_US
        events += [
            build.annotation(f"ProfilerStep#{step}", start, STEP_US),
            build.python("train.py(30): train", start, STEP_US - 10),
            build.annotation(LOADER, start + 100, loading_us),
            build.python("torch/utils/data/dataloader.py(720): __next__", start + 110, loading_us - 20),
            build.python("torch/utils/data/dataloader.py(714): _next_index", start + 120, sampling_us, tid),
            build.python("samplers.py(16): __iter__", start + 121, sampling_us - 2, tid),
            build.python("data.py(7): __getitem__", start + 130 + sampling_us, building_us),
            build.op("aten::mm", start + loading_us + 200, 9_000, **{"Sequence number": step}),
            build.annotation("Optimizer.step#SGD.step", start + loading_us + 9_300, 500),
        ]
    return Facts(build.read(build.document(events)))


def test_fires_on_a_slow_sampler_with_its_price() -> None:
    found = only(SlowSampler, facts(sampling_us=5_000, building_us=500))
    assert "takes 5.0 ms of each 20.0 ms step" in found.why
    assert [(one.file, one.line) for one in found.locations] == [("samplers.py", 16)]
    assert found.saving is not None
    assert found.saving.low_us < found.saving.est_us == pytest.approx(4_000, rel=0.02)


def test_workers_are_no_fix_for_it() -> None:
    check, findings = answer(DataloaderStall, facts(sampling_us=5_000, building_us=500))
    assert findings == []
    assert "is the sampler (DL007)" in (check.reason or "")


def test_workers_still_build_the_batches() -> None:
    """What remains is the sampler."""
    found = only(DataloaderStall, facts(sampling_us=2_000, building_us=6_000))
    assert found.saving is not None
    assert found.saving.est_us < 6_200
    assert "the sampler stays in the main process" in found.saving.basis


def test_silent_on_a_fast_sampler_and_one_of_another_thread() -> None:
    for found in (facts(sampling_us=200, building_us=6_000), facts(sampling_us=5_000, building_us=500, tid=99)):
        check, findings = answer(SlowSampler, found)
        assert findings == []
        assert (check.reason or "").startswith("The sampler of the data loader takes ")


def fresh_iterators(next_calls: int) -> Facts:
    """Steps that make an iterator, which takes 4 ms with its order, and ask it for a batch so many times."""
    events: list[build.Json] = []
    for step in range(STEPS):
        start = step * STEP_US
        events += [
            build.annotation(f"ProfilerStep#{step}", start, STEP_US),
            build.python("train.py(30): train", start, STEP_US - 10),
            build.python("torch/utils/data/dataloader.py(492): __iter__", start + 100, 1_000),
            build.python("torch/utils/data/dataloader.py(433): _get_iterator", start + 105, 990),
            build.annotation(LOADER, start + 1_200, 3_200),
            build.python("torch/utils/data/dataloader.py(720): __next__", start + 1_210, 3_100),
            build.python("torch/utils/data/dataloader.py(714): _next_index", start + 1_220, 3_000),
            *(
                build.python("torch/utils/data/dataloader.py(720): __next__", start + 4_500 + 100 * n, 50)
                for n in range(1, next_calls)
            ),
            build.op("aten::mm", start + 6_000, 9_000, **{"Sequence number": step}),
        ]
    return Facts(build.read(build.document(events)))


def test_an_iterator_for_each_batch_is_made_once() -> None:
    """An order that is computed once would give every step the same batch."""
    found = only(SlowSampler, fresh_iterators(next_calls=1))
    assert found.title == "Make the iterator of the data loader once"
    assert "np." not in (found.fix.code or "")
    assert "takes 4.0 ms of each 20.0 ms step" in found.why
    assert found.saving is not None
    assert found.saving.est_us == pytest.approx(0.95 * 3_990, rel=0.02)


def test_an_epoch_of_one_batch_needs_its_iterator() -> None:
    """The loop asks once more, and gets no batch."""
    _, [found] = answer(SlowSampler, fresh_iterators(next_calls=2))
    assert found.title == SlowSampler.title
