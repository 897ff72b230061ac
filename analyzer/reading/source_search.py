"""Finds the trace files that the user's paths stand for: files, folders, globs, archives, URLs."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.reading.decompression import GZIP_MAGIC, UTF16_MARKS
from traceopt.analyzer.reading.limits import MOST_MEMBERS
from traceopt.analyzer.reading.nsight_files import is_database, nsight_processes
from traceopt.analyzer.reading.other_formats import conversion, of_archive
from traceopt.analyzer.reading.perfetto.wire import is_perfetto
from traceopt.analyzer.reading.places.object_stores import RemoteFile, head_of, is_remote, list_remote, without_secrets
from traceopt.analyzer.reading.places.tar_archives import is_tar
from traceopt.analyzer.reading.sources import (
    UNREADABLE,
    CompanionFile,
    TraceSource,
    label_of,
    opened_archive,
    reason_of,
    source_of,
    start_of,
)
from traceopt.analyzer.vocabulary.companion_kinds import START_BYTES, KindName, kind_named, kind_of, what_is
from traceopt.errors import InputError, one_line

_TRACE_NAME = re.compile(
    r"\.(json|json\.gz|json\.tar|json\.tar\.gz|json\.tgz|zip|pt\.trace\.json[^/]*|(pftrace|perfetto-trace)(\.gz)?)$",
    re.IGNORECASE,
)
_DATABASE_NAME = re.compile(r"\.(sqlite3?|db)(\.gz)?$", re.IGNORECASE)
_UNCONVERTED_NAME = re.compile(r"\.(nsys-rep|qdrep)$", re.IGNORECASE)
_EXPECTED = "traces of torch.profiler (*.json, *.json.gz, *.pftrace, *.zip) or of Nsight Systems (*.sqlite)"
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_UTF8_MARK = b"\xef\xbb\xbf"


class Found(Struct, frozen=True):
    """The traces in natural order of their labels (rank2 before rank10), the files beside them in the same order, and
    what was skipped and why.
    """

    sources: list[TraceSource]
    skipped: list[str]
    companions: list[CompanionFile] = []

    @property
    def traces(self) -> list[TraceSource]:
        """The traces. Raises InputError where there is none."""
        if not self.sources:
            first = self.companions[0]
            raise InputError(f"{first.source.label} is {what_is(first.kind)}; this command needs a trace")
        return self.sources


def find_sources(paths: Sequence[str | os.PathLike[str]]) -> Found:
    """Every trace file, and every companion, that `paths` stand for, each once.

    A path is a file of any name, a folder (searched recursively), a glob (also `**`), a zip or tar archive, or a URL
    that fsspec supports. Raises InputError for a path that is missing, unreadable, or leads to neither.
    """
    if not paths:
        raise InputError("no path given; name a trace file, a folder or an archive")
    search = _SourceSearch()
    for path in paths:
        search.argument(os.fspath(path))
    return Found(
        sorted(search.sources, key=lambda source: natural_order(source.label)),
        search.skipped,
        sorted(search.companions, key=lambda file: natural_order(file.source.label)),
    )


def find_traces(paths: Sequence[str | os.PathLike[str]]) -> list[TraceSource]:
    """Every trace file that `paths` stand for. Raises InputError where there is none."""
    return find_sources(paths).traces


def natural_order(text: str) -> tuple[list[tuple[int, str]], str]:
    """A sort key that compares runs of digits as numbers and ignores case."""
    parts = re.split(r"([0-9]+)", text.casefold())
    digits = [part.lstrip("0") for part in parts[1::2]]
    key = [(0, part) for part in parts]
    key[1::2] = [(len(part), part) for part in digits]
    return key, text


class _SourceSearch:
    def __init__(self) -> None:
        self.sources: list[TraceSource] = []
        self.companions: list[CompanionFile] = []
        self.skipped: list[str] = []
        self._seen: set[str] = set()

    def argument(self, text: str) -> None:
        if is_remote(text):
            self._remote(text)
            return
        path = Path(text)
        try:
            if not _exists(path) and text.startswith("~"):
                path = path.expanduser()
            if not _exists(path):
                self._glob(path)
            elif path.is_dir():
                os.scandir(path).close()  # an unreadable folder is an error here, but only skipped further down
                if not self._folder(path):
                    raise InputError(f"no trace files in folder {text}; {self._why_none(path)}")
            else:
                self._named_file(path)
        except UNREADABLE as error:
            raise InputError(f"cannot read {text}: {reason_of(error)}") from error

    def _named_file(self, path: Path) -> None:
        if not stat.S_ISREG(path.stat().st_mode):
            raise InputError(f"{path} is not a regular file; save the trace to a file first")
        start = start_of(path)
        if not start:
            raise InputError(f"{path} is empty; record the trace again")
        if is_database(start) and self._database(str(path), path.stat().st_size, named=True):
            return
        if not _is_archive(start):
            self._add(str(path), path.stat().st_size, named=True, kind=kind_of(start))
        elif not self._archive(str(path)):
            with opened_archive(str(path)) as archive:
                told = of_archive(archive.namelist())
            raise InputError(
                f"{path} {told}" if told else f"no trace files in {path}; {self._why('JSON, plain or gzipped')}"
            )

    def _why(self, expected: str) -> str:
        return f"skipped {self.skipped[-1]}" if self.skipped else f"expected {expected}"

    def _why_none(self, folder: Path) -> str:
        """Why a folder has no trace: a file that was skipped, or which formats are expected and how to record one."""
        if self.skipped:
            return self._why("")
        other = _first_file(folder)
        only = f"it holds other files, such as {other}; " if other is not None else ""
        return f"{only}expected {_EXPECTED}; `traceopt run SCRIPT` records a trace"

    def _glob(self, pattern: Path) -> None:
        if not any(_is_magic(part) for part in pattern.parts):
            raise InputError(f"no such file or folder: {pattern}")
        matched = False
        try:
            paths = _matches(pattern)
        except ValueError as error:
            raise InputError(f"cannot use the pattern {pattern}: {error}") from error
        for path in paths:
            matched |= self._folder(path) if path.is_dir() else self._candidate(path)
        if not matched:
            raise InputError(f"no trace file matches {pattern}")

    def _folder(self, top: Path) -> bool:
        """Whether there is a trace file, or a companion, in the folder or below it."""
        found = False
        visited: set[str] = set()
        for folder, subfolders, names in os.walk(top, followlinks=True, onerror=self._skip_unreadable):
            real = os.path.realpath(folder)
            subfolders[:] = [] if real in visited else sorted(n for n in subfolders if not n.startswith("."))
            if real in visited:
                continue
            visited.add(real)
            for name in sorted(names):
                path = Path(folder, name)
                if name.startswith("."):
                    continue
                if _DATABASE_NAME.search(name):
                    found |= self._database_in_folder(path)
                elif (same := _same_in_json(name, names)) is not None:
                    self.skipped.append(f"{label_of(str(path))}: {same} is the same recording")
                elif _UNCONVERTED_NAME.search(name) and not path.with_suffix(".sqlite").exists():
                    label = label_of(str(path))
                    self.skipped.append(
                        f"{label}: a report of Nsight Systems has to be converted first: {conversion(label)}"
                    )
                elif _TRACE_NAME.search(name) or _is_companion(path):
                    found |= self._candidate(path)
        return found

    def _candidate(self, path: Path) -> bool:
        """Adds a file that the user did not name directly, if its content may be a trace or is a companion."""
        try:
            if not stat.S_ISREG(path.stat().st_mode):
                return False
            start = start_of(path)
            if _is_archive(start):
                if self._archive(str(path)):
                    return True
                self.skipped.append(f"{label_of(str(path))}: no trace files in this archive")
                return False
        except UNREADABLE as error:
            self.skipped.append(f"{label_of(str(path))}: {reason_of(error)}")
            return False
        if is_database(start):
            return self._database_in_folder(path)
        kind = kind_of(start)
        if kind is None and not _may_be_trace(start):
            self.skipped.append(f"{label_of(str(path))}: {'neither JSON nor gzip' if start else 'empty'}")
            return False
        self._add(str(path), path.stat().st_size, kind=kind)
        return True

    def _database_in_folder(self, path: Path) -> bool:
        """Whether it is an export of Nsight Systems; other databases are none of ours."""
        try:
            return path.is_file() and is_database(start_of(path)) and self._database(str(path), path.stat().st_size)
        except (InputError, *UNREADABLE) as error:
            self.skipped.append(one_line(str(error)))
            return False

    def _database(self, place: str, size_bytes: int, member: str | None = None, *, named: bool = False) -> bool:
        """Adds a source for each process of an export of Nsight Systems; False for another database."""
        source, identity = source_of(place, member, named, size_bytes), _identity(place, member)
        if identity in self._seen:
            return True
        processes = nsight_processes(source)
        if processes:
            self._seen.add(identity)
        for process in processes:
            own = source
            if process.count > 1:
                label = f"{source.label}/process{process.place}"
                own = replace(source, label=label, rank_hint=process.place, world_size_hint=process.count)
            self.sources.append(replace(own, process=process))
        return bool(processes)

    def _remote(self, url: str) -> None:
        listing = list_remote(url)
        if listing.named:
            (file,) = listing.files
            if not self._remote_file(file, named=True):
                raise InputError(f"no trace files in {without_secrets(url)}; {self._why('JSON, plain or gzipped')}")
            return
        top = url.rstrip("/").count("/")
        candidates = [
            file
            for file in listing.files
            if (_TRACE_NAME.search(file.url) or _DATABASE_NAME.search(file.url))
            and not any(part.startswith(".") for part in file.url.split("/")[top:])
        ]
        found = [self._remote_file(file) for file in candidates]
        if not any(found):
            raise InputError(f"no trace files in {without_secrets(url)}; {self._why('*.json or *.json.gz')}")

    def _remote_file(self, file: RemoteFile, *, named: bool = False) -> bool:
        """Adds a file based on its name: looking into each of a thousand remote files would take too long. Only
        databases are opened.
        """
        try:
            if _DATABASE_NAME.search(file.url):
                start = head_of(file.url, START_BYTES)
                return is_database(start) and self._database(file.url, file.size_bytes, named=named)
            if file.url.lower().endswith((".zip", ".json.tar", ".json.tar.gz", ".json.tgz")):
                return self._archive(file.url)
        except (InputError, *UNREADABLE) as error:
            if named:
                raise InputError(f"cannot read {label_of(file.url)}: {reason_of(error)}") from error
            self.skipped.append(one_line(f"{label_of(file.url)}: {reason_of(error)}"))
            return False
        self._add(file.url, file.size_bytes, named=named)
        return True

    def _archive(self, place: str) -> bool:
        """Whether a member may be a trace. Members are read in place; only a database goes into a temporary file."""
        found = False
        with opened_archive(place) as archive:
            names = set(archive.namelist())
            if len(names) > MOST_MEMBERS:
                raise ValueError(f"it has more than {MOST_MEMBERS:,} members; unpack it and pass the folder")
            for name in sorted(names):
                if name.startswith("__MACOSX/") or name.rpartition("/")[2][:1] in ("", "."):
                    continue
                try:
                    with archive.open(name) as member:
                        start = member.read(START_BYTES)
                except UNREADABLE as error:
                    self.skipped.append(f"{label_of(place, name)}: {reason_of(error)}")
                    continue
                if is_database(start):
                    found |= self._database_in_archive(place, name, archive.getinfo(name).file_size)
                elif _may_be_trace(start):
                    self._add(place, archive.getinfo(name).file_size, name)
                    found = True
        return found

    def _database_in_archive(self, place: str, member: str, size_bytes: int) -> bool:
        try:
            return self._database(place, size_bytes, member)
        except InputError as error:
            self.skipped.append(str(error))
            return False

    def _add(
        self,
        place: str,
        size_bytes: int,
        member: str | None = None,
        *,
        named: bool = False,
        kind: KindName | None = None,
    ) -> None:
        identity = _identity(place, member)
        if identity not in self._seen:
            self._seen.add(identity)
            source = source_of(place, member, named, size_bytes)
            if kind is None:
                self.sources.append(source)
            else:
                self.companions.append(CompanionFile(kind, source))

    def _skip_unreadable(self, error: OSError) -> None:
        self.skipped.append(f"{label_of(os.fsdecode(error.filename))}: {reason_of(error)}")


def _identity(place: str, member: str | None) -> str:
    """The same for two paths to the same file."""
    return f"{place if is_remote(place) else os.path.realpath(place)}\0{member or ''}"


def _is_archive(start: bytes) -> bool:
    return start.startswith(_ZIP) or is_tar(start)


def _same_in_json(name: str, names: Sequence[str]) -> str | None:
    """The JSON file among `names` that holds the recording of a Perfetto trace; None if there is none."""
    stem, perfetto, _ = name.partition(".pftrace")
    return next((one for one in (f"{stem}.json", f"{stem}.json.gz") if perfetto and one in names), None)


def _first_file(top: Path) -> str | None:
    """The path in the folder of its first file that is not hidden."""
    for folder, subfolders, names in os.walk(top):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith("."):
                return os.path.relpath(os.path.join(folder, name), top)
    return None


def _is_companion(path: Path) -> bool:
    try:
        return kind_named(path.name) and path.is_file() and kind_of(start_of(path)) is not None
    except OSError:
        return False


def _may_be_trace(start: bytes) -> bool:
    """Whether it is gzip, text that begins like a JSON object or array, or a Perfetto trace."""
    return (
        start.startswith((GZIP_MAGIC, *UTF16_MARKS))
        or start.removeprefix(_UTF8_MARK).lstrip()[:1] in (b"{", b"[")
        or is_perfetto(start)
    )


def _exists(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a name with a NUL
        return False
    return True


def _is_magic(part: str) -> bool:
    return any(character in part for character in "*?[")


def _matches(pattern: Path) -> list[Path]:
    """Uses Path.glob, which does not follow links in `**`; glob.glob would walk into loops of links."""
    parts = pattern.parts
    first = next(index for index, part in enumerate(parts) if _is_magic(part))
    return sorted(Path(*parts[:first]).glob(os.path.join(*parts[first:])))
