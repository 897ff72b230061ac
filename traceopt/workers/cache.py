"""A cache of the answers of ranks in a folder, so that an unchanged trace is read only once.

The name of an entry is a hash of everything that determines it: the contents and names of the files, the program, and
its rules with their thresholds. An entry is written to a temporary file and then renamed, so that concurrent runs and
crashes never leave half of one. It has a checksum; a damaged entry is ignored.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import msgspec
from msgspec import Struct

from traceopt.analyzer.reading.places.object_stores import is_remote, version_of
from traceopt.analyzer.reading.sources import TraceSource
from traceopt.document.rank_answer import RankAnswer
from traceopt.errors import ConfigError, InputError
from traceopt.workers.program_hash import program
from traceopt.workers.rank_task import RankTask, loaded

_SUFFIX = ".rank"
_CHECKSUM_BYTES = 16
_READ_BYTES = 1 << 20


class Cache(Struct, frozen=True):
    """`folder` must be visible to every worker under this name."""

    folder: str

    def prepare(self) -> None:
        """Raises ConfigError if the folder cannot be created or written to."""
        try:
            os.makedirs(self.folder, exist_ok=True)
            tempfile.TemporaryFile(dir=self.folder).close()
        except OSError as error:
            raise ConfigError(f"cannot use the cache {self.folder}: {error.strerror or error}") from error

    def answer(self, task: RankTask, analyze: Callable[[], bytes]) -> bytes:
        """The entry of the task; if there is none, the result of `analyze`, which is then saved unless it is
        a failure.
        """
        try:
            before = _versions(task)
            path = Path(self.folder, _key(task, before) + _SUFFIX)
        except (OSError, InputError):  # the analysis reports it better
            return analyze()
        known = _read(path)
        if known is not None:
            return known
        data = analyze()
        with suppress(OSError, InputError):  # for example a full disk: the answer is still valid
            if RankAnswer.of(data).problem is None and _versions(task) == before:
                _write(path, data)
        return data


def _key(task: RankTask, versions: list[str]) -> str:
    rules = loaded(task.options)
    options = (rules.chosen, task.options.workload, task.options.devices, task.recording.engine, task.sharing)
    parts = [program(rules), *map(repr, options)]
    for source, version in zip(task.recording.sources, versions, strict=True):
        content = version if is_remote(source.place) else _content(source.place, version)
        parts.append(repr((source.label, source.member, source.rank_hint, source.world_size_hint, content)))
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=24).hexdigest()


def _versions(task: RankTask) -> list[str]:
    """A value for each file that changes when the file is written to."""
    return [_version(source) for source in task.recording.sources]


def _version(source: TraceSource) -> str:
    if is_remote(source.place):
        return version_of(source.place)
    about = os.stat(source.place)
    return f"{about.st_ino} {about.st_size} {about.st_mtime_ns}"


@lru_cache(maxsize=16)  # many members of one archive
def _content(place: str, _: str) -> str:
    digest = hashlib.blake2b(digest_size=24)
    with open(place, "rb") as stream:
        while block := stream.read(_READ_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _read(path: Path) -> bytes | None:
    try:
        entry = path.read_bytes()
        checksum, data = entry[:_CHECKSUM_BYTES], entry[_CHECKSUM_BYTES:]
        if checksum != _checksum(data):
            return None
        RankAnswer.of(data).part()
    except (OSError, msgspec.DecodeError):
        return None
    return data


def _write(path: Path, data: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(prefix=".writing-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(_checksum(data) + data)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _checksum(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_CHECKSUM_BYTES).digest()
