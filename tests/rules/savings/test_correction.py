"""What was tried on a machine corrects the next prediction there: in the finding, in the plan and in what-if alike."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from traceopt.analyzer.vocabulary.companion_kinds import TRIALS_FILE
from traceopt.api import analyze
from traceopt.result.document import Result
from traceopt.result.finding import Finding, Saving
from traceopt.result.trial import Attempt, Machine
from traceopt.rules.savings.correction import LATEST, PRIOR, Correction, correction_of
from traceopt.trying.changes import changes_of
from traceopt.trying.expectation import Expectation
from traceopt.trying.history import append, attempts_of
from traceopt.trying.rounds import Rounds
from traceopt.trying.session import row_of
from traceopt.what_if import what_if

TRACES = Path(__file__).resolve().parents[3] / "fixtures" / "traces" / "h100"
HERE = Machine("NVIDIA H100 80GB HBM3", "Intel(R) Xeon(R) Processor", 16)
MADE = Attempt("2030-01-31T10:00:00Z", "train.py", "", "patch", "keep", 100.0, 80.0, 120.0, 1e3, 0.0, 0.0, 0.0, "H100")


def tried(code: str, gain_us: float, *, correction: float = 1.0, precise_us: float = 5.0) -> Attempt:
    """100 us were predicted, after the correction."""
    ends = gain_us - precise_us, gain_us + precise_us
    return replace(
        MADE, code=code, gain_us=gain_us, gain_low_us=ends[0], gain_high_us=ends[1], machine=HERE, correction=correction
    )


def test_few_trials_change_little() -> None:
    factors = [correction_of([tried("DL001", 60.0)] * count, "DL001").factor for count in range(LATEST)]
    assert factors[0] == 1
    assert factors[1] == pytest.approx((0.6 + PRIOR) / (1 + PRIOR))
    assert factors == sorted(factors, reverse=True)
    assert factors[-1] > 0.6


def test_the_range_covers_what_the_trials_gained() -> None:
    correction = correction_of([tried("DL001", gain_us) for gain_us in (50.0, 80.0, 130.0)], "DL001")
    low, expected, high = correction.of(90.0, 100.0, 110.0)
    assert (low, high) == pytest.approx((50.0, 130.0))
    assert expected == pytest.approx(100 * (3 * 0.8 + PRIOR) / (3 + PRIOR))


def test_what_says_nothing_does_not_count() -> None:
    noisy, other = tried("DL001", 0.0, precise_us=60.0), tried("DL002", 0.0)
    empty = replace(tried("DL001", 0.0), predicted_us=0.0)
    assert correction_of([noisy, other, empty], "DL001") == Correction()


def test_old_trials_no_longer_count() -> None:
    old, new = [tried("DL001", 0.0)], [tried("DL001", 100.0)] * LATEST
    assert correction_of([*old, *new], "DL001").factor == 1


def test_a_correction_is_not_made_twice() -> None:
    """The second prediction was corrected to 0.8 times itself, and held."""
    found = correction_of([tried("DL001", 70.0), tried("DL001", 100.0, correction=0.7)], "DL001")
    assert found.usual == pytest.approx(0.7)


def log_folder(tmp_path: Path, workload: str, *attempts: Attempt) -> Path:
    folder = tmp_path / "traceopt-logs" / "train"
    shutil.copytree(TRACES / workload / "plain", folder)
    append(tmp_path / "traceopt-logs" / TRIALS_FILE, attempts)
    return folder


def found_in(result: Result, code: str) -> tuple[Finding, Saving]:
    [finding] = [one for one in result.findings if one.code == code]
    assert finding.saving is not None
    return finding, finding.saving


@pytest.mark.parametrize("gain_us", [40.0, 120.0])
def test_finding_plan_and_what_if_agree(tmp_path: Path, gain_us: float) -> None:
    folder = log_folder(tmp_path, "misaligned_vocabulary", tried("GM001", gain_us), tried("GM001", gain_us))
    raw, result = analyze(str(TRACES / "misaligned_vocabulary" / "plain")), analyze(str(folder))
    (_, before), (finding, after) = (found_in(one, "GM001") for one in (raw, result))
    factor = (gain_us / 100 + 1) / 2
    assert after.est_us == pytest.approx(factor * before.est_us, rel=0.001)
    assert f"2 trials of this rule on this machine gained {gain_us / 100:.2f} times" in after.basis
    assert after.correction == pytest.approx(factor)
    row = result.plan[0]
    assert (row.code, row.finding) == ("GM001", finding.id)
    assert [row.saving_us, row.low_us, row.high_us] == pytest.approx([after.est_us, after.low_us, after.high_us])
    assert what_if(str(folder), ["GM001"]).saving_us == pytest.approx(after.est_us, rel=0.001)
    assert what_if(str(folder), [one.code for one in result.plan]).saving_us == pytest.approx(
        sum(one.saving_us for one in result.plan), rel=0.001
    )


def test_what_is_tried_next_remembers_the_correction(tmp_path: Path) -> None:
    result = analyze(str(log_folder(tmp_path, "slow_loader", tried("DL001", 40.0))))
    [change], _ = changes_of(result, ["DL001"], None)
    rows = row_of(change, [], Rounds([], []), Expectation(change.alone))
    measured = replace(rows, before_us=1e3, after_us=900.0, low_share=0.1, high_share=0.1)
    [attempt] = attempts_of([measured], time=MADE.time, script=MADE.script, device=None, machine=result.run.machine)
    assert (attempt.machine, attempt.correction) == (HERE, found_in(result, "DL001")[1].correction)
    assert attempt.correction < 1


def test_other_rules_keep_their_savings(tmp_path: Path) -> None:
    folder = log_folder(tmp_path, "misaligned_vocabulary", tried("GM001", 40.0))
    raw, result = analyze(str(TRACES / "misaligned_vocabulary" / "plain")), analyze(str(folder))
    assert found_in(raw, "EF023")[1] == found_in(result, "EF023")[1]


@pytest.mark.parametrize("other", [None, replace(HERE, cpus=8), replace(HERE, gpu="Tesla T4")])
def test_trials_on_another_machine_change_nothing(tmp_path: Path, other: Machine | None) -> None:
    folder = log_folder(tmp_path, "misaligned_vocabulary", replace(tried("GM001", 40.0), machine=other))
    raw = analyze(str(TRACES / "misaligned_vocabulary" / "plain"))
    assert [one.saving for one in analyze(str(folder)).findings] == [one.saving for one in raw.findings]


def test_a_line_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    folder = log_folder(tmp_path, "misaligned_vocabulary", tried("GM001", 40.0))
    with (tmp_path / "traceopt-logs" / TRIALS_FILE).open("ab") as file:
        file.write(b'{"time": "cut o')
    result = analyze(str(folder))
    assert found_in(result, "GM001")[1].correction < 1
    assert any(f"{TRIALS_FILE}: 1 line cannot be read" in one for one in result.warnings)
