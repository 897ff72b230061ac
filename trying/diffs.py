"""Applies diffs to a copy of the source. A diff may come from anyone: it must not reach a file outside the copy."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path, PurePosixPath

from traceopt.errors import one_line
from traceopt.rules.fixes.patches.unified import apply_diff

GIT_TIMEOUT_S = 120
_NAMED = re.compile(r"^(?:---|\+\+\+|rename (?:from|to)|copy (?:from|to)) (.+)$", re.MULTILINE)
_HEADER = re.compile(r'^diff --git "?a/(.+?)"? "?b/(.+?)"?$', re.MULTILINE)
_MODE = re.compile(r"^(?:(?:new file|new|old|deleted file) mode|index \S*) (.*)$", re.MULTILINE)
_FILE_MODES = ("100644", "100755")  # git takes other spellings of a link's mode, such as "0120000 "
_FILE = re.compile(r"^--- .*\n\+\+\+ .*\n", re.MULTILINE)


class DiffError(Exception):
    """The diff does not apply; the message says why."""


def apply(folder: Path, diff: str) -> None:
    """Changes the files of the folder. Raises DiffError; the folder is then of no more use.

    Refuses names that lead out of the folder, also by a link, and links that the diff would create. Git finds the place
    of a hunk whose lines have moved; without git, the lines must be where the diff says.
    """
    names = files_of(diff)
    if any(mode not in _FILE_MODES for mode in _MODE.findall(diff)):
        raise DiffError("it changes a link or a submodule")
    for name in names:
        _check_inside(folder, name)
    if shutil.which("git") is not None:
        _apply_with_git(folder, diff)
    else:
        _apply_exactly(folder, diff)


def files_of(diff: str) -> list[str]:
    """The files that a diff names, relative to the root of the source. Raises DiffError if it names none."""
    names: dict[str, None] = {}
    for line in _NAMED.findall(diff):
        text = line.split("\t")[0].rstrip()
        if text == "/dev/null":
            continue
        if text.startswith('"'):
            raise DiffError("it has a file name in quotes")
        names[text.removeprefix("a/").removeprefix("b/") if text[:2] in ("a/", "b/") else text] = None
    for pair in _HEADER.findall(diff):
        names |= dict.fromkeys(pair)
    if not names:
        raise DiffError("it names no file")
    return list(names)


def _check_inside(folder: Path, name: str) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name or "\\" in name or not path.parts:
        raise DiffError(f"it changes {one_line(name)}, which is outside the source")
    if path.parts[0] == ".git":
        raise DiffError(f"it changes {one_line(name)}, which belongs to git")
    place = folder
    for part in path.parts:
        place = place / part
        if place.is_symlink():
            raise DiffError(f"it changes {one_line(name)}, which is linked and not copied")


def _apply_with_git(folder: Path, diff: str) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    environment["GIT_CEILING_DIRECTORIES"] = str(folder.parent)
    command = ["git", "apply", "--whitespace=nowarn", "-"]
    try:
        done = subprocess.run(  # noqa: S603
            command, cwd=folder, env=environment, input=diff.encode(), capture_output=True, timeout=GIT_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DiffError(f"git apply: {one_line(str(error))}") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}"
        raise DiffError(one_line(said.removeprefix("error: ").splitlines()[0]))


def _apply_exactly(folder: Path, diff: str) -> None:
    starts = [match.start() for match in _FILE.finditer(diff)]
    if not starts or re.search(r"^(rename|copy) from|^GIT binary patch|^(---|\+\+\+) /dev/null", diff, re.MULTILINE):
        raise DiffError("without git, a diff can only change files that exist: install git")
    for start, end in zip(starts, [*starts[1:], len(diff)], strict=True):
        part = diff[start:end].partition("\ndiff --git ")[0]
        part = part if part.endswith("\n") else part + "\n"
        name = files_of(part)[-1]
        try:
            path = folder / name
            before = path.read_bytes().decode()
            path.write_bytes(apply_diff(before, part).encode())
        except (OSError, ValueError) as error:
            raise DiffError(f"patch does not apply: {one_line(name)}: {error}") from error
