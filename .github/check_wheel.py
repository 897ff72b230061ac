"""Installs the wheel into an empty environment and uses it: `python .github/check_wheel.py dist/*.whl`.

Nothing may be compiled, and the program may import only what the wheel declares. Prints the size and the time of the
install. Needs nothing but the interpreter, whose Python is the one that is checked.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Sequence
from pathlib import Path

TRACE = Path(__file__).resolve().parents[1] / "fixtures" / "traces" / "five_faults.json.gz"

# Runs inside the new environment: the command, then the distributions that the program's own modules import by name.
IMPORTS = """
import builtins, contextlib, io, json, re, sys
from importlib import metadata

owners = metadata.packages_distributions()
seen = set()
original = builtins.__import__

def watch(name, scope=None, *rest, **named):
    if scope and scope.get("__name__", "").split(".")[0] == "traceopt":
        seen.update(owners.get(name.split(".")[0], ()))
    return original(name, scope, *rest, **named)

builtins.__import__ = watch
from traceopt.cli import cli
with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), "utf-8")):
    for arguments in json.loads(sys.argv[1]):
        try:
            cli(arguments)
        except SystemExit as end:
            if end.code:
                raise
required = [line for line in metadata.requires("traceopt-profiler") if "extra ==" not in line]
declared = {re.match(r"[\\w.-]+", line)[0].lower() for line in required}
print(json.dumps(sorted({name.lower() for name in seen} - declared - {"traceopt-profiler"})))
"""


def check(wheel: Path, folder: Path) -> None:
    """Raises SystemExit that says what is wrong with the wheel, or CalledProcessError for a program that fails."""
    python = folder / "env" / ("Scripts" if os.name == "nt" else "bin") / "python"
    venv.create(folder / "env", with_pip=True)
    before = size_of(folder / "env")
    began = time.monotonic()
    pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", "--only-binary", ":all:")
    run(python, *pip, str(wheel), folder=folder)
    seconds = time.monotonic() - began
    size = (size_of(folder / "env") - before) / 2**20
    print(f"{wheel.name} on Python {sys.version.split()[0]}: {size:.0f} MiB, {seconds:.0f} s")

    training = folder / "train.py"
    training.write_text("print('trained')\n", encoding="utf-8")
    run(python, "-m", "traceopt", "--help", folder=folder)
    run(python, "-m", "traceopt", "analyze", str(TRACE), folder=folder)
    if "trained" not in run(python, "-m", "traceopt", "run", "--no-analyze", training.name, folder=folder):
        raise SystemExit("traceopt run did not run the script")
    if "</html>" not in (folder / "traceopt-report.html").read_text(encoding="utf-8"):
        raise SystemExit("traceopt analyze wrote no report")
    commands = [["analyze", str(TRACE), "--json", "result.json"], ["compare", "result.json", "result.json"]]
    commands += [["rules"], ["rule", "DL001"], ["schema"], ["whatif", str(TRACE), "--fix", "DL001"]]
    undeclared = json.loads(run(python, "-c", IMPORTS, json.dumps(commands), folder=folder))
    if undeclared:
        raise SystemExit(f"imported but not declared in pyproject.toml: {', '.join(undeclared)}")


def run(python: Path, *arguments: str, folder: Path) -> str:
    """What the program prints on stdout. It runs away from the checkout, so that it can only be the installed one."""
    clean: dict[str, str] = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run([python, *arguments], cwd=folder, env=clean, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def size_of(folder: Path) -> int:
    """The bytes of all files in a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


def main(wheels: Sequence[str]) -> None:
    for wheel in wheels:
        with tempfile.TemporaryDirectory() as folder:
            check(Path(wheel).resolve(), Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
