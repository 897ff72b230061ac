"""Memory snapshots: each planted fault is told from its fixed twin with its line, and the sums agree with the
simulated allocator.
"""

from __future__ import annotations

import io
import pickle
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import traceopt
from fixtures.generate import generate
from fixtures.memory_snapshots import (
    BUILD_LINE,
    FAULTS,
    HISTORY_LINE,
    MIB,
    MODEL_LINE,
    SCRIPT,
    TABLE_LINE,
    Allocator,
    training,
)
from traceopt.analyzer.companions.memory_snapshot.memory_snapshot import MemorySnapshot, read_memory_snapshot
from traceopt.analyzer.companions.memory_snapshot.owners import NO_PYTHON
from traceopt.analyzer.companions.memory_snapshot.plain_pickle import PlainPickle
from traceopt.analyzer.reading.source_search import find_sources
from traceopt.cli import cli
from traceopt.errors import InputError
from traceopt.reports.html.page import render_html
from traceopt.reports.text.markdown import render_markdown
from traceopt.result.document import Result

CODES = {"MM008", "MM005", "MM004", "MM003"}


def of_value(value: Any, folder: Path, protocol: int = 4) -> MemorySnapshot:
    path = folder / "snapshot.pickle"
    path.write_bytes(pickle.dumps(value, protocol=protocol))
    return of_file(path)


def of_file(path: Path) -> MemorySnapshot:
    found = read_memory_snapshot([one.source for one in find_sources([str(path)]).companions], [])
    assert found is not None
    return found


@cache
def device(fault: str | None = None) -> Allocator:
    return training(fault)


def result_of(path: Path) -> Result:
    return traceopt.analyze(str(path))


class TestPlanted:
    @pytest.mark.parametrize("fault", FAULTS)
    def test_each_fault_is_found_at_its_line(self, fault: str, tmp_path: Path) -> None:
        result = result_of(device(fault).write(tmp_path / "snapshot.pickle"))
        found = {one.code: one for one in result.findings}
        assert tuple(found) == FAULTS[fault].codes
        last = found[FAULTS[fault].codes[-1]]
        assert [(one.file, one.line) for one in last.locations[:1]] == [(SCRIPT, FAULTS[fault].line)]

    def test_the_fixed_twin_is_silent(self, tmp_path: Path) -> None:
        result = result_of(device().write(tmp_path / "snapshot.pickle"))
        assert result.findings == []
        assert {one.status for one in result.checks if one.code in CODES} == {"passed"}

    def test_without_marks_of_steps_growth_is_not_judged(self, tmp_path: Path) -> None:
        snapshot = training("history", annotations=False).write(tmp_path / "snapshot.pickle")
        check = next(one for one in result_of(snapshot).checks if one.code == "MM005")
        assert (check.status, check.reason) == (
            "not_applicable",
            "The snapshot's history marks too few steps to judge growth.",
        )


class TestMeasured:
    def test_the_curve_is_the_simulated_allocators(self, tmp_path: Path) -> None:
        simulated = device("history")
        snapshot = of_file(simulated.write(tmp_path / "snapshot.pickle"))
        change = {"alloc": 1, "free_completed": -1}
        allocated = np.cumsum([change.get(one["action"], 0) * one["size"] for one in simulated.entries])
        assert np.array_equal(snapshot.curve.allocated[:-1], allocated)
        change = {"segment_alloc": 1, "segment_free": -1}
        reserved = np.cumsum([change.get(one["action"], 0) * one["size"] for one in simulated.entries])
        assert np.array_equal(snapshot.curve.reserved[:-1], reserved)

    def test_holders_add_up_to_the_peak(self, tmp_path: Path) -> None:
        snapshot = of_file(device("history").write(tmp_path / "snapshot.pickle"))
        assert sum(one.bytes for one in snapshot.holders) == snapshot.peak_allocated
        largest = snapshot.holders[0]
        owner = snapshot.owner(largest.owner)
        assert (owner.site and owner.site.line, owner.layer) == (MODEL_LINE, "torch.nn.modules.linear")
        assert (largest.bytes, largest.blocks) == (12 * 32 * MIB, 12)
        assert f"{SCRIPT}:{MODEL_LINE} forward" in snapshot.stack(largest.stack)
        assert any(snapshot.owner(one.owner).name == NO_PYTHON for one in snapshot.holders)

    def test_growth_is_what_the_line_keeps(self, tmp_path: Path) -> None:
        snapshot = of_file(device("history").write(tmp_path / "snapshot.pickle"))
        growth = snapshot.growth
        assert growth is not None
        assert (growth.grows, growth.bytes_per_step, growth.steps) == (True, 16 * MIB, 8)
        (kept,) = growth.kept
        site = snapshot.owner(kept.owner).site
        assert (site and site.line, kept.bytes_per_step) == (HISTORY_LINE, 16 * MIB)

    def test_a_failure_and_what_would_have_fitted(self, tmp_path: Path) -> None:
        simulated = device("oom")
        snapshot = of_file(simulated.write(tmp_path / "snapshot.pickle"))
        failure = snapshot.failure
        assert failure is not None
        assert (failure.requested, failure.device_free) == (4 * 32 * MIB, simulated.capacity - simulated.reserved)
        assert (failure.reserved, failure.capacity) == (simulated.reserved, simulated.capacity)
        free = [b.size for s in simulated.segments if not s.free for b in s.blocks if b.state == "inactive"]
        assert failure.largest_fit == max([failure.device_free, *free])
        assert (failure.fragmented, failure.caught) == (False, False)

    def test_holes_belong_to_the_blocks_that_stay(self, tmp_path: Path) -> None:
        snapshot = of_file(device("fragmented").write(tmp_path / "snapshot.pickle"))
        assert snapshot.failure is not None
        assert snapshot.failure.fragmented
        lost = snapshot.fragmentation
        site = snapshot.owner(snapshot.pinned[0][0]).site
        assert site is not None
        assert site.line == TABLE_LINE
        assert lost.active_bytes + lost.cached_bytes + lost.unusable_bytes == lost.reserved_bytes
        assert lost.largest_free_bytes < snapshot.failure.requested

    def test_retries_are_not_calls_of_empty_cache(self, tmp_path: Path) -> None:
        assert len(of_file(device("retries").write(tmp_path / "a.pickle")).retries) >= 3
        simulated = training(steps=2)
        for _ in range(5):
            address = simulated.malloc(200 * MIB, ())
            simulated.free(address, ())
            simulated.empty_cache()
            simulated.malloc(200 * MIB, ())
        assert len(of_file(simulated.write(tmp_path / "b.pickle")).retries) == 0

    def test_a_history_that_lost_its_beginning(self, tmp_path: Path) -> None:
        """The blocks of the snapshot that the history does not allocate were there before."""
        whole = training("history")
        peak = of_file(whole.write(tmp_path / "whole.pickle")).curve.allocated[-601:]
        whole.max_entries = 600
        snapshot = of_file(whole.write(tmp_path / "snapshot.pickle"))
        assert np.array_equal(snapshot.curve.allocated[:-1], peak[:-1])
        parts = [snapshot.owner(one.owner).name for one in snapshot.holders]
        assert "train.py:30 build" in parts  # from the stacks of the blocks


class TestReading:
    @pytest.mark.parametrize("protocol", [2, 3, 4, 5])
    def test_every_protocol_says_the_same(self, protocol: int, tmp_path: Path) -> None:
        value = training("history", steps=4).snapshot()
        snapshot = of_value(value, tmp_path, protocol)
        entries, frames, stacks = snapshot.tables.entries, snapshot.tables.frames, snapshot.tables.stacks
        trace = value["device_traces"][0]
        assert entries.size.tolist() == [one["size"] for one in trace]
        assert entries.address.tolist() == [one["addr"] for one in trace]
        assert entries.time_us.tolist() == [one["time_us"] for one in trace]
        read_stacks = [[frames[at] for at in stacks[row]] if row >= 0 else [] for row in entries.stack.tolist()]
        assert read_stacks == [[(f["filename"], f["line"], f["name"]) for f in one["frames"]] for one in trace]

    def test_entries_of_another_form(self, tmp_path: Path) -> None:
        """Missing keys, large and negative numbers, texts for numbers, other orders: read one by one, or left out."""
        value = training(steps=2).snapshot()
        trace = value["device_traces"][0]
        odd = [
            {"action": "alloc", "size": 2**40, "addr": 2**47 + 512},
            {"action": "alloc", "size": -5, "addr": 1},
            {"action": "alloc", "size": "12", "addr": 1},
            {"action": "workspace_snapshot", "size": 1, "addr": 1},
            {"size": 300, "action": "free_completed", "addr": 2**63 - 1, "pool_id": (1, 2)},
            7,
            None,
        ]
        for index, one in enumerate(odd):
            trace.insert(20 * (index + 1), one)
        entries = of_value(value, tmp_path).tables.entries
        assert len(entries) == len(trace) - 5
        assert entries.size[20] == 2**40

    @pytest.mark.parametrize("odd", ["x" * 300, "é" * 90, ("a", 1), 2**70, 1.5, [1], {"a": {}}, b"", (1, 2, 3)])
    def test_a_value_that_no_layout_has(self, odd: Any, tmp_path: Path) -> None:
        value = training(steps=2).snapshot()
        (trace,) = value["device_traces"]
        for one in trace:
            one["user_metadata"] = odd
        entries = of_value(value, tmp_path).tables.entries
        assert entries.size.tolist() == [one["size"] for one in trace]
        assert entries.time_us.tolist() == [one["time_us"] for one in trace]

    def test_a_history_of_two_layouts(self, tmp_path: Path) -> None:
        """The first entries have no frames, as if stacks were turned on later."""
        value = training(steps=6).snapshot()
        (trace,) = value["device_traces"]
        for one in trace[:200]:
            del one["frames"]
        path = tmp_path / "snapshot.pickle"
        path.write_bytes(pickle.dumps(value))
        with path.open("rb") as stream:
            (kept,) = PlainPickle(stream, "x", 10**9).load()["device_traces"]
        assert sum(isinstance(one, dict) for one in kept) < 20
        entries = of_file(path).tables.entries
        assert entries.size.tolist() == [one["size"] for one in trace]
        assert (entries.stack[:200] == -1).all()
        assert (entries.stack[200:] >= 0).any()

    def test_a_stream_that_gives_a_few_bytes_at_a_time(self, tmp_path: Path) -> None:
        data = training(steps=3).write(tmp_path / "snapshot.pickle").read_bytes()

        class Slow(io.BytesIO):
            def read(self, size: int | None = -1) -> bytes:
                return super().read(min(7, size or 0))

        value = PlainPickle(Slow(data), "x", 10**9).load()
        whole = PlainPickle(io.BytesIO(data), "x", 10**9).load()
        assert value["segments"] == whole["segments"]

    def test_a_file_beyond_the_limit_is_refused(self, tmp_path: Path) -> None:
        data = training(steps=3).write(tmp_path / "snapshot.pickle").read_bytes()
        with pytest.raises(InputError, match="TRACEOPT_MAX_GB"):
            PlainPickle(io.BytesIO(data), "x", len(data) - 1).load()

    def test_a_history_is_not_kept_as_objects(self, tmp_path: Path) -> None:
        path = training(steps=20).write(tmp_path / "snapshot.pickle")
        with path.open("rb") as stream:
            (trace,) = PlainPickle(stream, "x", 10**9).load()["device_traces"]
        assert sum(isinstance(one, dict) for one in trace) < 20

    @pytest.mark.parametrize(
        "data",
        [
            b"\x80\x04}(\x8c\x08segments]\x8c\x03abcccos\nsystem\n.",
            b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
            b"\x80\x02(\x8c\x08segmentsios\nsystem\n.",
            b"\x80\x02\x82\x01.",
            b"\x80\x02Psegments\n.",
            b"\x80\x05\x97.",
            b"\x80\x04\x8e" + (2**62).to_bytes(8, "little"),
            b"\x80\x04\x8d" + (2**62).to_bytes(8, "little") + b"segments",
            b"\x80\x04\x8a\xff",
            b"\x80\x04}r\xff\xff\xff\x7f.",
            b"\x80\x04h\x05.",
            b"\x80\x04eeee.",
            b"\x80\x04}(]K\x01u.",
            b"\x80\x04" + b"]" * 10,
            b"\x80\x04N.",
            b"\x80\x04}\x8c\x08segmentsK\x01s.",
        ],
    )
    def test_hostile_files_end_in_one_line(self, data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        path = tmp_path / "segments.pickle"
        path.write_bytes(data + b"segments" * 2)
        sources = [one.source for one in find_sources([str(path)]).companions]
        with pytest.raises(InputError, match=r"segments\.pickle (cannot be read: |is no memory snapshot: ).+") as error:
            read_memory_snapshot(sources, [])
        assert "\n" not in str(error.value)
        answer = CliRunner().invoke(cli, ["analyze", "segments.pickle"])
        assert answer.exit_code == 2
        assert len(answer.stderr.strip().splitlines()) == 1
        assert [one.name for one in tmp_path.iterdir()] == [path.name]

    def test_truncated_anywhere(self, tmp_path: Path) -> None:
        data = training("history", steps=3).write(tmp_path / "snapshot.pickle").read_bytes()
        path = tmp_path / "cut.pickle"
        for size in range(100, len(data), len(data) // 40):
            path.write_bytes(data[:size])
            with pytest.raises(InputError, match=r"cut\.pickle cannot be read: it is (truncated|damaged)"):
                of_file(path)

    def test_flipped_bits_never_crash(self, tmp_path: Path) -> None:
        data = training("oom", steps=2).write(tmp_path / "snapshot.pickle").read_bytes()
        path = tmp_path / "flipped.pickle"
        generator = np.random.default_rng(7)
        for _ in range(60):
            damaged = bytearray(data)
            for at in generator.integers(200, len(data), 3).tolist():
                damaged[at] ^= 1 << int(generator.integers(8))
            path.write_bytes(damaged)
            try:
                snapshot = of_file(path)
            except InputError as error:
                assert "\n" not in str(error)  # noqa: PT017
            else:
                assert snapshot.peak_allocated is not None
                assert snapshot.failure is None or snapshot.failure.requested >= 0

    def test_the_latest_of_several_and_a_failure_first(self, tmp_path: Path) -> None:
        training("oom", steps=2).write(tmp_path / "a" / "oom.pickle")
        training(steps=6).write(tmp_path / "a" / "late.pickle")
        (tmp_path / "a" / "broken.pickle").write_bytes(b"\x80\x04}\x94\x8c\x08segments")
        warnings: list[str] = []
        found = read_memory_snapshot([one.source for one in find_sources([str(tmp_path)]).companions], warnings)
        assert found is not None
        assert found.tables.label.endswith("oom.pickle")
        assert len(warnings) == 2


class TestBesideATrace:
    def test_one_report_of_both(self, tmp_path: Path) -> None:
        generate("memory_pressure").write(tmp_path / "trace.json.gz")
        device("history").write(tmp_path / "snapshot.pickle")
        result = traceopt.analyze(str(tmp_path))
        assert result.step.source != "none"
        assert result.memory_snapshot is not None
        found = {one.code: one for one in result.findings}
        assert found["MM005"].locations[0].line == HISTORY_LINE
        assert "train.py:21 forward" in {row.what for row in found["MM002"].evidence}
        page = render_html(result)
        assert 'id="memory"' in page
        assert 'id="memory-snapshot"' in page

    def test_a_failed_allocation_comes_first(self, tmp_path: Path) -> None:
        generate("memory_pressure", steps=2).write(tmp_path / "trace.json.gz")
        training("oom", steps=2).write(tmp_path / "snapshot.pickle")
        result = traceopt.analyze(str(tmp_path))
        assert result.verdict.startswith("Out of memory: a request for ")
        (failed,) = (one for one in result.findings if one.code == "MM008")
        assert (failed.saving, failed.impact) == (None, "high")

    def test_a_trace_without_a_snapshot_says_how_to_record_one(self, tmp_path: Path) -> None:
        generate("memory_pressure").write(tmp_path / "trace.json.gz")
        (check,) = (one for one in traceopt.analyze(str(tmp_path)).checks if one.code == "MM008")
        assert check.status == "not_checked"
        assert "traceopt run --memory-snapshot" in check.reason

    def test_a_run_without_a_gpu_needs_none(self, tmp_path: Path) -> None:
        generate("cpu_contention", fixed=True).write(tmp_path / "trace.json.gz")
        (check,) = (one for one in traceopt.analyze(str(tmp_path)).checks if one.code == "MM008")
        assert check.status == "not_applicable"


class TestReport:
    def test_the_curve_shows_stacks_and_hostile_names_are_text(self, tmp_path: Path) -> None:
        simulated = training(steps=3)
        evil = '</title><script>alert("x")</script>\x1b[31m'
        simulated.malloc(700 * MIB, ((f"/work/{evil}.py", 3, evil),))
        result = result_of(simulated.write(tmp_path / "snapshot.pickle"))
        page = render_html(result)
        assert f"{SCRIPT}:{BUILD_LINE} build" in page.partition("snapshot-plot")[2].partition("</svg>")[0]
        assert "<script>alert" not in page
        assert "\x1b" not in page
        assert "Memory snapshot" in render_markdown(result)
        assert Result.from_json(result.to_json()) == result

    def test_numbers_are_aligned_and_nothing_empty_is_drawn(self, tmp_path: Path) -> None:
        page = render_html(result_of(device("history").write(tmp_path / "snapshot.pickle")))
        holders = page.partition("Who holds the peak</h3>")[2].partition("</table>")[0]
        assert holders.count('<th scope="col" class=num>') == 3
        assert "<td></td>" not in holders
        assert '<dl class="tiles">' not in page

    def test_areas_add_up_to_the_allocated_memory(self, tmp_path: Path) -> None:
        section = result_of(device("history").write(tmp_path / "snapshot.pickle")).memory_snapshot
        assert section is not None
        assert section.curve is not None
        assert max(section.curve.allocated_bytes) == section.peak_allocated_bytes
        assert [sum(values) for values in zip(*section.curve.by_holder, strict=True)] == section.curve.allocated_bytes

    def test_a_snapshot_without_a_history(self, tmp_path: Path) -> None:
        simulated = training(steps=2)
        simulated.max_entries = 0
        value = simulated.snapshot() | {"device_traces": [[]]}
        (tmp_path / "snapshot.pickle").write_bytes(pickle.dumps(value))
        result = result_of(tmp_path / "snapshot.pickle")
        section = result.memory_snapshot
        assert section is not None
        assert (section.curve, section.growth, section.failure) == (None, None, None)
        assert section.holders[0].bytes > 0
        assert "The snapshot has no history" in render_html(result)
