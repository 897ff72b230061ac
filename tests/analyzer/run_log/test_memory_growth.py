"""Memory over a whole run: a planted leak is found, and memory that fills, jumps, or grows with the batches is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from fixtures.memory_snapshots import HISTORY_LINE, SCRIPT, training
from traceopt.analyzer.companions.companions import Companions
from traceopt.analyzer.companions.memory_snapshot.memory_snapshot import read_memory_snapshot
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.reading.source_search import find_sources
from traceopt.analyzer.run_log.step_memory import read_step_memory
from traceopt.rules.catalogue.mm005_memory_growth import MemoryGrowth
from traceopt.rules.catalogue.rh003_step_drift import StepDrift
from traceopt.testing import A100, Machine, answer, assert_finds, assert_silent

STEPS = 1_000
MIB = 1 << 20
NUMBERS = np.arange(STEPS)


def run_with(memory: dict[str, Any], **ledger: Any) -> Machine:
    """A run whose steps all take 10 ms, with memory read after every step."""
    machine = Machine(A100)
    machine.metadata["traceopt"] = {
        "ledger": {"step_us": [10_000.0] * STEPS} | ledger,
        "step_memory": {"steps": NUMBERS.tolist()} | {name: list(map(int, row)) for name, row in memory.items()},
    }
    for _ in range(5):
        with machine.step():
            machine.launch(5_000)
            machine.synchronize()
    return machine


def noisy(values: Any) -> Any:
    """Ten times as much as a step leaves behind comes and goes."""
    return values + np.random.default_rng(4).integers(0, 10 * MIB, STEPS)


LEAK = noisy(2_000 * MIB + NUMBERS * MIB)
LEVEL = noisy(np.full(STEPS, 2_000 * MIB))
HARMLESS = {
    "level": LEVEL,
    "a cache that fills up": noisy(2_000 * MIB + 1_000 * MIB * (1 - np.exp(-NUMBERS / 200))),
    "a vocabulary of a logarithm": noisy(2_000 * MIB + 300 * MIB * np.log1p(NUMBERS)),
    "one jump": LEVEL + np.where(NUMBERS >= 500, 1_000 * MIB, 0),
    "a sawtooth": noisy(2_000 * MIB + NUMBERS % 250 * 4 * MIB),
    "it falls": LEAK[::-1],
    "little": 2_000 * MIB + NUMBERS * 1_000,
}


def test_a_leak_on_the_gpu_is_found_and_asks_for_a_snapshot() -> None:
    finding = assert_finds(MemoryGrowth, run_with({"device_bytes": LEAK, "process_bytes": LEVEL}))
    assert finding.why.startswith("The memory that tensors hold on the GPU grows from 2.0 GiB to 2.9 GiB between steps")
    assert finding.evidence[0].detail == "0.99 MiB"
    assert finding.fix.code == "traceopt run --memory-snapshot train.py"
    assert finding.confidence == "medium"


def test_a_leak_of_the_process_beside_a_gpu_asks_for_no_snapshot() -> None:
    finding = assert_finds(MemoryGrowth, run_with({"device_bytes": LEVEL, "process_bytes": LEAK}))
    assert finding.why.startswith("The memory of the process grows from")
    assert "not on the GPU" in finding.fix.text


@pytest.mark.parametrize("name", HARMLESS)
def test_other_memory_is_no_leak(name: str) -> None:
    assert_silent(MemoryGrowth, run_with({"device_bytes": HARMLESS[name]}))


def test_batches_that_grow_may_explain_it() -> None:
    longer = (1_000 + NUMBERS).tolist()
    check, findings = answer(MemoryGrowth, run_with({"device_bytes": LEAK}, elements=longer))
    assert not findings
    assert check.reason.endswith("and so do the batches.")


def test_the_longest_stretch_without_a_profiler_counts() -> None:
    """What the recording itself keeps is a jump at its end."""
    window = {"cycle": "timing", "warmup_from": 600, "from": 600, "until": 610}
    kept = LEVEL + np.where(NUMBERS >= 610, 500 * MIB, 0)
    assert_silent(MemoryGrowth, run_with({"process_bytes": kept}, windows=[window]))
    finding = assert_finds(MemoryGrowth, run_with({"process_bytes": LEAK}, windows=[window]))
    assert "between steps 3 and 599," in finding.why


def test_few_readings_are_not_judged() -> None:
    machine = run_with({"device_bytes": LEAK})
    machine.metadata["traceopt"]["step_memory"] = {
        "steps": NUMBERS[::50].tolist(),
        "device_bytes": list(map(int, LEAK[::50])),
    }
    assert answer(MemoryGrowth, machine)[0].status == "not_applicable"
    del machine.metadata["traceopt"]["step_memory"]
    assert answer(MemoryGrowth, machine)[0].status == "not_checked"


def test_a_snapshot_names_the_line(tmp_path: Path) -> None:
    file = training("history").write(tmp_path / "snapshot.pickle")
    snapshot = read_memory_snapshot([one.source for one in find_sources([str(file)]).companions], [])
    facts = run_with({"device_bytes": noisy(2_000 * MIB + NUMBERS * 16 * MIB)}).facts()
    beside = Facts(facts.trace, companions=replace(Companions(), memory_snapshot=snapshot))
    finding = assert_finds(MemoryGrowth, beside)
    assert [(one.file, one.line) for one in finding.locations[:1]] == [(SCRIPT, HISTORY_LINE)]
    assert finding.confidence == "high"
    other = run_with({"device_bytes": noisy(2_000 * MIB + NUMBERS * 100 * MIB)}).facts()  # mostly something else
    both = assert_finds(MemoryGrowth, Facts(other.trace, companions=replace(Companions(), memory_snapshot=snapshot)))
    assert "leaves 16.0 MiB more" in both.why
    assert "99.9 MiB per step" in both.why


def slower(**memory: Any) -> Any:
    """What RH003 says of a run whose steps take twice as long from step 600 on."""
    step_us = np.where(NUMBERS >= 600, 20_000.0, 10_000.0) + np.random.default_rng(2).normal(0, 200, STEPS)
    return assert_finds(StepDrift, run_with(memory, step_us=step_us.tolist()))


def test_memory_that_grows_with_the_steps_is_named() -> None:
    later = np.where(NUMBERS >= 600, 1_000 * MIB, 0)
    unexplained = "Neither the wait for data nor garbage collection explains it."
    finding = slower(device_bytes=LEVEL + later, process_bytes=LEVEL)
    assert finding.why.endswith("Memory grows with them: tensors on the GPU, from 2.0 GiB to 2.9 GiB.")
    assert finding.evidence[-1].what == "Median memory of tensors on the GPU"
    peak = slower(device_bytes=LEVEL, device_peak_bytes=LEVEL + later)
    assert peak.why.endswith("Memory grows with them: the peak on the GPU, from 2.0 GiB to 2.9 GiB.")
    assert slower(device_bytes=LEVEL - later, process_bytes=LEVEL).why.endswith(unexplained)
    assert slower(device_bytes=noisy(LEVEL + LEAK // 100)).why.endswith(unexplained)


@pytest.mark.parametrize(
    "odd",
    [
        None,
        [],
        {"steps": []},
        {"steps": "x"},
        {"steps": [0, 0, 1]},
        {"steps": [2, 1]},
        {"steps": [0, None]},
        {"steps": [-1, 0]},
        {"steps": list(range(20_000))},
    ],
    ids=str,
)
def test_odd_steps_are_no_readings(odd: object) -> None:
    assert read_step_memory(odd) is None


def test_odd_readings_are_not_known() -> None:
    read = read_step_memory({"steps": [0, 1, 2], "device_bytes": [1, "x", -5], "process_bytes": [1], "more": 1})
    assert read is not None
    assert read.device_bytes.tolist() == [1, -1, -1]
    assert read.process_bytes.tolist() == [-1, -1, -1]
