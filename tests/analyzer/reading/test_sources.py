"""Paths of every kind lead to the traces they stand for, in one order, or to one clear error."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from traceopt.analyzer.reading import limits, source_search
from traceopt.analyzer.reading.source_search import find_sources, natural_order
from traceopt.errors import InputError

TRACE = b'{"traceEvents": []}'


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put(name: str, data: bytes = TRACE) -> str:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return name


def put_zip(name: str, members: dict[str, bytes]) -> str:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for member, data in members.items():
            archive.writestr(member, data)
    return put(name, stream.getvalue())


def labels(*paths: str) -> list[str]:
    return [source.label for source in find_sources(paths).sources]


def test_a_file_of_any_name_is_taken_and_opened_raw() -> None:
    data = gzip.compress(TRACE)
    (source,) = find_sources([put("odd.name", data)]).sources
    assert (source.label, source.named, source.member) == ("odd.name", True, None)
    with source.open() as stream:
        assert stream.read() == data


def test_folders_are_searched_to_their_depth_in_natural_order() -> None:
    for rank in (10, 2, 1):
        put(f"logs/deep/rank{rank}.json")
    put("logs/notes.txt")
    put("logs/.hidden/rank3.json")
    assert labels("logs") == [f"logs/deep/rank{rank}.json" for rank in (1, 2, 10)]
    assert not find_sources(["logs"]).sources[0].named


def test_the_order_does_not_depend_on_the_order_of_arguments() -> None:
    names = [put(f"rank{rank}.json") for rank in (0, 1, 10, 2)]
    assert labels(*names) == labels(*reversed(names)) == ["rank0.json", "rank1.json", "rank2.json", "rank10.json"]


def test_in_a_folder_what_cannot_be_a_trace_is_skipped_and_told() -> None:
    put("logs/a.json")
    put("logs/empty.json", b"")
    put("logs/fake.json", b"\x89PNG\r\n")
    put("logs/broken.zip", b"PK\x03\x04 no archive")
    put_zip("logs/pictures.zip", {"a.png": b"\x89PNG"})
    found = find_sources(["logs"])
    assert [source.label for source in found.sources] == ["logs/a.json"]
    assert sorted(found.skipped) == [
        "logs/broken.zip: File is not a zip file",
        "logs/empty.json: empty",
        "logs/fake.json: neither JSON nor gzip",
        "logs/pictures.zip: no trace files in this archive",
    ]


def test_content_decides_the_kind() -> None:
    put("logs/gzip.json", gzip.compress(TRACE))
    put("logs/plain.json.gz", b"\xef\xbb\xbf \n" + TRACE)
    put("logs/array.json", b"[\n{}]")
    os.rename(put_zip("logs/zip.zip", {"t": TRACE}), "logs/zip.json")
    assert labels("logs") == ["logs/array.json", "logs/gzip.json", "logs/plain.json.gz", "logs/zip.json/t"]


def test_one_file_reached_by_several_ways_counts_once() -> None:
    put("logs/a.json")
    os.symlink("a.json", "logs/b.json")
    assert labels("logs/a.json", "logs", "logs/*.json", os.path.abspath("logs/a.json")) == ["logs/a.json"]


def test_loops_of_links_end() -> None:
    put("logs/a/trace.json")
    for folder in ("logs", "logs/a"):
        for name in ("loop1", "loop2"):
            os.symlink(os.path.abspath("logs"), f"{folder}/{name}")
    assert labels("logs") == ["logs/a/trace.json"]
    assert labels("logs/**/*.json") == ["logs/a/trace.json"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("logs/*.json", ["logs/a.json"]),
        ("logs/**/*.json", ["logs/a.json", "logs/sub/b.json"]),
        ("logs/**", ["logs/a.json", "logs/sub/b.json"]),
        ("logs/*", ["logs/a.json", "logs/sub/b.json"]),
        ("l?gs/[s]ub/*", ["logs/sub/b.json"]),
        ("../*/logs/a.json", None),
    ],
)
def test_quoted_globs(pattern: str, expected: list[str] | None) -> None:
    put("logs/a.json")
    put("logs/sub/b.json")
    put("logs/readme.md", b"# hello")
    assert expected is None or labels(pattern) == expected
    assert labels(os.path.abspath("logs") + "/*.json") == ["logs/a.json"]


def test_a_name_with_brackets_is_a_name_if_it_exists() -> None:
    assert labels(put("run[1].json")) == ["run[1].json"]


@pytest.mark.skipif(sys.platform == "darwin", reason="its file systems know only UTF-8")
def test_names_that_are_no_utf8() -> None:
    os.makedirs(b"ranks\xff")
    for name in (b"a\xfe.json", b"a\xff.json"):
        Path(os.fsdecode(b"ranks\xff/" + name)).write_bytes(TRACE)
    found = find_sources(["."]).sources
    assert [source.label for source in found] == ["ranks%FF/a%FE.json", "ranks%FF/a%FF.json"]
    assert [source.open().read() for source in found] == [TRACE, TRACE]


def test_zip_members_are_read_in_place_whatever_their_names() -> None:
    members = {
        "rank_1/t.json": TRACE,
        "../../etc/rank_0.json": TRACE,
        "/abs.json": gzip.compress(TRACE),
        "__MACOSX/._t.json": TRACE,
        "readme.md": b"hello",
        "folder/": b"",
    }
    found = find_sources([put_zip("logs.zip", members)])
    assert {source.member: source.rank_hint for source in found.sources} == {
        "../../etc/rank_0.json": 0,
        "/abs.json": None,
        "rank_1/t.json": 1,
    }
    for source in found.sources:
        with source.open() as stream:
            assert stream.read() == members[source.member or ""]


@pytest.mark.parametrize("name", ["ranks.json.tar", "ranks.json.tar.gz", "ranks.json.tgz"])
def test_files_in_a_tar_archive_are_read_in_place(name: str) -> None:
    for rank in range(2):
        put(f"logs/rank{rank}.json", TRACE)
    put("logs/rank2.json.gz", gzip.compress(TRACE))
    put("logs/notes.txt", b"hello")
    with tarfile.open(name, "w" if name.endswith("tar") else "w:gz") as archive:
        archive.add("logs", "./logs")
    found = find_sources([name]).sources
    assert [source.label for source in found] == [
        f"{name}/logs/rank{rank}.json{'.gz' * (rank == 2)}" for rank in range(3)
    ]
    assert [source.rank_hint for source in found] == [0, 1, 2]
    assert [len(source.open().read()) for source in found][:2] == [len(TRACE), len(TRACE)]
    assert labels("*.json*") == [source.label for source in found]
    Path(name).write_bytes(Path(name).read_bytes()[:-600])  # a damaged one is an error at worst
    with contextlib.suppress(InputError):
        labels(name)


def test_tensorboard_names() -> None:
    put("logs/host_12.1623143089861.pt.trace.json.gz")
    put("logs/host_12.1623143089999.pt.trace.json")
    put("logs/host_13.pt.trace.json")
    found = find_sources(["logs"]).sources
    assert [(source.worker, source.span) for source in found] == [
        ("host_12", 1623143089861),
        ("host_12", 1623143089999),
        ("host_13", None),
    ]


@pytest.mark.parametrize(
    ("name", "rank", "world_size"),
    [
        ("rank-34.Jul_15_10_52_41.1074.pt.trace.json", 34, None),
        ("rank3.json", 3, None),
        ("rank_3_of_8.json", 3, 8),
        ("trace_rank_0.json", 0, None),
        ("RANK=7.json", 7, None),
        ("rank_0/trace.json", 0, None),
        ("world_size_16/rank1/rank_2.json", 2, 16),
        ("world8_rank5.json", 5, 8),
        ("frank3.json", None, None),
        ("local_rank_1.json", None, None),
        ("ranks8.json", None, None),
        ("out_of_memory.json", None, None),
        ("proof2.json", None, None),
        ("rank99999999999.json", None, None),
    ],
)
def test_hints(name: str, rank: int | None, world_size: int | None) -> None:
    (source,) = find_sources([put(name)]).sources
    assert (source.rank_hint, source.world_size_hint) == (rank, world_size)


def test_folders_above_the_current_one_give_no_hint(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put("rank_5/logs/trace.json")
    monkeypatch.chdir(here / "rank_5")
    (source,) = find_sources([os.path.abspath("logs")]).sources
    assert (source.label, source.rank_hint) == ("logs/trace.json", None)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("gone.json", "no such file or folder: gone.json"),
        ("a\0b", r"no such file or folder: a\x00b"),
        ("bad\x1b[31m", "no trace file matches bad\\x1b[31m"),
        ("logs/*.json.gz", "no trace file matches logs/*.json.gz"),
        ("empty.json", "empty.json is empty; record the trace again"),
        ("folder", "no trace files in folder folder; it holds other files, such as notes.txt; expected traces of"),
        (
            "bare",
            "no trace files in folder bare; expected traces of torch.profiler (*.json, *.json.gz, *.pftrace, *.zip) or "
            "of Nsight Systems (*.sqlite); `traceopt run SCRIPT` records a trace",
        ),
        ("odd", "such as sub/a\\x1b[31m.txt; expected"),
        ("folder2", "no trace files in folder folder2; skipped folder2/a.json: empty"),
        ("none.zip", "no trace files in none.zip; expected JSON, plain or gzipped"),
        ("broken.zip", "cannot read broken.zip: File is not a zip file"),
        ("pipe", "pipe is not a regular file; save the trace to a file first"),
        ("loop", "cannot read loop: Too many levels of symbolic links"),
        ("nonsense://bucket/x.json", "cannot read nonsense://bucket/x.json: Protocol not known"),
    ],
)
def test_errors_are_one_line(path: str, message: str) -> None:
    put("empty.json", b"")
    put("folder/notes.txt")
    put("bare/.hidden/a.txt")
    put("odd/sub/a\x1b[31m.txt")
    put("folder2/a.json", b"")
    put("broken.zip", b"PK\x03\x04")
    put_zip("none.zip", {"a.txt": b"hello"})
    os.mkfifo("pipe")
    os.symlink("loop", "loop")
    with pytest.raises(InputError) as caught:
        find_sources([path])
    assert message in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_source_that_vanishes_is_an_input_error() -> None:
    (source,) = find_sources([put("a.json")]).sources
    os.remove("a.json")
    with pytest.raises(InputError, match=r"cannot read a\.json: No such file"):
        source.open()


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """Root can read everything: if the tests run as root, they temporarily become another user."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_an_unreadable_file_is_an_input_error() -> None:
    os.chmod(".", 0o701)
    path = put("a.json")
    find_sources(["a.json"])  # and imports what the other user may not read
    os.chmod(path, 0)
    with as_nobody(), pytest.raises(InputError, match=r"a\.json: Permission denied"):
        find_sources(["a.json"])


def archive_bytes() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("rank0.json", TRACE * 9)
        archive.writestr("rank1.json", TRACE * 9)
    return stream.getvalue()


ARCHIVE = archive_bytes()


@given(st.dictionaries(st.integers(0, len(ARCHIVE) - 1), st.integers(0, 255), max_size=6))
@example({ARCHIVE.index(b"PK\x01\x02") + 8: 1, 6: 1})  # encrypted
def test_a_damaged_archive_is_an_input_error_at_worst(damage: dict[int, int]) -> None:
    data = bytearray(ARCHIVE)
    for position, value in damage.items():
        data[position] = value
    with contextlib.suppress(InputError):
        for source in find_sources([put("damaged.zip", bytes(data))]).sources:
            source.open().close()


@given(st.lists(st.text(), max_size=8), st.randoms())
def test_natural_order_is_total(names: list[str], random: Any) -> None:
    once = sorted(names, key=natural_order)
    random.shuffle(names)
    assert sorted(names, key=natural_order) == once


@given(st.integers(0, 10**30), st.integers(0, 10**30))
def test_natural_order_counts(first: int, second: int) -> None:
    assert (natural_order(f"rank{first}.json") < natural_order(f"rank{second}.json")) == (first < second)


def test_archives_that_are_bombs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RATIO_FROM_BYTES", 1 << 20)
    with zipfile.ZipFile("bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("trace.json", b'{"traceEvents": [' + b" " * (4 << 20))
    (source,) = find_sources(["bomb.zip"]).sources
    with pytest.raises(InputError, match=r"cannot read bomb\.zip/trace\.json: it expands to more than 250 times"):
        source.open()
    put("zeros.json", bytes(4 << 20))
    with tarfile.open("bomb.json.tgz", "w:gz") as packed:
        packed.add("zeros.json")
    with pytest.raises(InputError, match=r"cannot read bomb\.json\.tgz: it expands to more than 250 times"):
        find_sources(["bomb.json.tgz"])
    monkeypatch.setattr(source_search, "MOST_MEMBERS", 3)
    put_zip("many.zip", {f"{i}.json": TRACE for i in range(4)})
    with pytest.raises(InputError, match=r"cannot read many\.zip: it has more than 3 members; unpack it"):
        find_sources(["many.zip"])
    skipped = find_sources([".", put("a.json")]).skipped
    assert "many.zip: it has more than 3 members; unpack it and pass the folder" in skipped
