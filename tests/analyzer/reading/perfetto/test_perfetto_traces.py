"""Traces in Perfetto's binary format, as PyTorch 2.15 writes them, are read like its JSON."""

from __future__ import annotations

import gzip
import io
import random
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from traceopt.analyzer.reading.source_search import find_sources
from traceopt.analyzer.reading.trace_reader import read_trace
from traceopt.analyzer.recordings.heads import read_heads
from traceopt.analyzer.tables.trace import CUT_OFF, Trace
from traceopt.api import analyze
from traceopt.errors import InputError
from traceopt.result.document import Result
from traceopt.testing.events import document, op
from traceopt.viewing.step_cut import cut_step

SAMPLES = Path(__file__).resolve().parents[4] / "fixtures" / "perfetto"  # record.py there wrote them
JSON, PERFETTO = SAMPLES / "training.json.gz", SAMPLES / "training.pftrace"
PACKETS = gzip.decompress(PERFETTO.read_bytes())


def read(data: bytes) -> Trace:
    return read_trace(io.BytesIO(data), "x.pftrace")


def comparable(result: Result) -> Result:
    """Without what says which file it was."""
    result.run.files[:] = [replace(file, path="", bytes=0, events=0, sha256=None) for file in result.run.files]
    result.ranks[:] = [replace(rank, path="") for rank in result.ranks]
    return replace(result, run=replace(result.run, paths=[]))


def test_both_formats_give_the_same_document() -> None:
    json, perfetto = (analyze(str(file), debug=True) for file in (JSON, PERFETTO))
    assert perfetto.step.count == 4
    assert perfetto.communication is not None
    assert perfetto.gpu_samples is not None
    assert comparable(perfetto) == comparable(json)


def test_the_tables_are_the_same() -> None:
    json, perfetto = (read_trace(file.open("rb"), file.name) for file in (JSON, PERFETTO))
    assert perfetto.meta.categories == {key: n for key, n in json.meta.categories.items() if key != "Trace"}
    assert perfetto.meta.start_ns == json.meta.start_ns
    for name in ("gpu", "runtime", "ops", "annotations", "python", "sync", "counters"):
        table, wanted = getattr(perfetto, name), getattr(json, name)
        for column in set(wanted.SCHEMA) - {"name"}:
            assert np.array_equal(getattr(table, column), getattr(wanted, column)), (name, column)
        assert [perfetto.names[code] for code in table.name] == [json.names[code] for code in wanted.name]


def test_folders_see_the_same_process_and_start() -> None:
    sources = [source for file in (JSON, PERFETTO) for source in find_sources([str(file)]).sources]
    json, perfetto = read_heads(sources).values()
    assert perfetto.process == json.process is not None
    assert perfetto.start_s == pytest.approx(json.start_s, abs=1e-3)


def test_the_format_is_known_by_its_content(tmp_path: Path) -> None:
    (tmp_path / "rank0.pftrace").write_bytes(PACKETS)
    (tmp_path / "rank1.pftrace.gz").write_bytes(PERFETTO.read_bytes())
    with zipfile.ZipFile(tmp_path / "more.zip", "w") as archive:
        archive.writestr("rank2.pftrace", PACKETS)
    (tmp_path / "rank3.pftrace").write_bytes(document([op("aten::mm", 0, 1)]))  # of Kineto, which writes JSON
    found = find_sources([tmp_path]).sources
    assert sorted(source.rank_hint or 0 for source in found) == [0, 1, 2, 3]
    traces = [read_trace(source.open(), source.label) for source in found]
    assert sorted(len(trace.ops) for trace in traces) == [1, *[len(read(PACKETS).ops)] * 3]


def test_beside_the_same_recording_in_json_it_is_skipped() -> None:
    found = find_sources([SAMPLES])
    assert [source.label.rpartition("/")[2] for source in found.sources] == [JSON.name]
    assert found.skipped == [
        f"{found.sources[0].label.removesuffix(JSON.name)}{PERFETTO.name}: {JSON.name} is the same recording"
    ]


def test_steps_are_only_cut_out_of_json() -> None:
    (source,) = find_sources([PERFETTO]).sources
    with pytest.raises(InputError, match="only steps of JSON traces can be cut out"):
        cut_step(source, "2", lambda _: None)


class TestDamage:
    def test_a_file_that_is_cut_off_is_read_as_far_as_it_goes(self) -> None:
        trace = read(PACKETS[:-1_000])
        assert trace.meta.damage == CUT_OFF
        assert trace.meta.lost_events > 0
        assert len(trace.ops) == len(read(PACKETS).ops)

    def test_slices_without_an_end_are_lost(self) -> None:
        """The operators begin first and end later, so both are there only behind the middle of the slices."""
        begun = PACKETS.index(b"Ev Idx")
        with pytest.raises(InputError, match="it has no complete events"):
            read(PACKETS[: begun + 50_000])

    @pytest.mark.parametrize("seed", range(20))
    def test_a_hole_or_noise_is_said_or_refused(self, seed: int) -> None:
        rng = random.Random(seed)  # noqa: S311
        at, size = rng.randrange(len(PACKETS)), rng.randrange(100, 5_000)
        instead = rng.randbytes(size) if seed % 2 else b""
        with suppress(InputError):
            trace = read(PACKETS[:at] + instead + PACKETS[at + size :])
            assert trace.meta.damage
            assert trace.meta.lost_events

    @pytest.mark.parametrize(
        "data",
        [
            b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f" + b"\x0a" * 100,  # a packet of 2 ** 63 bytes
            b"\x0a\x02\x40\x01" * 1_000,  # packets that only have a time
            b"\x0a\x04\x5a\x02\x48\x02" * 1_000,  # ends without begins
            b"\x0a\x0a\x40\x01\x5a\x06\x48\x01\x1a\x02\x08\x01" * 9,  # damaged messages
        ],
        ids=["huge", "empty", "ends", "damaged"],
    )
    def test_hostile_files_are_one_clear_line(self, data: bytes) -> None:
        with pytest.raises(InputError) as caught:
            read(data)
        assert "\n" not in str(caught.value)

    def test_a_trace_of_another_program_is_refused(self) -> None:
        names = held(1, held(12, held(1, b"\x08\x01", held(2, b"gfx")), held(2, b"\x08\x01", held(2, b"draw"))))
        begin = held(1, b"\x40\x01", held(11, b"\x48\x01\x58\x05\x18\x01\x50\x01"))
        end = held(1, b"\x40\x02", held(11, b"\x48\x02\x58\x05"))
        with pytest.raises(InputError, match=r"of another program, not of torch\.profiler"):
            read(names + begin + end)


def held(number: int, *parts: bytes) -> bytes:
    """A short message as a field of another one."""
    content = b"".join(parts)
    return bytes([number << 3 | 2, len(content)]) + content
