"""A pool of processes: the same bytes whatever their number, no rank lost with a worker, none left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from small_job import RANKS, VICTIM
from support.waiting import until

from traceopt.api import analyze
from traceopt.errors import InputError
from traceopt.result.document import Result


def test_the_same_bytes_whatever_the_number_of_workers(job: Path) -> None:
    one, two, four = (analyze(str(job), jobs=jobs, debug=True).to_json() for jobs in (1, 2, 4))
    assert one == two == four


def test_a_worker_that_dies_costs_no_rank(job: Path, accident: Path, whole: Result) -> None:
    (accident / "mode").write_text("die once")
    assert analyze(str(job), rules_dir=accident, jobs=3).to_json() == whole.to_json()
    assert (accident / "died").exists()


def test_a_rank_that_kills_its_worker_twice_is_left_out(job: Path, accident: Path) -> None:
    (accident / "mode").write_text("die")
    result = analyze(str(job), rules_dir=accident, jobs=2)
    assert result.run.ranks == [rank for rank in range(RANKS) if rank != VICTIM]
    killed, missing = result.warnings
    assert "host_5.1700000000000.pt.trace.json.gz: left out: its worker process was killed" in killed
    assert missing == f"Rank {VICTIM} of {RANKS} is missing: no trace was read for it"


class TestDamagedRanks:
    @pytest.fixture
    def damaged(self, job: Path, tmp_path: Path) -> Path:
        folder = tmp_path / "damaged"
        shutil.copytree(job, folder)
        for number in (1, 4):
            (folder / f"host_{number}.1700000000000.pt.trace.json.gz").write_bytes(b"\x1f\x8b\x08\x00\x00")
        return folder

    @pytest.mark.parametrize("jobs", [1, 2])
    def test_are_told_and_left_out(self, damaged: Path, jobs: int) -> None:
        result = analyze(str(damaged), jobs=jobs)
        first, second, missing = result.warnings
        assert "host_1." in first
        assert "host_4." in second
        assert missing == f"2 of {RANKS} ranks are missing: no trace was read for ranks 2, 5"
        assert result.run.ranks == [0, 1, 3, 4]

    @pytest.mark.parametrize("jobs", [1, 2])
    def test_named_by_the_user_the_first_of_them_is_an_error(self, damaged: Path, jobs: int) -> None:
        with pytest.raises(InputError, match=r"host_1\."):
            analyze(sorted(map(str, damaged.iterdir())), jobs=jobs)

    def test_one_that_no_rule_is_to_blame_for(self, job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """An error in traceopt itself costs the rank, not the run, except in debug mode."""
        from traceopt.workers import executors

        real = executors.analyze_rank

        def fails(task: executors.RankTask, count: Callable[[int], None] | None = None) -> bytes:
            if "host_1." in task.label:
                raise ZeroDivisionError("of steps")
            return real(task, count)

        monkeypatch.setattr(executors, "analyze_rank", fails)
        warning, _ = analyze(str(job)).warnings
        assert warning.endswith(
            "host_1.1700000000000.pt.trace.json.gz: left out: internal error: ZeroDivisionError: of steps"
        )
        with pytest.raises(ZeroDivisionError):
            analyze(str(job), debug=True)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
class TestNoProcessIsLeftBehind:
    @pytest.fixture
    def hanging(self, job: Path, accident: Path) -> subprocess.Popen[str]:
        """The command with two workers that are busy for minutes."""
        (accident / "mode").write_text("hang")
        command = [sys.executable, "-m", "traceopt", "analyze", str(job), "--no-html", "--jobs", "2"]
        process = subprocess.Popen(
            [*command, "--rules-dir", str(accident)], stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        until(lambda: len(list(accident.glob("pid*"))) == 2)
        assert len(members(process.pid)) >= 3
        return process

    def test_after_ctrl_c(self, hanging: subprocess.Popen[str]) -> None:
        os.killpg(hanging.pid, signal.SIGINT)  # as a terminal does
        _, told = hanging.communicate(timeout=60)
        assert (hanging.returncode, told.strip()) == (130, "traceopt: interrupted")
        until(lambda: not members(hanging.pid))

    @pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
    def test_after_the_program_alone_was_told(self, hanging: subprocess.Popen[str], how: signal.Signals) -> None:
        hanging.send_signal(how)
        hanging.communicate(timeout=60)
        until(lambda: not members(hanging.pid))

    @pytest.mark.skipif(
        len(os.sched_getaffinity(0)) < 2, reason="a trace is read by two processes where there are cores"
    )
    @pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
    def test_the_helper_that_reads_a_large_trace(self, how: signal.Signals, tmp_path: Path) -> None:
        event = b'{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 5, "dur": 2, "args": {"x": [1, 2, 3]}},'
        trace = tmp_path / "large.json"
        trace.write_bytes(b'{"traceEvents": [' + event * 300_000)
        command = [sys.executable, "-c", SLOW_AND_SHARED, "analyze", str(trace), "--no-html"]
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        until(lambda: len(members(process.pid)) == 2)
        process.send_signal(how)
        process.communicate(timeout=60)
        assert process.returncode == (130 if how is signal.SIGINT else -how)
        until(lambda: not members(process.pid))


SLOW_AND_SHARED = """
import time
from traceopt.analyzer.reading import two_processes
from traceopt.analyzer.reading.table_builder import TableBuilder
from traceopt.cli import main
add = TableBuilder.add
TableBuilder.add = lambda self, events: (time.sleep(0.2), add(self, events))
two_processes.SHARED_FROM_BYTES = 1
main()
"""


def members(session: int) -> list[int]:
    """The running processes of a session."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, of_session = stat.read_text().rpartition(")")[2].split()[:4]
        except OSError:  # it ended
            continue
        if int(of_session) == session and state != "Z":
            found.append(int(stat.parent.name))
    return found
