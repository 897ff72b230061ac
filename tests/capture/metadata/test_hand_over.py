"""The measurement of what a DataLoader worker costs: a program with processes of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from traceopt.capture.metadata.loading import hand_over

pytestmark = pytest.mark.slow  # each starts processes

linux = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system cannot measure it")


def running(session: int) -> set[int]:
    """The processes of a session that have not ended."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, its_session = path.read_text().rpartition(")")[2].split()[:4]
        except OSError:  # it has ended
            continue
        if int(its_session) == session and state != "Z":
            found.add(int(path.parent.name))
    return found


KILLED = """
import multiprocessing, os, signal, sys
sys.path.insert(0, sys.argv[1])
import hand_over
context = multiprocessing.get_context("fork")
ours, theirs = context.Pipe()
tasks, batches = context.Queue(), context.Queue()
context.Process(target=hand_over._beside, args=(theirs,)).start()
context.Process(target=hand_over._send, args=(tasks, batches, [4096], b"")).start()
ours.recv()
os.kill(os.getpid(), signal.SIGKILL)
"""


@linux
def test_processes_of_a_program_that_is_killed_end() -> None:
    """As when the machine is so busy that the measurement takes too long. A process that goes on holds a core."""
    words = [sys.executable, "-I", "-S", "-c", KILLED, str(Path(hand_over.PROGRAM).parent)]
    program = subprocess.Popen(words, start_new_session=True)
    assert program.wait() == -signal.SIGKILL
    until = time.monotonic() + 60
    while (left := running(program.pid)) and time.monotonic() < until:
        time.sleep(0.05)
    assert left == set()


@linux
def test_what_it_measures() -> None:
    measured = hand_over.measure_hand_over(2, 4096, 64)
    assert measured is None or {"us", "worker_us"} <= measured.keys()  # None: the machine was too busy


def test_a_system_without_shared_memory_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    assert hand_over.measure_hand_over(1, 4096, 64) is None
