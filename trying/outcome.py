"""What is left of a try: the patch to keep, in the working tree or in a file."""

from __future__ import annotations

from pathlib import Path

from traceopt.errors import InputError, OutputError, one_line
from traceopt.trying import diffs
from traceopt.trying.source_copy import git, repository_of


def check_clean(folder: Path) -> Path:
    """The top of the repository that contains the folder. Raises InputError without one, or if files are changed."""
    root = repository_of(folder)
    if root is None:
        raise InputError("--apply needs a git repository; use --patch-out FILE")
    done = git(root, "status", "--porcelain", "--untracked-files=no")
    changed = done.stdout.decode(errors="replace").splitlines()
    if done.returncode or changed:
        first = one_line(changed[0][3:]) if changed else "git status failed"
        raise InputError(
            f"--apply needs a clean working tree, but {first} is changed; commit it, or use --patch-out FILE"
        )
    return root


def apply_patch(root: Path, patch: str) -> list[str]:
    """Applies what was kept to the user's files; returns their names. Raises OutputError, InputError.

    The tree must still be clean: the user may have worked on in the meantime.
    """
    check_clean(root)
    try:
        diffs.apply(root, patch)
    except diffs.DiffError as error:
        raise OutputError(f"cannot apply the patch: {error}") from error
    return diffs.files_of(patch)
