"""Copies of the user's source: one snapshot when `traceopt try` starts, and from it a fresh folder for every run.

Source files are copied. Data, checkpoints, environments and all that git ignores are linked: they are too large to
copy, and a script finds them where it expects them. The snapshot of a repository is a worktree, so that a script can
ask git which commit it is. Every run starts from the same files, whatever an earlier run wrote next to them.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from traceopt.errors import InputError, OutputError, one_line

SOURCE_SUFFIXES = frozenset(
    (
        ".py", ".pyi", ".pyx", ".pxd", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".sh", ".toml", ".yaml",
        ".yml", ".json", ".cfg", ".ini", ".txt", ".md", ".gin", ".jinja", ".j2", ".env",
    )
)  # fmt: skip
LARGEST_SOURCE_BYTES = 1 << 20  # an untracked file that is larger is data
LARGEST_TRACKED_BYTES = 32 << 20
MOST_FILES = 50_000
LEVELS_ABOVE = 3  # ../../../data is found
MOST_BESIDE = 10_000  # entries of a folder that contains the source
_NEVER = (".git", "__pycache__", ".traceopt-try")
GIT_TIMEOUT_S = 300


class Snapshot:
    """The source as it was when the snapshot was made, in a folder of its own; `close` removes it.

    `root` is the top of the user's source: of the repository, or else the folder that contains the script. Outside of a
    repository, folders in it are linked if they are not `deep`.
    """

    def __init__(
        self, root: Path, folder: Path, repository: bool, revision: str | None = None, deep: bool = True
    ) -> None:
        self.root = root
        self.folder = folder
        self._repository = repository
        self._revision = revision
        self._deep = deep
        self._worktree = False

    def take(self) -> None:
        """Raises InputError for an unknown revision or a folder with too many files, OutputError for a full disk."""
        try:
            if self._repository:
                self._add_worktree()
            self.folder.mkdir(parents=True, exist_ok=True)
            if self._revision is None:
                self._copy_source()
            else:
                self._link_ignored()
        except OSError as error:
            self.close()
            raise OutputError(f"cannot copy the source to {self.folder}: {error.strerror or error}") from error
        except BaseException:
            self.close()
            raise

    def copy_to(self, folder: Path) -> None:
        """A fresh copy, in which a variant can be made and run. Raises OSError."""
        shutil.copytree(self.folder, folder, symlinks=True)

    def close(self) -> None:
        """Removes the snapshot and, in a repository, its registration as a worktree."""
        if self._worktree:
            self._worktree = False
            with suppress(OSError, subprocess.SubprocessError):
                git(self.root, "worktree", "remove", "--force", "--force", str(self.folder))
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._repository:
            with suppress(OSError, subprocess.SubprocessError):
                git(self.root, "worktree", "prune")

    def _add_worktree(self) -> None:
        """Without a commit or without the right to write into .git there is none; then the files are just copied."""
        empty = ["--no-checkout"] if self._revision is None else []
        self._worktree = True  # also while git is at it
        done = git(self.root, "worktree", "add", "--detach", *empty, str(self.folder), self._revision or "HEAD")
        if done.returncode:
            self._worktree = False
            if self._revision is not None:
                said = done.stderr.decode(errors="replace").strip().splitlines()
                raise InputError(f"--against {self._revision}: {one_line(said[-1] if said else 'git failed')}")
        elif self._revision is None:
            git(self.folder, "read-tree", "HEAD")  # so that git status in the copy shows what the user has changed

    def _copy_source(self) -> None:
        if not self._repository:
            self._mirror(self.root, self.folder, count=[0])
            return
        tracked, untracked = _listed(self.root, "--cached"), _listed(self.root, "--others", "--exclude-standard")
        for name in tracked:
            self._place(name, copied=_size(self.root / name) <= LARGEST_TRACKED_BYTES)
        environments = _environments(untracked)
        for name in environments:
            self._place(name, copied=False)
        for name in untracked:
            if not name.startswith(tuple(f"{folder}/" for folder in environments)):
                self._place(name, copied=_is_source(self.root / name))
        self._link_ignored()

    def _link_ignored(self) -> None:
        for name in _listed(self.root, "--others", "--ignored", "--exclude-standard", "--directory"):
            if not _is_never(name):
                self._place(name.rstrip("/"), copied=False)

    def _place(self, name: str, *, copied: bool) -> None:
        """Copies or links one entry of the repository, unless the snapshot has it or it is gone."""
        source, target = self.root / name, self.folder / name
        if _is_never(name) or source == self.folder or source in self.folder.parents or os.path.lexists(target):
            return
        if not os.path.lexists(source):  # deleted, but still in git's index
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        if copied and (source.is_symlink() or not source.is_dir()):
            self._copy(source, target)
        else:
            os.symlink(source, target)

    def _copy(self, source: Path, target: Path) -> None:
        """A link within the source stays one; any other leads to where the user's link leads."""
        if not source.is_symlink():
            shutil.copy2(source, target)
            return
        leads_to = os.readlink(source)
        inside = Path(os.path.normpath(source.parent / leads_to)).is_relative_to(self.root)
        os.symlink(leads_to if inside and not os.path.isabs(leads_to) else source, target)

    def _mirror(self, source: Path, target: Path, count: list[int]) -> None:
        """The same for a folder outside of a repository: only folders with source files are gone into, if at all."""
        target.mkdir(exist_ok=True)
        for entry in sorted(os.scandir(source), key=lambda one: one.name):
            path, place = Path(entry.path), target / entry.name
            count[0] += 1
            if count[0] > MOST_FILES:
                raise InputError(f"{self.root} has too many files to copy: start in the folder of the project")
            if entry.name in _NEVER or path == self.folder:
                continue
            gone_into = self._deep and entry.is_dir(follow_symlinks=False) and _has_source(path)
            if gone_into or path in self.folder.parents:
                self._mirror(path, place, count)
            elif entry.is_symlink() or (entry.is_file(follow_symlinks=False) and _is_source(path)):
                self._copy(path, place)
            else:
                os.symlink(path, place)


def stand_in(folder: Path, of: Path) -> Path:
    """A place in `folder` for a copy of the folder `of`, from which ../data leads to where it leads from `of`.

    Everything that lies beside `of`, and beside the folders that contain it, is linked. Raises OSError.
    """
    above = list(of.parents[:LEVELS_ABOVE])[::-1]
    for outer, inner in zip(above, [*above, of][1:], strict=True):
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(PermissionError), os.scandir(outer) as entries:
            for entry in islice(entries, MOST_BESIDE):
                if entry.name != inner.name:
                    os.symlink(entry.path, folder / entry.name)
        folder /= inner.name
    return folder


def repository_of(folder: Path) -> Path | None:
    """The top of the repository that contains the folder; None without git or a repository."""
    if shutil.which("git") is None:
        return None
    try:
        done = git(folder, "rev-parse", "--show-toplevel")
    except (OSError, subprocess.SubprocessError):
        return None
    top = done.stdout.decode(errors="surrogateescape").rstrip("\n")
    return Path(top).resolve() if done.returncode == 0 and top else None


def git(folder: Path, *words: str, data: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    """Runs git in the folder, whatever repository the environment names. Ctrl-C does not reach it."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    return subprocess.run(  # noqa: S603
        ["git", "-c", "core.hooksPath=/dev/null", *words],  # noqa: S607
        cwd=folder,
        env=environment | {"GIT_OPTIONAL_LOCKS": "0", "GIT_LFS_SKIP_SMUDGE": "1"},
        input=data,
        stdin=None if data is not None else subprocess.DEVNULL,
        capture_output=True,
        timeout=GIT_TIMEOUT_S,
        start_new_session=True,
    )


def _listed(root: Path, *what: str) -> list[str]:
    done = git(root, "ls-files", "-z", *what)
    names = done.stdout.decode(errors="surrogateescape").split("\0")
    return [name for name in names if name]


def _environments(names: Sequence[str]) -> list[str]:
    """The folders of Python environments among these files: too large to copy, even if git does not ignore them."""
    return [os.path.dirname(name) for name in names if os.path.basename(name) == "pyvenv.cfg" and os.path.dirname(name)]


def _is_never(name: str) -> bool:
    return any(part in _NEVER for part in name.rstrip("/").split("/"))


def _is_source(path: Path) -> bool:
    return path.suffix in SOURCE_SUFFIXES and _size(path) <= LARGEST_SOURCE_BYTES


def _size(path: Path) -> int:
    """Size of a plain file; of anything else, more than any limit."""
    try:
        found = path.lstat()
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode) else 1 << 62


def _has_source(folder: Path) -> bool:
    """Whether a folder is part of the project: it has Python files, and is no environment and no installed package."""
    if (folder / "pyvenv.cfg").exists() or (folder / "conda-meta").exists() or folder.name == "site-packages":
        return False
    return any(name.endswith(".py") for name in _names(folder))


def _names(folder: Path) -> Iterator[str]:
    """File names in the folder and below, a limited number."""
    left = 2000
    for _, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            left -= 1
            yield name
        if left < 0:
            return
