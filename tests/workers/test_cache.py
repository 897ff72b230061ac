"""The cache: an unchanged trace is read once; stale, damaged or half-written entries are ignored."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_job import RANKS

from traceopt.api import analyze
from traceopt.errors import ConfigError, InputError
from traceopt.result.document import Result
from traceopt.workers import cache as caching
from traceopt.workers import rank_analysis


@pytest.fixture
def logs(job: Path, tmp_path: Path) -> Path:
    """Three of the ranks, to be changed."""
    folder = tmp_path / "logs"
    folder.mkdir()
    for path in sorted(job.iterdir())[:3]:
        shutil.copy(path, folder)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


class Readings:
    """Counts the traces that are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._read: Callable[..., Any] = rank_analysis.read_recording
        monkeypatch.setattr(rank_analysis, "read_recording", self)

    def __call__(self, *arguments: Any) -> Any:
        self.count += 1
        return self._read(*arguments)

    def of(self, path: Path, folder: Path, **options: Any) -> tuple[Result, int]:
        before = self.count
        return analyze(str(path), cache=folder, **options), self.count - before


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> Readings:
    return Readings(monkeypatch)


def test_an_unchanged_trace_is_read_once(logs: Path, folder: Path, readings: Readings) -> None:
    plain = analyze(str(logs)).to_json()
    for expected in (3, 0, 0):
        result, read = readings.of(logs, folder)
        assert (result.to_json(), read) == (plain, expected)
    assert len(list(folder.iterdir())) == 3


def test_what_decides_the_answer_decides_the_entry(
    logs: Path, folder: Path, readings: Readings, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings.of(logs, folder)
    first, *_ = sorted(logs.iterdir())
    first.write_bytes(gzip.compress(gzip.decompress(first.read_bytes()) + b"\n"))
    assert readings.of(logs, folder)[1] == 1
    assert readings.of(logs, folder, tokens_per_step=4096.0)[1] == 3
    assert readings.of(logs, folder, ignore=["DL"])[1] == 3
    assert readings.of(logs, folder, thresholds={"DL001": {"min_share": 0.5}})[1] == 3
    assert readings.of(logs, folder, select=["DL", "CM", "HS001"])[1] == 3
    first.rename(logs / "rank77.json.gz")
    assert readings.of(logs, folder)[1] == 1
    monkeypatch.setattr(caching, "program", lambda _: "another")
    assert readings.of(logs, folder)[1] == 3


def test_a_rule_that_changed_is_another_program(logs: Path, folder: Path, accident: Path, readings: Readings) -> None:
    readings.of(logs, folder, rules_dir=accident)
    assert readings.of(logs, folder, rules_dir=accident)[1] == 0
    rule = accident / "accident.py"
    rule.write_text(rule.read_text().replace("None happened.", "Nothing happened."))
    result, read = readings.of(logs, folder, rules_dir=accident)
    assert read == 3
    assert [check.reason for check in result.checks if check.code == "ZZ001"] == ["Nothing happened."]


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda entry: entry[:10],
        lambda entry: entry[:-1],
        lambda entry: entry[:1000] + bytes([entry[1000] ^ 1]) + entry[1001:],
        lambda _: caching._checksum(b"\xc1") + b"\xc1",
        lambda _: caching._checksum(b"\x93\x01\x02\x03") + b"\x93\x01\x02\x03",
        lambda _: b"\0" * 5000,
    ],
    ids=["empty", "its beginning", "cut off", "a bit", "no MessagePack", "of another shape", "zeros"],
)
def test_a_damaged_entry_is_as_none(
    logs: Path, folder: Path, readings: Readings, damage: Callable[[bytes], bytes]
) -> None:
    whole, _ = readings.of(logs, folder)
    entry = min(folder.iterdir())
    good = entry.read_bytes()
    entry.write_bytes(damage(good))
    result, read = readings.of(logs, folder)
    assert (result.to_json(), read) == (whole.to_json(), 1)
    assert entry.read_bytes() == good


def test_a_failure_is_not_kept(logs: Path, folder: Path, readings: Readings) -> None:
    broken = logs / "broken.json"
    broken.write_bytes(b'{"traceEvents": []}')
    for expected in (4, 1):
        result, read = readings.of(logs, folder)
        assert read == expected
        assert "broken.json" in result.warnings[0]
    assert len(list(folder.iterdir())) == 3
    with pytest.raises(InputError):
        readings.of(broken, folder)


def test_a_file_that_changes_while_it_is_read_is_not_kept(
    logs: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def grows(recording: Any, *rest: Any) -> Any:
        os.utime(recording.source.place, ns=(1, 1))
        return read(recording, *rest)

    read = rank_analysis.read_recording
    monkeypatch.setattr(rank_analysis, "read_recording", grows)
    analyze(str(logs), cache=folder)
    assert list(folder.iterdir()) == []


def test_a_write_that_fails_leaves_nothing_and_costs_nothing(
    logs: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert analyze(str(logs), cache=folder).to_json() == analyze(str(logs)).to_json()
    assert list(folder.iterdir()) == []


def test_a_crash_leaves_no_entry(job: Path, folder: Path, accident: Path) -> None:
    """A worker dies with its rank; the answers of the others are there the next time."""
    (accident / "mode").write_text("die")
    analyze(str(job), cache=folder, rules_dir=accident, jobs=2)
    assert len(list(folder.glob("*.rank"))) == RANKS - 1


def test_runs_beside_each_other(logs: Path, folder: Path) -> None:
    command = [sys.executable, "-m", "traceopt", "analyze", str(logs), "--format", "json", "--no-html"]
    runs = [
        subprocess.Popen([*command, "--cache", str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    told = {run.communicate(timeout=120) for run in runs}
    assert told == {(analyze(str(logs)).to_json(), b"")}
    assert len(list(folder.iterdir())) == 3


def test_a_folder_that_cannot_be_used(logs: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot use the cache"):
        analyze(str(logs), cache=tmp_path / "file")
    with pytest.raises(ConfigError, match="cannot use the cache"):
        analyze(str(logs), cache=tmp_path / "file" / "below")
