"""What the CPU reaches: measured after a run without a GPU, cached, and added to the traces."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from traceopt.capture.launch import cpu_peaks, measure_cpu
from traceopt.capture.metadata import cpu
from traceopt.capture.recording.trace_file import open_saved, save

CPUINFO = """processor\t: 0
model name\t: Example CPU
siblings\t: 8
cpu cores\t: 4
flags\t\t: fpu avx2 fma avx512f avx512_bf16 rdseed

processor\t: 1
model name\t: Other
"""
RATES = {"threads": 2, "matmul_gflops_per_s": {"fp32": 100.0, "bf16": 400.0}, "copy_gb_per_s": 20.0}


class Profiler:
    """Writes what Kineto would."""

    def export_chrome_trace(self, path: str) -> None:
        Path(path).write_text('{"schemaVersion": 1, "traceEvents": [' + ", ".join(["{}"] * 5_000) + "]}")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpuinfo").write_text(CPUINFO)
    monkeypatch.setattr(cpu, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The measurements that were asked for."""
    asked: list[dict[str, Any]] = []

    def answer(key: dict[str, Any]) -> dict[str, Any]:
        asked.append(key)
        return RATES

    monkeypatch.setattr(cpu_peaks, "_measure", answer)
    return asked


def trace(folder: Path, **environment: Any) -> Path:
    found = {"cpu": cpu.describe_machine(), "cpu_affinity": 8, "gpus": [], "threads": 2} | environment
    head = {"cycle": {"name": "timing"}, "torch_version": "2.13.0", "environment": found, "pid": 7}
    return save(Profiler(), folder, "worker", head).path


def head(path: Path) -> dict[str, Any]:
    own: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))["traceopt"]
    return own


@pytest.mark.usefixtures("machine")
class TestMachine:
    def test_is_that_of_the_first_core(self) -> None:
        flags = ["avx2", "fma", "avx512f", "avx512_bf16"]
        assert cpu.describe_machine() == {"model": "Example CPU", "flags": flags, "threads_per_core": 2}

    def test_arm_names_its_features(self, tmp_path: Path) -> None:
        (tmp_path / "cpuinfo").write_text("CPU implementer\t: 0x41\nFeatures\t: fp asimd bf16\nCPU part\t: 0xd4f\n")
        assert cpu.describe_machine() == {"model": "0x41 0xd4f", "flags": ["asimd", "bf16"], "threads_per_core": None}

    def test_without_the_file_nothing_is_known(self, tmp_path: Path) -> None:
        (tmp_path / "cpuinfo").unlink()
        assert set(cpu.describe_machine().values()) == {None}


@pytest.mark.usefixtures("machine")
class TestTraces:
    def test_get_the_rates_and_keep_everything_else(self, tmp_path: Path, measured: list[dict[str, Any]]) -> None:
        path = trace(tmp_path)
        before = json.loads(gzip.decompress(path.read_bytes()))
        cpu_peaks.add_cpu_peaks([path])
        after = json.loads(gzip.decompress(path.read_bytes()))
        assert after["traceopt"].pop("cpu_peaks") == RATES
        assert after == before
        [asked] = measured
        assert (asked["threads"], asked["all_threads"], asked["bf16"]) == (2, 4, True)

    def test_a_machine_is_measured_once(self, tmp_path: Path, measured: list[dict[str, Any]]) -> None:
        cpu_peaks.add_cpu_peaks([trace(tmp_path), trace(tmp_path)])
        cpu_peaks.add_cpu_peaks([last := trace(tmp_path)])
        assert head(last)["cpu_peaks"] == RATES
        assert len(measured) == 1

    def test_other_threads_are_measured_again(self, tmp_path: Path, measured: list[dict[str, Any]]) -> None:
        cpu_peaks.add_cpu_peaks([trace(tmp_path), trace(tmp_path, threads=4)])
        assert [(one["threads"], one["all_threads"]) for one in measured] == [(2, 4), (4, None)]

    def test_what_a_busy_machine_left_out_is_measured_again_later(
        self, tmp_path: Path, measured: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(RATES, "copy_gb_per_s", None)
        cpu_peaks.add_cpu_peaks([trace(tmp_path), trace(tmp_path)])
        assert len(measured) == 1
        [entry] = (tmp_path / "cache").rglob("*.json")
        long_ago = time.time() - 2 * cpu_peaks.REPEAT_S
        os.utime(entry, (long_ago, long_ago))
        cpu_peaks.add_cpu_peaks([trace(tmp_path)])
        assert len(measured) == 2

    def test_rates_of_another_day_are_measured_again_but_not_lost_to_a_busy_machine(
        self, tmp_path: Path, measured: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Other programs may have slowed the machine then, or may do so now."""
        cpu_peaks.add_cpu_peaks([trace(tmp_path)])
        [entry] = (tmp_path / "cache").rglob("*.json")

        def the_next_day() -> dict[str, Any]:
            os.utime(entry, (long_ago, long_ago))
            cpu_peaks.add_cpu_peaks([last := trace(tmp_path)])
            rates: dict[str, Any] = head(last)["cpu_peaks"]
            return rates

        long_ago = time.time() - 2 * cpu_peaks.REPEAT_S
        monkeypatch.setitem(RATES, "copy_gb_per_s", None)
        assert the_next_day()["copy_gb_per_s"] is not None
        monkeypatch.setitem(RATES, "copy_gb_per_s", 77.0)
        assert the_next_day()["copy_gb_per_s"] == 77.0
        assert len(measured) == 3

    @pytest.mark.parametrize(
        "environment",
        [{"gpus": [{"name": "A100"}]}, {"cpu": {"model": "Another"}}, {"threads": None}, {"cpu": None}],
        ids=["GPU", "other machine", "no threads", "older recording"],
    )
    def test_of_other_runs_stay_as_they_are(
        self, tmp_path: Path, measured: list[dict[str, Any]], environment: dict[str, Any]
    ) -> None:
        path = trace(tmp_path, **environment)
        before = path.read_bytes()
        cpu_peaks.add_cpu_peaks([path])
        assert path.read_bytes() == before
        assert not measured

    def test_stay_as_they_are_if_nothing_can_be_measured(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
        path = trace(tmp_path)
        before = path.read_bytes()
        cpu_peaks.add_cpu_peaks([path])
        assert path.read_bytes() == before

    @pytest.mark.parametrize("data", [b"", b"{}", gzip.compress(b"{}", mtime=0), b"\x1f\x8b" * 50])
    def test_files_of_others_are_left_alone(self, tmp_path: Path, measured: list[dict[str, Any]], data: bytes) -> None:
        path = tmp_path / "other.json.gz"
        path.write_bytes(data)
        cpu_peaks.add_cpu_peaks([path, tmp_path / "missing"])
        assert path.read_bytes() == data
        assert not measured

    def test_a_damaged_trace_is_a_value_error(self, tmp_path: Path) -> None:
        path = trace(tmp_path)
        data = path.read_bytes()
        path.write_bytes(data[:12] + bytes(20) + data[32:])
        with pytest.raises(ValueError, match=r"damaged|Expecting"):
            open_saved(path)


class TestMeasurement:
    def test_repetitions_without_a_core_do_not_count(self, monkeypatch: pytest.MonkeyPatch) -> None:
        waits = iter(range(1_000_000))
        monkeypatch.setattr(measure_cpu, "core_wait_s", lambda: float(next(waits)))
        monkeypatch.setattr(measure_cpu, "MOST_SECONDS", 0.02)
        assert measure_cpu.shortest_s(lambda: None) is None

    def test_the_shortest_of_those_that_agree(self, monkeypatch: pytest.MonkeyPatch) -> None:
        now = 0.0
        durations = iter([9.0, 5.0, 2.1, 7.0, 2.0, 2.05, 1.0])

        def repetition() -> None:
            nonlocal now
            now += next(durations)

        monkeypatch.setattr(measure_cpu, "core_wait_s", lambda: 0.0)
        monkeypatch.setattr(measure_cpu, "SECONDS", 10.0)
        monkeypatch.setattr(measure_cpu, "MOST_SECONDS", 100.0)
        monkeypatch.setattr(measure_cpu.time, "perf_counter", lambda: now)
        assert measure_cpu.shortest_s(repetition) == pytest.approx(2.0)

    def test_a_page_costs_what_new_memory_takes_longer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def taken(repetition: Callable[[], object]) -> float:
            repetition()
            return {"in_new_memory": 0.0024, "in_kept_memory": 0.0004}[repetition.__name__]

        monkeypatch.setattr(measure_cpu, "shortest_s", taken)
        assert measure_cpu.page_fault_us() == pytest.approx(2_000 / measure_cpu.PAGES, abs=0.001)
        monkeypatch.setattr(measure_cpu, "shortest_s", lambda _: None)
        assert measure_cpu.page_fault_us() is None

    @pytest.mark.torch
    def test_the_script_prints_every_rate_or_null(self) -> None:
        wanted = json.dumps({"threads": 1, "all_threads": None, "bf16": False})
        done = subprocess.run([sys.executable, measure_cpu.__file__, wanted], capture_output=True, check=True)
        found = json.loads(done.stdout)
        assert found["torch_version"]
        rates = found["cpu_peaks"]
        assert set(rates["matmul_gflops_per_s"]) == {"fp32", "fp64"}
        assert set(rates["convolution_gflops_per_s"]) == {"contiguous", "channels_last"}
        fp64 = rates["convolution_fp64_gflops_per_s"]
        values = [fp64, *rates["matmul_gflops_per_s"].values(), *rates["convolution_gflops_per_s"].values()]
        assert all(value is None or value > 0 for value in [*values, rates["copy_gb_per_s"], rates["page_fault_us"]])
