"""What the accuracy page says of the replay, also without the real traces."""

from __future__ import annotations

from statistics import median

import pytest

from benchmarks.replay.hidden_waits import HiddenWaits, hide, programs, total
from benchmarks.replay.known_delays import error, noise
from benchmarks.replay.known_delays import section as section_of_delays
from benchmarks.replay.real_pairs import Pair, real_pairs
from benchmarks.replay_accuracy import Hidden, Planted, Real, section, with_waits_as_work, without_waits
from traceopt.analyzer.replay.error import Prediction, ReplayError, replay_error
from traceopt.testing.machine import Machine

FAULT = Planted("slow_loader", "DL001", 26.0, 17.0, 7.0, 9.9, 9.9)
FAR = Planted("overlap_tax", "CM009", 26.0, 17.0, 2.0, 4.5, 9.9)
HIDDEN: list[Hidden] = [("generated programs", "host", HiddenWaits(100, 80, 60))]
TRIAL = {"before": 14_000.0, "predicted": 10_300.0, "measured": 10_000.0, "measured_again": 10_200.0}


def error_of(missed: float, slow: float, prediction: Prediction | None = None) -> ReplayError:
    return ReplayError(missed, 0.008, slow, prediction)


def test_a_row_each_and_the_medians() -> None:
    good, bad = error_of(0.005, 0.001, Prediction(6, 0.004, 0.02)), error_of(0.15, 0.2)
    real = [
        Real("control", 6, good, error_of(0.15, 0.001), error_of(0, 0.164)),
        Real("vllm", 0, bad, bad, bad),
        Real("gpu_only", 0, None, None, None),
    ]
    pairs = [
        Pair("before", "DL001", 50.0, 55.0, 40.0, 60.0, True),
        Pair("other", "DL003", 50.0, 40.0, 30.0, 45.0, True),
        Pair("third", "LB002", 1.0, None, None, None, False),
    ]
    delays = {"torch": "2.13.0", "discarded": 3, "trials": {"sleep": [TRIAL]}}
    text = section(real, [FAULT, FAR], pairs, HIDDEN, delays)
    assert "| vllm | no marks | 15.0 |  |  | 0.8 | 20.0 | 20.0 |" in text
    assert "| control" not in text, "its error is small"
    assert "| gpu_only" not in text, "there is nothing to replay"
    assert "In 1 of 2 traces, the replayed typical step is within 2% of the measured one, and in 1 the error" in text
    assert "median error 0.40%, and 2.00% for the median of the others. The prediction is better in 1 of 1" in text
    assert (
        "without waits, the error grows by more than 1% in 1 traces, and with waits taken for work of the host in 1."
        in text
    )
    assert "| generated programs | host | 100 | 80 | 60 | 60% | 75% |" in text
    assert "| sleep | 1 | 14.00 | 10.30 | 10.00 | +2.0% | +2.0% | 2.0% |" in text
    assert "| before | DL001 | 50.00 | 55.00 | 40.00 | 60.00 | +10% | yes |" in text
    assert "| other | DL003 | 50.00 | 40.00 | 30.00 | 45.00 | -20% | no |" in text
    assert "| third | LB002 | 1.00 | none | none | none |  | no |" in text
    assert "Median error 15%, largest 20%; 1 of 3 measured savings are between low and high." in text
    assert "| overlap_tax | CM009 | 9.00 | 2.00 | 4.50 | 9.90 | -50.0% |" in text
    assert "| slow_loader" not in text, "it is near"
    assert "Over 2 faults the median error of the saving is 30.0%. 2 gains are between low and high." in text


def test_without_the_real_traces() -> None:
    text = section([], [FAULT], [], HIDDEN, None)
    assert text.count("The real traces were not available.") == 2
    assert "Nothing was recorded." in text


def test_the_error_grows_on_graphs_without_waits() -> None:
    machine = Machine()
    for _ in range(5):
        with machine.step():
            machine.work(500)
            machine.launch(1_000)
            machine.synchronize()
    facts = machine.facts()
    graphs = (facts.replay_graph, without_waits(facts.replay_graph), with_waits_as_work(facts))
    errors = [replay_error(graph, facts.recorded_steps, facts.has_gpu) for graph in graphs]
    shares = [one.share for one in errors if one is not None]
    assert shares[0] < 0.01
    assert min(shares[1:]) > 0.3


def test_hidden_waits_are_inferred() -> None:
    host, stream = (total(list(counts)) for counts in zip(*map(hide, programs()), strict=True))
    assert min(host.recorded, stream.recorded) > 100
    assert min(host.recall, host.precision) > 0.95
    assert min(stream.recall, stream.precision) > 0.85


def test_hidden_waits_that_are_not_inferred_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without names of syncs, no wait of the host is inferred."""
    monkeypatch.setattr("traceopt.analyzer.vocabulary.runtime_calls.is_blocking_sync", lambda _: False)
    host, _ = zip(*map(hide, list(programs())[:3]), strict=True)
    assert total(list(host)).inferred == 0


def test_the_error_and_the_noise_of_a_known_delay() -> None:
    assert error(TRIAL) == pytest.approx(0.0198, abs=1e-4)
    assert noise(TRIAL) == pytest.approx(0.02)
    assert len(section_of_delays({"torch": "2", "discarded": 0, "trials": {"print": [TRIAL, TRIAL]}})) == 6


@pytest.mark.real_traces
def test_real_fixes_save_what_is_predicted() -> None:
    """Within 15% in the median. No prediction exceeds what the finding states at most."""
    pairs = list(real_pairs())
    errors = [abs(pair.error) for pair in pairs if pair.error is not None]
    assert len(errors) == len(pairs) > 0
    assert max(errors) <= 0.25
    assert median(errors) <= 0.15
    assert [pair.name for pair in pairs if (pair.predicted or 0.0) > (pair.high or 0.0) + 1e-3] == []
