"""A session of an assistant over stdio: record, analyze, explain, patch, try, compare, to a gain that was measured."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp_clients import awaited, text_of

WORKLOAD = Path(__file__).with_name("slow_disk.py")


def environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith("TRACEOPT")} | {"OMP_NUM_THREADS": "1"}


def execute(*words: str, folder: Path) -> str:
    done = subprocess.run(words, cwd=folder, env=environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def record(name: str, folder: Path) -> None:
    options = ("--quiet", "--preset", "quick", "--stop-after", "--no-html", "--logdir", f"traceopt-logs/{name}")
    execute(sys.executable, "-m", "traceopt", "run", "--measure", "0", *options, "train.py", folder=folder)


@pytest.mark.torch
def test_from_a_recording_to_a_measured_gain(tmp_path: Path) -> None:
    shutil.copy(WORKLOAD, tmp_path / "train.py")
    record("before", tmp_path)
    awaited(asyncio.wait_for(session(tmp_path), 280))


async def session(folder: Path) -> None:
    arguments = ["-m", "traceopt", "mcp", "--root", str(folder), "--allow-run"]
    progress: list[str | None] = []

    async def follow(_: float, __: float | None, message: str | None) -> None:
        progress.append(message)

    server = StdioServerParameters(command=sys.executable, args=arguments, env=environment(), cwd=folder)
    async with Client(server) as client:

        async def answer(tool: str, **arguments: Any) -> dict[str, Any]:
            result = await client.call_tool(tool, arguments, progress_callback=follow)
            assert not result.is_error, text_of(result)
            return result.structured_content or {}

        analyzed = await answer("analyze", path="traceopt-logs/before")
        [loader] = [row for row in analyzed["plan"] if row["id"].startswith("DL001-")]
        assert loader["has_patch"]
        explained = await answer("explain", path="traceopt-logs/before", finding=loader["id"])
        assert any("DataLoader(SlowDisk()" in line for line in explained["source_lines"])
        patch = await answer("patch", path="traceopt-logs/before", findings=[loader["id"]])
        tried = await answer("try_variant", script="train.py", diff=patch["diff"], minutes=0.5, steps=8)
        [row] = tried["tried"]
        assert row["losses"] == "identical"
        if row["verdict"] == "unclear":  # the machine was too busy for an answer within the time
            assert tried.get("kept_diff") is None  # left out where nothing is kept
        else:
            assert row["verdict"] == "keep"
            assert row["low_share"] > 0.1
            assert tried["kept_diff"] == patch["diff"]
        assert any("trying 1 of 1" in (line or "") for line in progress)
        assert "num_workers=0" in (folder / "train.py").read_text()  # the working tree is as before
        (folder / "kept.diff").write_text(patch["diff"])
        execute("git", "apply", "kept.diff", folder=folder)
        record("after", folder)
        compared = await answer("compare", base=["traceopt-logs/before"], head=["traceopt-logs/after"])
        assert compared["head_ms"] < compared["base_ms"]
        assert compared["breakdown"][0]["part"] == "Waiting for data"
