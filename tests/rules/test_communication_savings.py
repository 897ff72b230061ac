"""CM001, CM002 and CM003: what overlap, fewer calls and a healthy link can save, and which collective waits."""

from __future__ import annotations

import pytest

from fixtures.real_traces import TRACES
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.reading.source_search import find_sources
from traceopt.analyzer.recordings.cycle_pairs import find_recordings
from traceopt.analyzer.recordings.rank_trace import read_recording
from traceopt.result.finding import Finding
from traceopt.rules.engine import prepare, run_rules
from traceopt.rules.registry import load_rules
from traceopt.rules.savings.price import Priced


def every_trace() -> list[str]:
    return sorted(str(path.relative_to(TRACES)) for path in TRACES.rglob("*.json.gz"))


def findings_of(path: str) -> tuple[Facts, list[Priced]] | None:
    """None for a file that is no trace, or that has no collectives."""
    recordings = find_recordings(find_sources([str(TRACES / path)]).sources)
    try:
        facts = Facts(read_recording(recordings[0], []))
    except Exception:
        return None
    return (facts, run_rules(prepare(load_rules(None)), facts).priced) if facts.collectives else None


@pytest.mark.real_traces
@pytest.mark.parametrize("path", every_trace())
def test_no_communication_finding_saves_more_than_is_there(path: str) -> None:
    read = findings_of(path)
    if read is None:
        return
    facts, priced = read
    overlap = facts.overlap
    for finding in (one.finding for one in priced if one.finding.code in ("CM001", "CM003")):
        if finding.saving is None:
            continue
        exposed_us = overlap.exposed_ns.max() / 1e3
        free_us = overlap.free_compute_ns.max() / 1e3
        limit_us = min(exposed_us, free_us) if finding.code == "CM001" else exposed_us
        assert finding.saving.high_us <= 1.001 * limit_us, finding.code


@pytest.mark.real_traces
def test_a_search_for_the_cause_does_not_come_before_fixes() -> None:
    """8 x MI300X: 17.6 MB at 3 GB/s on links of 448 GB/s a direction, and little compute to hide anything."""
    read = findings_of("tracelens/mi300/resnet_act_checkpoint.json.gz")
    assert read is not None
    found: dict[str, Finding] = {one.finding.code: one.finding for one in read[1]}
    assert next(iter(found)) == "CM001"
    assert (found["CM003"].confidence, found["CM003"].impact) == ("low", "high")
    assert found["CM003"].saving is not None
    assert found["CM003"].saving.low_us == 0
    assert "They take about as long in every step" in found["CM003"].fix.text
