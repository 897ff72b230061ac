"""Cores and memory that the machine and the containers around a process leave it."""

from __future__ import annotations

from pathlib import Path

import pytest

from traceopt.capture import machine


@pytest.fixture
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with 2,048,000 bytes to get; the process is in the group /job, which has no limit of its own yet."""
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable: 2000 kB\n")
    (tmp_path / "own").write_text("1:cpu:/\n0::/job\n")
    for name, path in (("CGROUP", ""), ("MEMINFO", "meminfo"), ("_OWN_GROUP", "own")):
        monkeypatch.setattr(machine, name, tmp_path / path)
    return tmp_path


def write(folder: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)


@pytest.mark.parametrize(
    ("files", "cores_worth"),
    [
        ({"cpu.max": "250000 100000\n"}, 2.5),
        ({"cpu.max": "max 100000\n", "job/cpu.max": "100000 100000\n"}, 1.0),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "150000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 1.5),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({}, None),
    ],
)
def test_a_container_s_share_of_the_cores(files: dict[str, str], cores_worth: float | None, container: Path) -> None:
    write(container, files)
    assert machine.cpu_quota() == cores_worth
    assert cores_worth != 1.0 or machine.usable_cores() == 1


@pytest.mark.parametrize(
    ("files", "available"),
    [
        ({}, 2_048_000),
        ({"memory.max": "max\n", "memory.current": "5\n", "memory.stat": ""}, 2_048_000),
        ({"memory.max": "9000\n", "memory.current": "5000\n", "memory.stat": "anon 1\ninactive_file 1000\n"}, 5_000),
        ({"job/memory.max": "9000\n", "job/memory.current": "5000\n", "job/memory.stat": "anon 1\n"}, 4_000),
        (
            {
                "memory/memory.limit_in_bytes": "9000",
                "memory/memory.usage_in_bytes": "5000",
                "memory/memory.stat": "inactive_file 1\ntotal_inactive_file 2000\n",
            },
            6_000,
        ),
    ],
)
def test_the_memory_that_is_available(files: dict[str, str], available: int, container: Path) -> None:
    """The file cache of a container counts as free."""
    write(container, files)
    assert machine.available_memory_bytes() == available


def test_this_machine() -> None:
    assert machine.usable_cores() >= 1
    available = machine.available_memory_bytes()
    assert available is None or available >= 0
