"""Asks every tool about every case, and writes docs/referee.md.

python -m benchmarks.referee                    # a new seed for the held-out cases
python -m benchmarks.referee --seed 20261127
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.processes import ROOT, environment
from benchmarks.referee.cases import Case, recorded, simulated
from benchmarks.referee.causes import SIDE_OF_CAUSE

HERE = Path(__file__).resolve().parent
PAGE = ROOT / "docs" / "referee.md"
GROUPS = {
    "simulated": "simulated jobs with planted faults (`fixtures/scenarios.py`), and each one's twin without it",
    "held out": "the same faults in jobs of other sizes, which the seed draws",
    "H100": "recordings on an H100, with the gain that was measured (`fixtures/traces/h100`)",
}


@dataclass(frozen=True)
class Tool:
    """`claims`: what its output says at all: "cause", "side", "place", "gain"."""

    name: str
    script: str
    claims: tuple[str, ...]
    reads: str
    environment: str = ""  # of benchmarks/processes.py; empty: this one
    requirements: tuple[str, ...] = ()


TOOLS = (
    Tool("traceopt", "traceopt_answers.py", ("cause", "side", "place", "gain"), "the first row of its plan"),
    Tool(
        "TensorBoard plugin",
        "plugin_answers.py",
        ("cause", "side"),
        "its recommendations",
        "tensorboard",
        ("torch-tb-profiler", "tensorboard", "pandas<3"),
    ),
    Tool(
        "HolisticTraceAnalysis",
        "hta_answers.py",
        ("side",),
        "its temporal breakdown",
        "hta",
        ("HolisticTraceAnalysis", "pandas<3"),
    ),
    Tool("key_averages()", "table_answers.py", ("cause", "side"), "the first rows of the table, by thumb rules"),
)


@dataclass(frozen=True)
class Answer:
    """What a tool says of a case, most important first."""

    causes: list[str] = field(default_factory=list)
    sides: list[str] = field(default_factory=list)
    places: list[list[str]] = field(default_factory=list)
    gains_us: list[float | None] = field(default_factory=list)
    seconds: float = 0.0
    error: str | None = None

    @staticmethod
    def of(document: dict[str, Any]) -> Answer:
        known = {name: document[name] for name in Answer.__dataclass_fields__ if name in document}
        causes = known.get("causes", [])
        sides = known.pop("sides", None) or [SIDE_OF_CAUSE[one] for one in causes if one in SIDE_OF_CAUSE]
        return Answer(**known, sides=sides)


def answers_of(tool: Tool, cases: Sequence[Case]) -> list[Answer]:
    """One process for all cases, as the start of Python is no part of the answer. Raises SystemExit if it fails."""
    python = environment(tool.environment, *tool.requirements) if tool.environment else sys.executable
    folders = [str(case.paths[0].parent) for case in cases]
    done = subprocess.run([python, str(HERE / tool.script), *folders], capture_output=True, text=True)
    lines = done.stdout.splitlines()
    if len(lines) != len(cases):
        raise SystemExit(f"{tool.name} failed after {len(lines)} of {len(cases)} cases:\n{done.stderr[-2000:]}")
    return [Answer.of(json.loads(line)) for line in lines]


@dataclass
class Score:
    """Counts, over the cases of a group. `of` and `alarms_of`: how many there are with and without a fault."""

    of: int = 0
    cause: int = 0
    side: int = 0
    places_of: int = 0
    place: int = 0
    alarms_of: int = 0
    alarms: int = 0
    gain_errors: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    unread: int = 0

    def add(self, case: Case, answer: Answer) -> None:
        self.seconds.append(answer.seconds)
        self.unread += answer.error is not None
        if case.cause is None:
            self.alarms_of += 1
            gone = case.removed
            self.alarms += bool(answer.causes) if gone is None else gone in answer.causes
            return
        self.of += 1
        is_right = answer.causes[:1] == [case.cause]
        self.cause += is_right
        self.side += answer.sides[:1] == [SIDE_OF_CAUSE[case.cause]]
        if case.place is not None:
            self.places_of += 1
            self.place += is_right and bool(answer.places) and case.place in answer.places[0]
        gain_us = answer.gains_us[0] if is_right and answer.gains_us else None
        if gain_us is not None and case.gain_us:
            self.gain_errors.append(abs(gain_us - case.gain_us) / case.gain_us)

    def cells(self, claims: Sequence[str]) -> list[str]:
        not_claimed = "not claimed"
        errors = f"{median(self.gain_errors):.0%} of {len(self.gain_errors)}" if self.gain_errors else "–"
        return [
            f"{self.side} of {self.of}",
            f"{self.cause} of {self.of}" if "cause" in claims else not_claimed,
            (f"{self.place} of {self.places_of}" if self.places_of else "–") if "place" in claims else not_claimed,
            errors if "gain" in claims else not_claimed,
            (f"{self.alarms} of {self.alarms_of}" if self.alarms_of else "–") if "cause" in claims else not_claimed,
            str(self.unread),
            f"{median(self.seconds):.2f} s",
        ]


HEAD = ("Tool", "Side", "Cause", "Place", "Gain error", "False alarms", "Not read", "Time")


def table(group: str, cases: Sequence[Case], answers: dict[str, list[Answer]]) -> str:
    rows = []
    for tool in TOOLS:
        score = Score()
        for case, answer in zip(cases, answers[tool.name], strict=True):
            if case.group == group:
                score.add(case, answer)
        rows.append([tool.name, *score.cells(tool.claims)])
    lines = [HEAD, ("---", *["---:"] * (len(HEAD) - 1)), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def missed(cases: Sequence[Case], answers: Sequence[Answer]) -> list[str]:
    """Where traceopt loses."""
    found = []
    for case, answer in zip(cases, answers, strict=True):
        said = answer.causes[0] if answer.causes else "nothing"
        if case.cause is not None and said != case.cause:
            found.append(f"- {case.group}, `{case.name}`: {case.cause}; traceopt says {said} first.")
        if case.cause is None and (bool(answer.causes) if case.removed is None else case.removed in answer.causes):
            found.append(f"- {case.group}, `{case.name}`: without the fault; traceopt says {', '.join(answer.causes)}.")
    return found


def versions(tool: Tool) -> str:
    if not tool.environment:
        return "this repository" if tool.name == "traceopt" else "torch's table, made from the trace"
    package = tool.requirements[0]
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    python = environment(tool.environment, *tool.requirements)
    return (
        f"{package} {subprocess.run([python, '-c', code], capture_output=True, text=True, check=True).stdout.strip()}"
    )


def page(cases: Sequence[Case], answers: dict[str, list[Answer]], seed: int) -> str:
    tables = "\n\n".join(
        f"## {group[0].upper()}{group[1:]}\n\n{sum(one.group == group for one in cases)} cases: {about}.\n\n"
        f"{table(group, cases, answers)}"
        for group, about in GROUPS.items()
    )
    tools = "\n".join(f"- {tool.name} ({versions(tool)}): {tool.reads}." for tool in TOOLS)
    losses = "\n".join(missed(cases, answers["traceopt"])) or "Nowhere."
    return f"""# A referee for performance diagnosis

Written by `python -m benchmarks.referee --seed {seed}`; do not edit. `make referee` draws a new seed.

Every tool reads the same traces and is asked the same questions: on which side is the lost time, what is the cause, at
which line, what does the fix gain, and what does it claim where nothing is wrong? A label is one of the causes in
`benchmarks/referee/causes.py`, planted by the simulator or by the script that was recorded. The first answer counts.
What a tool does not claim to say is "not claimed", not wrong. The adapters are written as favorably as the output of
each tool allows: they are short, and beside this text in `benchmarks/referee/`.

{tools}

`torch.profiler._pattern_matcher` needs the events of a running profiler, so it reads no traces and is not here. AMD's
TraceLens is not on PyPI (the package of that name is another project), so it is not here either.

- Side: host, GPU, copies or communication. A tool that shows shares of the step names the largest that is no compute,
  from a tenth of the time on, or else the GPU.
- Cause: the first cause that it names. Place: its file and line, if the cause is right.
- Gain error: median of |predicted - true| / true, of the cases with the right cause.
- False alarms: any cause named for a job without a fault, or the cause of a fault that its twin does not have. Jobs
  that communicate are left out of the twins, because their communication is exposed with and without the fault. Some
  other twins have a second fault of the same cause: that of `float64` computes in FP32, that of `conv_bias` has other
  pointwise kernels. They count as alarms all the same.
- Time: median of a trace, without the start of Python.

The faults were known while traceopt was built, and its rules were written for them. So the first table says that it
does what it was made for, and less about faults that nobody has thought of. The held-out jobs have other sizes, not
other faults. The H100 recordings are real, and were used to correct prices.

{tables}

## Where traceopt is wrong

{losses}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, help="of the held-out cases  [default: a new one]")
    seed = parser.parse_args().seed or random.SystemRandom().randrange(1, 10**8)
    with tempfile.TemporaryDirectory() as folder:
        cases = [*simulated(Path(folder)), *simulated(Path(folder), seed), *recorded()]
        answers = {tool.name: answers_of(tool, cases) for tool in TOOLS}
        PAGE.write_text(page(cases, answers, seed), encoding="utf-8")
    print(f"{len(cases)} cases, seed {seed}: {PAGE.relative_to(ROOT)}", file=sys.stderr)


if __name__ == "__main__":
    main()
