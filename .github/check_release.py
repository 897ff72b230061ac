"""Refuses a release that was not prepared: `python .github/check_release.py`, as release.yml runs it.

The tag is the version of pyproject.toml, the changelog has a section for it, and `[project.urls]` names the repository
that releases. Needs Python 3.11 and nothing else.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parents[1]


def problems(tag: str, repository: str) -> Iterator[str]:
    """What is wrong with releasing `tag` from `repository`, an address."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version = project["version"]
    if tag != f"v{version}":
        yield f"the tag is {tag}, but the version in pyproject.toml is {version}: the tag must be v{version}"
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if not re.search(rf"^## \[{re.escape(version)}\]", changelog, re.MULTILINE):
        yield f"CHANGELOG.md has no section [{version}]: rename [Unreleased]"
    address = project["urls"]["Repository"]
    if address != repository:
        yield f"Repository in pyproject.toml is {address}, but this is {repository}: correct it and run make docs"


if __name__ == "__main__":
    found = list(
        problems(os.environ["GITHUB_REF_NAME"], f"{os.environ['GITHUB_SERVER_URL']}/{os.environ['GITHUB_REPOSITORY']}")
    )
    for problem in found:
        print(f"::error title=release::{problem}")
    sys.exit(1 if found else 0)
