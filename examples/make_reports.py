#!/usr/bin/env python3
"""Makes the reports of the examples: before, with what `traceopt try` measured, and after, with the changes it kept.

python examples/make_reports.py               # about six minutes each; the machine should do nothing else
python examples/make_reports.py serving
python examples/make_reports.py --budget 1 ddp  # a quick look
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from traceopt.result.encoding import packing

HERE = Path(__file__).resolve().parent
PACKED = re.compile(r"H4sIAAAAAA[A-Za-z0-9+/]+=*")  # the first bytes of gzip in base64
TORCHRUN = ("--", "torchrun", "--standalone", "--nproc-per-node", "2", "train.py")
# Of each example: the options of `traceopt try` alone, then what `traceopt run` gets as well.
EXAMPLES = {
    "vision": ((), ("train.py",)),
    "language_model": ((), ("train.py",)),
    "ddp": (("--patch", "no_sync.patch", "--top", "2"), TORCHRUN),
    "serving": ((), ("--step-on", "forward", "serve.py")),
}


def traceopt(folder: Path, *arguments: str) -> str:
    """Raises CalledProcessError if it fails."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = [sys.executable, "-m", "traceopt", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout


def without_host(page: str, host: str) -> str:
    """The page with "host" for the name of the computer, also in the documents that are packed in it."""
    parts, end = [], 0
    for match in PACKED.finditer(page):
        parts += [page[end : match.start()].replace(f"{host}_", "host_"), _repacked(match[0], host)]
        end = match.end()
    return "".join([*parts, page[end:].replace(f"{host}_", "host_")])


def _repacked(packed: str, host: str) -> str:
    try:
        data = packing.unpack(packed)
    except ValueError:
        return packed.replace(f"{host}_", "host_")  # a long text of another kind
    if data[:1] not in (b"{", b"["):
        return packed  # numbers
    return packing.pack(data.replace(f"{host}_".encode(), b"host_"))


def keep(report: Path, target: Path, *private: str) -> None:
    """Copies a report that names neither this computer nor its folders."""
    text = without_host(report.read_text(encoding="utf-8"), platform.node())
    found = [word for word in private if word in text]
    if found:
        raise SystemExit(f"{report.name} of {target.parent.name} names {', '.join(found)}")
    target.write_text(text, encoding="utf-8")


def make(name: str, minutes: float) -> str:
    """Returns what `traceopt try` printed."""
    of_try, command = EXAMPLES[name]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / name
        shutil.copytree(HERE / name, folder, ignore=shutil.ignore_patterns("*.html"))
        private = (temporary, str(HERE.parent), str(Path.home()))
        out = ("--html", "before.html", "--patch-out", "kept.patch")
        printed = traceopt(folder, "try", "--budget", str(minutes), *out, *of_try, *command)
        if not (folder / "kept.patch").exists():
            return f"{printed}{name} keeps its old reports: nothing was kept."
        keep(folder / "before.html", HERE / name / "report-before.html", *private)
        subprocess.run(["git", "apply", "kept.patch"], cwd=folder, check=True)
        traceopt(folder, "run", "--html", "after.html", *command)
        keep(folder / "after.html", HERE / name / "report-after.html", *private)
    return printed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*EXAMPLES, []], metavar="NAME")
    parser.add_argument("--budget", type=float, default=4, metavar="MINUTES", help="as of traceopt try [default: 4]")
    arguments = parser.parse_args()
    for name in arguments.names or EXAMPLES:
        print(f"== {name}", make(name, arguments.budget), sep="\n", flush=True)


if __name__ == "__main__":
    main()
