"""Checks the subjects of the commits since this file was added, at most the last 100: `python .ci/commit_subjects.py`.

Says nothing in a tree without git, and little in a shallow clone, whose oldest commit adds every file.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

LONGEST = 72  # characters; git and code hosts cut longer ones
ROOT = Path(__file__).resolve().parents[1]


def git(*arguments: str) -> list[str]:
    """The lines of the answer; none if there is no git, or no repository."""
    try:
        answer = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return []
    return answer.stdout.splitlines()


def complaints() -> list[str]:
    """A line for each subject that is too long, or that names several things."""
    added = git("log", "--diff-filter=A", "--format=%H", "--", Path(__file__).relative_to(ROOT).as_posix())
    since = git("log", "--no-merges", "--max-count=100", "--format=%h %s", f"{added[-1]}..HEAD") if added else []
    found = []
    for line in since:
        commit, _, subject = line.partition(" ")
        if len(subject) > LONGEST:
            found.append(f"{commit}: {len(subject)} characters, at most {LONGEST}: {subject}")
        elif ";" in subject:
            found.append(f"{commit}: several things, make a commit of each: {subject}")
    return found


if __name__ == "__main__":
    sys.exit("\n".join(complaints()) or None)
