"""Shared by the tests of many ranks: the size of their job, and a rule that fails on demand."""

from __future__ import annotations

RANKS = 6
VICTIM = 3

# The file `mode` next to the rule says what it does; it is read again for each rank.
RULE = f"""
import os, signal, time
from pathlib import Path
from traceopt.rules.rule import Rule

HERE = Path(__file__).parent

class Accident(Rule):
    code, name, title, family, effort, risk = "ZZ001", "accident", "Have none", "host", "Low", "None"

    def check(self, facts):
        mode, rank = (HERE / "mode").read_text(), facts.trace.meta.rank
        (HERE / f"pid{{rank}}").write_text(str(os.getpid()))
        if rank == {VICTIM} and mode == "die once" and not (HERE / "died").exists():
            (HERE / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if rank == {VICTIM} and mode == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if rank == {VICTIM} and mode == "hang once" and not (HERE / "hung").exists():
            (HERE / "hung").touch()
            time.sleep(600)
        if mode == "hang":
            time.sleep(600)
        if mode == "be slow":
            time.sleep(0.5)
        return iter(())

    def passed(self, facts):
        return "None happened."
"""
