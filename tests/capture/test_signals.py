"""Signals that `traceopt run` receives, alone or with all of its process group."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from traceopt.capture.launch import launcher
from traceopt.capture.launch.group_member import GroupMember

SLEEPS = [sys.executable, "-c", "import time; time.sleep(60)"]


def test_a_signal_that_arrives_while_another_is_handled_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """`timeout` sends two: to traceopt, and to the group. Two handlers that wait for one helper would wait for ever."""
    handling: list[str] = []

    class Group:
        def received(self, number: int) -> bool:
            first = not handling
            handling.append("begins")
            if first:
                os.kill(os.getpid(), number)
            handling.append("ends")
            return first

        def leave(self) -> None:
            handling.append("left")

    def send_the_first() -> None:
        if not handling:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(launcher, "GroupMember", Group)
    assert launcher.run_command(SLEEPS, dict(os.environ), send_the_first) == -signal.SIGTERM
    assert handling == ["begins", "ends", "begins", "ends", "left"]


@pytest.mark.skipif(sys.platform != "linux", reason="Only Linux tells which processes are children, and their signals")
@pytest.mark.parametrize("stopped", [False, True])
def test_a_signal_to_the_group_is_told_from_one_to_traceopt(stopped: bool) -> None:
    """A member that is stopped, as by Ctrl-Z, receives the signal only when it goes on."""
    tasks = Path("/proc/self/task").glob("*/children")
    before = {pid for task in tasks for pid in task.read_text().split()}
    member = GroupMember()
    try:
        tasks = Path("/proc/self/task").glob("*/children")
        [helper] = {int(pid) for task in tasks for pid in task.read_text().split() if pid not in before}
        if stopped:
            os.kill(helper, signal.SIGSTOP)
            os.waitpid(helper, os.WUNTRACED)
        os.kill(helper, signal.SIGTERM)
        assert member.received(signal.SIGTERM)
        assert not member.received(signal.SIGTERM)
    finally:
        member.leave()
