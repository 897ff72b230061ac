"""Traces in object stores are found and streamed, also by workers; here an S3 server by moto, and memory."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_job import RANKS

from traceopt.analyzer.reading.places.object_stores import without_secrets
from traceopt.analyzer.reading.source_search import find_sources
from traceopt.analyzer.recordings.cycle_pairs import find_recordings
from traceopt.api import analyze
from traceopt.errors import InputError
from traceopt.result.document import Result

fsspec = pytest.importorskip("fsspec")


@pytest.fixture(scope="module")
def local(job: Path) -> Result:
    return analyze(str(job))


@pytest.fixture(scope="module")
def store(job: Path) -> Iterator[str]:
    """The URL of a bucket with the job in `run`, and the same in an archive."""
    pytest.importorskip("s3fs")
    server_module = pytest.importorskip("moto.server")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }.items():
            patch.setenv(name, value)
        files = fsspec.filesystem("s3")
        files.mkdir("bucket")
        for path in job.iterdir():
            files.pipe(f"bucket/logs/run/{path.name}", path.read_bytes())
        files.pipe("bucket/logs/all.zip", zipped(job))
        files.pipe("bucket/notes/readme.txt", b"no trace")
        files.pipe("bucket/damaged/rank0.json", b'{"traceEvents": [')
        files.pipe("bucket/damaged/rank1.json", min(job.iterdir()).read_bytes())
        yield "s3://bucket"
    server.stop()


def zipped(job: Path) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for path in sorted(job.iterdir()):
            archive.write(path, path.name)
    return stream.getvalue()


def without_paths(result: Result) -> Any:
    """The document without the locations of the files."""
    document = json.loads(result.to_json())
    for place in (document["run"], *document["run"]["files"], *document["ranks"]):
        place.pop("path", None)
        place.pop("paths", None)
    return document


class TestObjectStore:
    @pytest.mark.parametrize(
        "path", ["logs/run", "logs/run/", "logs/run/host_*.json.gz", "logs/all.zip", "logs/**/host_*.gz"]
    )
    def test_is_read_like_a_folder(self, store: str, local: Result, path: str) -> None:
        result = analyze(f"{store}/{path}")
        assert without_paths(result) == without_paths(local)
        assert all(name.startswith("s3://bucket/logs/") for name in result.run.paths)

    def test_by_workers(self, store: str, local: Result) -> None:
        result = analyze(f"{store}/logs/run", jobs=2)
        assert result.to_json() == analyze(f"{store}/logs/run").to_json()
        assert without_paths(result) == without_paths(local)

    def test_one_file(self, store: str, job: Path) -> None:
        name = "host_2.1700000000000.pt.trace.json.gz"
        assert without_paths(analyze(f"{store}/logs/run/{name}")) == without_paths(analyze(str(job / name)))

    def test_sizes_are_known_beforehand(self, store: str, job: Path) -> None:
        sizes = [source.size_bytes for source in find_sources([f"{store}/logs/run"]).sources]
        assert sizes == [path.stat().st_size for path in sorted(job.iterdir())]

    @pytest.mark.parametrize("workers", [1, 20])
    def test_the_two_cycles_of_a_worker_are_found(self, store: str, workers: int) -> None:
        """By the beginnings of the files, which are requested in parallel if there are many."""
        files = fsspec.filesystem("s3")
        for worker in range(workers):
            for span, cycle in enumerate(("timing", "detail")):
                text = f'{{"traceopt": {{"cycle": {{"name": "{cycle}"}}}}, "traceEvents": []}}'.encode()
                files.pipe(f"bucket/cycles{workers}/host_{worker}.{span}.pt.trace.json", text)
        recordings = find_recordings(find_sources([f"{store}/cycles{workers}"]).sources)
        assert [one.source.span for one in recordings] == [0] * workers
        assert [one.detail.span for one in recordings if one.detail is not None] == [1] * workers

    def test_a_damaged_object_is_left_out(self, store: str) -> None:
        result = analyze(f"{store}/damaged")
        assert result.run.paths == ["s3://bucket/damaged/rank1.json"]
        assert "s3://bucket/damaged/rank0.json is not a PyTorch profiler trace" in result.warnings[0]

    @pytest.mark.parametrize(
        ("path", "reason"),
        [
            ("s3://bucket/nothing/here.json", "cannot read s3://bucket/nothing/here.json: no such file or folder"),
            ("s3://no-such-bucket/logs", "cannot read s3://no-such-bucket/logs: "),
            ("s3://bucket/notes", "no trace files in s3://bucket/notes"),
            ("s3://bucket/logs/*.nothing", "no trace files in s3://bucket/logs/"),
            ("s3://bucket/damaged/rank0.json", "s3://bucket/damaged/rank0.json is not a PyTorch profiler trace"),
        ],
    )
    def test_errors_are_one_line(self, store: str, path: str, reason: str) -> None:
        assert store
        with pytest.raises(InputError) as caught:
            analyze(path)
        assert str(caught.value).startswith(reason)
        assert str(caught.value).isprintable()

    def test_the_cache_knows_an_object_by_what_the_store_says(self, store: str, local: Result, tmp_path: Path) -> None:
        for _ in range(2):
            assert without_paths(analyze(f"{store}/logs/run", cache=tmp_path)) == without_paths(local)
            assert len(list(tmp_path.iterdir())) == RANKS
        files = fsspec.filesystem("s3")
        files.copy("bucket/logs/run/host_1.1700000000000.pt.trace.json.gz", "bucket/changing/a.json.gz")
        before = analyze(f"{store}/changing", cache=tmp_path).to_json()
        files.copy("bucket/logs/run/host_2.1700000000000.pt.trace.json.gz", "bucket/changing/a.json.gz")
        assert analyze(f"{store}/changing", cache=tmp_path).to_json() != before
        assert len(list(tmp_path.iterdir())) == RANKS + 2


class TestMemory:
    @pytest.fixture
    def files(self, job: Path) -> Iterator[Any]:
        files = fsspec.filesystem("memory")
        for path in job.iterdir():
            files.pipe(f"/logs/{path.name}", path.read_bytes())
        files.pipe("/logs/.hidden/rank9.json", b"{}")
        files.pipe("/logs/all.ZIP", b"PK\x03\x04 no archive")
        yield files
        files.rm("/logs", recursive=True)

    @pytest.mark.usefixtures("files")
    def test_is_of_this_process_and_read_here(self, local: Result) -> None:
        result = analyze("memory://logs", jobs=4)
        (warning,) = result.warnings
        assert "all.ZIP" in warning
        document = without_paths(result)
        document["warnings"] = []
        assert document == without_paths(local)

    def test_a_stream_that_breaks_off_is_a_damaged_trace(self, files: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """Stores raise errors of their own, here one that Python does not know."""

        class GoneError(Exception):
            pass

        class Breaking(io.BytesIO):
            def read(self, _: int | None = -1) -> bytes:
                if self.tell() > 100_000:
                    raise GoneError("the connection was reset")
                return super().read(50_000)

        data = fsspec.core.open("memory://logs/host_1.1700000000000.pt.trace.json.gz", compression="gzip")
        with data as stream:
            files.pipe("/logs/plain.json", stream.read())
        content = files.cat("/logs/plain.json")
        monkeypatch.setattr(type(files), "open", lambda *_, **__: Breaking(content))
        result = analyze("memory://logs/plain.json")
        assert result.quality.verdict != "good"
        assert any("the connection was reset" in note.text for note in result.quality.notes)


def test_passwords_and_signatures_are_not_shown() -> None:
    assert without_secrets("ftp://me:secret@host/logs/a.json") == "ftp://host/logs/a.json"
    assert without_secrets("https://host/a.json?X-Amz-Signature=secret") == "https://host/a.json"
    assert without_secrets("abfs://container@account.net/logs") == "abfs://container@account.net/logs"


@pytest.mark.parametrize("url", ["nonsense://host/a.json", "s3+x://a"])
def test_a_place_that_nobody_knows(url: str) -> None:
    with pytest.raises(InputError, match=r"cannot read .*: Protocol not known"):
        analyze(url)


def test_without_fsspec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "fsspec.core", None)
    with pytest.raises(InputError, match=r"pip install 'traceopt-profiler\[remote\]'"):
        analyze("s3://bucket/a.json")
