"""What is left of a try: the patch to keep, in the working tree or in a file."""

from __future__ import annotations

from pathlib import Path

from traceopt.errors import InputError, OutputError, one_line
from traceopt.trying import diffs
from traceopt.trying.source_copy import git
from traceopt.trying.workspace import Command, project_of


def check_clean(command: Command) -> Path:
    """The top of the repository that contains the script. Raises InputError without one, or if files are changed."""
    root, in_repository = project_of(command, command.folder.resolve())
    if not in_repository:
        raise InputError("--apply needs a git repository; use --patch-out FILE")
    done = git(root, "status", "--porcelain", "--untracked-files=no")
    changed = done.stdout.decode(errors="replace").splitlines()
    if done.returncode or changed:
        first = one_line(changed[0][3:]) if changed else "git status failed"
        raise InputError(
            f"--apply needs a clean working tree, but {first} is changed; commit it, or use --patch-out FILE"
        )
    return root


def apply_patch(command: Command, patch: str) -> list[str]:
    """Applies what was kept to the user's files; returns their names. Raises OutputError, InputError.

    The tree must still be clean: the user may have worked on in the meantime.
    """
    root = check_clean(command)
    try:
        diffs.apply(root, patch)
    except diffs.DiffError as error:
        raise OutputError(f"cannot apply the patch: {error}") from error
    return diffs.files_of(patch)
