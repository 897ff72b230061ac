"""Settings that nobody recorded, but the trace shows."""

from __future__ import annotations

import pytest

from traceopt.document.run_section import LOADER_WORKERS, settings
from traceopt.testing import events, facts_of


@pytest.mark.parametrize(
    ("iterators", "workers"),
    [
        (["_SingleProcess"], "0"),
        (["_MultiProcessing"], "some (number not recorded)"),
        (["_SingleProcess", "_MultiProcessing"], None),
        ([], None),
    ],
)
def test_the_names_of_its_waits_tell_whether_a_loader_has_workers(iterators: list[str], workers: str | None) -> None:
    found = [events.annotation(f"ProfilerStep#{step}", step * 1_000, 1_000) for step in range(3)]
    for place, kind in enumerate(iterators):
        found.append(events.annotation(f"enumerate(DataLoader)#{kind}DataLoaderIter.__next__", 100 + 200 * place, 100))
    found.append(events.op("aten::addmm", 900, 50))
    known = {setting.name: setting.value for setting in settings(facts_of(found))}
    assert known.get(LOADER_WORKERS) == workers
