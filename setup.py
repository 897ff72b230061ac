"""What pyproject.toml cannot say: which folders make up the package, and the README with absolute links."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).resolve().parent
FOLDERS = ("analyzer", "capture", "reports", "rules", "trying")  # beside traceopt/, whose sub-packages they are
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

FOUND = find_packages(
    str(HERE), include=[f"{folder}{below}" for folder in ("traceopt", *FOLDERS) for below in ("", ".*")]
)

# The package index shows the README away from the repository.
setup(
    packages=[name if name.partition(".")[0] == "traceopt" else f"traceopt.{name}" for name in FOUND],
    package_dir={f"traceopt.{folder}": folder for folder in FOLDERS},
    long_description=re.sub(r"\]\((?!https?:|#)([^)]+)\)", absolute, README),
    long_description_content_type="text/markdown",
)
