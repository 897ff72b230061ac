#!/usr/bin/env python3
"""Compares what `traceopt try` gains with what the same fix gains when it is made by hand.

python benchmarks/twins.py                          # writes twins.json next to this file: about ten minutes a workload
python benchmarks/twins.py slow_loader healthy      # measures only these again
python benchmarks/twins.py --page                   # writes the table into docs/trying-fixes.md

For each workload that a CPU can run, `traceopt try --fix` makes the fix of the planted bottleneck, and `traceopt try
--args=--fixed` measures the fixed variant of the script right before it. Both are measured as for any user. The healthy
workload is tried with a variable that nothing reads. A result is only written if other programs did not disturb it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

if __name__ == "__main__":  # run as a script: the packages are a folder above
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.marked import with_part
from fixtures.workloads.capture import environment
from fixtures.workloads.pairs import HEALTHY, PAIRS, Pair
from traceopt.result.document import Result
from traceopt.result.trial import TriedChange
from traceopt.result.words.quantities import signed_percent
from traceopt.trying.changes import Change, changes_of
from traceopt.trying.rounds import ALSO_BUSY

DATA = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).parents[1] / "docs" / "trying-fixes.md"
WORKLOADS = {pair.name: pair for pair in (*PAIRS, HEALTHY) if pair.on_cpu}
STEPS = 400  # of the script: more than are recorded or measured
NOTHING = "TRACEOPT_UNUSED=1"
FIELDS = (
    "name", "via", "verdict", "reason",
    "predicted_us", "before_us", "after_us", "gain_share", "low_share", "high_share",
)  # fmt: skip

Row = dict[str, Any]


class DisturbedError(Exception):
    """Other programs used the machine."""


def compared(pair: Pair, minutes: float) -> Row:
    """The `fix` and its `twin`, each with the FIELDS of a tried change. Without a patch or setting, `code` and `twin`.

    The healthy workload has no twin. Raises DisturbedError, or RuntimeError if `traceopt try` fails.
    """
    if pair is HEALTHY:
        return {"fix": _row(_tried(pair, minutes, f"--env={NOTHING}").tried[0])}
    by_hand = _tried(pair, minutes, "--args=--fixed")
    changes = fixes_of(by_hand, pair)
    if not changes:
        return {"code": pair.codes[0], "twin": _row(by_hand.tried[0])}
    codes = ",".join(change.name for change in changes)
    made = _tried(pair, minutes, f"--fix={codes}").tried
    return {"fix": _row(made[-1]) | {"name": codes.replace(",", " + ")}, "twin": _row(by_hand.tried[0])}


def fixes_of(result: Result, pair: Pair) -> list[Change]:
    """For each planted bottleneck, the first of its rules that was found and whose fix can be made."""
    found = {finding.code for finding in result.findings}
    fixes = []
    for codes in ((*pair.codes, *pair.also), pair.second):
        changes = [change for code in codes if code in found for change in changes_of(result, [code], None)[0]]
        fixes += changes[:1]
    return fixes


def _tried(pair: Pair, minutes: float, what: str) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        document = Path(folder, "result.json")
        options = [
            what,
            f"--budget={minutes}",
            "--preset=quick",
            "--no-html",
            f"--json={document}",
            f"--logdir={folder}/log",
        ]
        words = pair.command("--device", "cpu", "--steps", str(STEPS))
        done = subprocess.run([sys.executable, "-m", "traceopt", "try", *options, "--", *words], capture_output=True)
        if done.returncode:
            raise RuntimeError(done.stderr.decode(errors="replace").strip())
        return msgspec.json.decode(document.read_bytes(), type=Result)


def _row(change: TriedChange) -> Row:
    if change.reason is not None and ALSO_BUSY in change.reason:
        raise DisturbedError(f"{change.name}: {change.reason}")
    return {name: getattr(change, name) for name in FIELDS} | {
        "losses": change.losses.verdict if change.losses is not None else None,
        "rounds": len(change.rounds),
    }


def agree(fix: Row, twin: Row) -> bool | None:
    """Whether the intervals of both gains overlap; None if one is not known."""
    ends = (fix["low_share"], fix["high_share"], twin["low_share"], twin["high_share"])
    if any(end is None for end in ends):
        return None
    return bool(fix["low_share"] <= twin["high_share"] and twin["low_share"] <= fix["high_share"])


def table(workloads: dict[str, Row]) -> list[str]:
    lines = [
        "| workload | fix | via | predicted | measured | by hand | losses | verdict | agree |",
        "| --- | --- | --- | ---: | ---: | ---: | --- | --- | --- |",
    ]
    for name in WORKLOADS:
        if name not in workloads:
            continue
        fix, twin = workloads[name].get("fix"), workloads[name].get("twin")
        if fix is None:
            lines.append(
                f"| {name} | {workloads[name]['code']} | – | – | – | {_gain(twin)} | – | no patch, no setting | – |"
            )
            continue
        same = agree(fix, twin) if twin is not None else None
        agreed = {True: "yes", False: "no", None: "–"}[same]
        lines.append(
            f"| {name} | {fix['name']} | {fix['via']} | {_predicted(fix)} | {_gain(fix)} | {_gain(twin)} "
            f"| {fix['losses']} | {fix['verdict'].replace('_', ' ')} | {agreed} |"
        )
    return lines


def page(text: str, workloads: dict[str, Row]) -> str:
    """The page with a new table."""
    return with_part(text, "twins.py", "\n".join(table(workloads)))


def _predicted(row: Row) -> str:
    if row["predicted_us"] is None or not row["before_us"]:
        return "–"
    return signed_percent(-row["predicted_us"] / row["before_us"])


def _gain(row: Row | None) -> str:
    """The change of the step and half its interval."""
    if row is None or row["gain_share"] is None:
        return "–"
    change = signed_percent(0.0 - row["gain_share"])
    if row["low_share"] is None or row["high_share"] is None:
        return change
    return f"{change} ± {(row['high_share'] - row['low_share']) / 2:.1%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*WORKLOADS, []], metavar="NAME", help="default: all")
    parser.add_argument("--page", action="store_true", help="measure nothing; write the page")
    parser.add_argument("--minutes", type=float, default=5.0, help="budget of each change (default: 5)")
    parser.add_argument("--data", type=Path, default=DATA, metavar="FILE")
    options = parser.parse_args()
    data: dict[str, Any] = {"workloads": {}}
    if options.data.exists():
        data = json.loads(options.data.read_text(encoding="utf-8"))
    if options.page:
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), data["workloads"]), encoding="utf-8")
        return
    for library in ("OMP", "MKL"):  # otherwise the run measures threads that wait for cores
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    here = {**environment(), "cores": len(os.sched_getaffinity(0)), "threads": os.environ["OMP_NUM_THREADS"]}
    if data.setdefault("environment", here) != here:
        sys.exit(f"{options.data}: measured on another machine; use --data FILE")
    for name in options.names or WORKLOADS:
        try:
            data["workloads"][name] = compared(WORKLOADS[name], options.minutes)
        except (DisturbedError, RuntimeError) as error:
            print(f"{name}: not written: {error}", file=sys.stderr)
            continue
        print(table({name: data["workloads"][name]})[-1], file=sys.stderr)
        options.data.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
