"""The package index shows the README away from the repository: its relative links become links to the repository."""

import re
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).resolve().parent
SETTINGS = (HERE / "pyproject.toml").read_text(encoding="utf-8")


def setting(name: str) -> str:
    found = re.search(rf'^{name} = "(.+)"$', SETTINGS, re.MULTILINE)
    if found is None:
        raise SystemExit(f"pyproject.toml has no {name}")
    return found[1]


def absolute(link: re.Match[str]) -> str:
    form = "raw" if link[1].endswith(".png") else "blob"
    return f"]({setting('Repository')}/{form}/v{setting('version')}/{link[1]})"


README = (HERE / "README.md").read_text(encoding="utf-8")

setup(
    long_description=re.sub(r"\]\((?!https?:|#)([^)]+)\)", absolute, README),
    long_description_content_type="text/markdown",
)
