"""Checks the subjects of the last 100 commits: `python .ci/commit_subjects.py`. Says nothing in a tree without git."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 72  # characters; git and code hosts cut longer ones
SINCE = "2026-11-27T01:00:00Z"  # older commits were made without this check


def subjects() -> list[str]:
    """Commit and subject of each; none if there is no git, or no repository."""
    if not (ROOT / ".git").exists():
        return []
    command = ["git", "log", "--no-merges", f"--since={SINCE}", "--max-count=100", "--format=%h %s"]
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.splitlines()
    except OSError:
        return []


def complaints() -> list[str]:
    """A line for each subject that is too long, or that names several things."""
    found = []
    for line in subjects():
        commit, _, subject = line.partition(" ")
        if len(subject) > LONGEST:
            found.append(f"{commit}: {len(subject)} characters, at most {LONGEST}: {subject}")
        elif ";" in subject:
            found.append(f"{commit}: several things, make a commit of each: {subject}")
    return found


if __name__ == "__main__":
    sys.exit("\n".join(complaints()) or None)
