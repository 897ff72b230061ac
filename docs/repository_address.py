"""Writes the address of this repository into every file that names it: `python docs/repository_address.py`.

To change it, edit `Repository` under `[project.urls]` in pyproject.toml.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILES = ("*.md", "*.toml", "*.yml", ".github/**/*.md", ".github/**/*.yml", "docs/**/*.md", "action/*.sh")

# `github.com/OWNER/traceopt/...` of links and of pip, `uses: OWNER/traceopt@...` of workflows.
# `OWNER.github.io/traceopt/` is the documentation site.
_NAMED = re.compile(r"(github\.com/|uses: )[\w.-]+/traceopt(?![\w-])")
_SITE = re.compile(r"https://[\w-]+\.github\.io/traceopt/")
_REPOSITORY = re.compile(r'^Repository = "https://github\.com/([\w.-]+/traceopt)"$', re.MULTILINE)


def repository() -> str:
    """The owner and name that pyproject.toml gives, such as `OWNER/traceopt`."""
    found = _REPOSITORY.search((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    if found is None:
        raise SystemExit('pyproject.toml needs Repository = "https://github.com/<owner>/traceopt" in [project.urls]')
    return found[1]


def with_address(text: str, repository: str) -> str:
    """The text with every address of this repository replaced, whatever the old owner."""
    owner = repository.partition("/")[0]
    return _SITE.sub(f"https://{owner}.github.io/traceopt/", _NAMED.sub(rf"\g<1>{repository}", text))


def files() -> Iterator[Path]:
    """The files that may name the repository."""
    for pattern in FILES:
        yield from sorted(ROOT.glob(pattern))


def main() -> None:
    address = repository()
    for file in files():
        text = file.read_text(encoding="utf-8")
        if (changed := with_address(text, address)) != text:
            file.write_text(changed, encoding="utf-8")


if __name__ == "__main__":
    main()
