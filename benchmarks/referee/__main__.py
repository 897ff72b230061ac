"""Asks every tool about every case, and writes docs/referee.md.

python -m benchmarks.referee                    # a new seed for the held-out cases
python -m benchmarks.referee --seed 20261127
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.processes import ROOT, environment
from benchmarks.referee import hta_answers, pattern_answers, plugin_answers, table_answers
from benchmarks.referee.cases import WORTH_SHARE, Case, one_defect, recorded, recorded_here, simulated
from benchmarks.referee.causes import SIDE_OF_CAUSE

HERE = Path(__file__).resolve().parent
PAGE = ROOT / "docs" / "referee.md"
GROUPS = {
    "simulated": "simulated jobs with planted faults (`fixtures/scenarios.py`), and each one's twin without it",
    "held out": "the same faults in jobs of other sizes, which the seed draws",
    "H100": "recordings on an H100, with the gain that was measured (`fixtures/traces/h100`)",
    "one defect": "traces of AMD's TraceLens (MIT, `evals/analysis_tests`) with a few slow kernels and no step; nobody "
    "measured what a fix gains",
    "CPU": "trainings on the CPU of the machine that wrote this page (`fixtures/workloads`), and each one's twin "
    "without the fault. The gain is measured on steps without a profiler",
}


@dataclass(frozen=True)
class Tool:
    """`claims`: what its output says at all: "cause", "side", "place", "gain". `causes`: those that it can name."""

    name: str
    script: str
    claims: tuple[str, ...]
    reads: str
    environment: str = ""  # of benchmarks/processes.py; empty: this one
    requirements: tuple[str, ...] = ()
    causes: frozenset[str] = frozenset(SIDE_OF_CAUSE)
    groups: tuple[str, ...] = tuple(GROUPS)


TOOLS = (
    Tool("traceopt", "traceopt_answers.py", ("cause", "side", "place", "gain"), "the first row of its plan"),
    Tool(
        "TensorBoard plugin",
        "plugin_answers.py",
        ("cause", "side"),
        "its recommendations",
        "tensorboard",
        ("torch-tb-profiler", "tensorboard", "pandas<3"),
        frozenset(cause for _, cause in plugin_answers.CAUSES),
    ),
    Tool(
        "HolisticTraceAnalysis",
        "hta_answers.py",
        ("cause", "side"),
        "its temporal breakdown, its kernels by type and rank, its reasons why streams are idle, its critical path",
        "hta",
        ("HolisticTraceAnalysis", "pandas<3"),
        frozenset(hta_answers.CAUSES),
        tuple(group for group in GROUPS if group != "CPU"),
    ),
    Tool(
        "key_averages()",
        "table_answers.py",
        ("cause", "side"),
        "the first rows of the table, by thumb rules",
        causes=frozenset(cause for _, cause in table_answers.THUMB_RULES),
    ),
    Tool(
        "_pattern_matcher",
        "pattern_answers.py",
        ("cause", "side", "place"),
        "the patterns that `torch.profiler._pattern_matcher` finds in a running profiler, so in scripts only",
        causes=frozenset(cause for _, cause in pattern_answers.CAUSES),
        groups=("CPU",),
    ),
)


@dataclass(frozen=True)
class Answer:
    """What a tool says of a case, most important first."""

    causes: list[str] = field(default_factory=list)
    sides: list[str] = field(default_factory=list)
    places: list[list[str]] = field(default_factory=list)
    gains_us: list[float | None] = field(default_factory=list)
    ranges_us: list[tuple[float, float]] = field(default_factory=list)
    seconds: float = 0.0
    error: str | None = None

    @staticmethod
    def of(document: dict[str, Any]) -> Answer:
        known = {name: document[name] for name in Answer.__dataclass_fields__ if name in document}
        causes = known.get("causes", [])
        sides = known.pop("sides", None) or [SIDE_OF_CAUSE[cause] for cause in causes if cause in SIDE_OF_CAUSE]
        return Answer(**known, sides=sides)


Answers = dict[str, Answer]  # of one tool, by the key of the case


def answers_of(tool: Tool, cases: Sequence[Case]) -> Answers:
    """One process for all cases, as the start of Python is no part of the answer. Raises SystemExit if it fails."""
    python = environment(tool.environment, *tool.requirements) if tool.environment else sys.executable
    cases = [case for case in cases if case.group in tool.groups]
    if not cases:
        return {}
    folders = [str(case.paths[0].parent) for case in cases]
    done = subprocess.run([python, str(HERE / tool.script), *folders], capture_output=True, text=True)
    lines = done.stdout.splitlines()
    if len(lines) != len(cases):
        raise SystemExit(f"{tool.name} failed after {len(lines)} of {len(cases)} cases:\n{done.stderr[-2000:]}")
    return {case.key: Answer.of(json.loads(line)) for case, line in zip(cases, lines, strict=True)}


@dataclass
class Score:
    """Counts, over the cases of a group. `claimed`: faults whose cause the tool can name. `alarms_of`: cases without
    the fault, for the causes that it can name. `within`: gains inside the range that the tool states.
    """

    causes: frozenset[str] = frozenset(SIDE_OF_CAUSE)
    of: int = 0
    claimed: int = 0
    cause: int = 0
    side: int = 0
    places_of: int = 0
    place: int = 0
    alarms_of: int = 0
    alarms: int = 0
    gain_errors: list[float] = field(default_factory=list)
    within: int = 0
    seconds: list[float] = field(default_factory=list)
    unread: int = 0

    def add(self, case: Case, answer: Answer) -> None:
        self.seconds.append(answer.seconds)
        self.unread += answer.error is not None
        if case.is_healthy:
            if any(map(case.is_alarm, self.causes)):
                self.alarms_of += 1
                self.alarms += any(map(case.is_alarm, answer.causes))
            return
        first = case.faults[0]
        self.of += 1
        self.claimed += first.cause in self.causes
        is_right = answer.causes[:1] == [first.cause]
        self.cause += is_right
        self.side += answer.sides[:1] == [SIDE_OF_CAUSE[first.cause]]
        if first.places:
            self.places_of += 1
            named = {Path(place).name for place in answer.places[0]} if is_right and answer.places else set()
            self.place += not named.isdisjoint(first.places)
        gain_us = answer.gains_us[0] if is_right and answer.gains_us else None
        if gain_us is not None and first.cost_us is not None:
            self.gain_errors.append(abs(gain_us - first.cost_us) / first.cost_us)
            low_us, high_us = answer.ranges_us[0]
            self.within += low_us <= first.cost_us <= high_us

    def cells(self, claims: Sequence[str]) -> list[str]:
        not_claimed = "not claimed"
        gains = len(self.gain_errors)
        errors = f"{median(self.gain_errors):.0%} of {gains}" if gains else "–"
        right = f"{self.cause} of {self.of}"
        if self.claimed < self.of:
            right += f" ({self.of - self.claimed} not claimed)"
        return [
            f"{self.side} of {self.of}",
            right if "cause" in claims else not_claimed,
            (f"{self.place} of {self.places_of}" if self.places_of else "–") if "place" in claims else not_claimed,
            errors if "gain" in claims else not_claimed,
            (f"{self.within} of {gains}" if gains else "–") if "gain" in claims else not_claimed,
            (f"{self.alarms} of {self.alarms_of}" if self.alarms_of else "–") if "cause" in claims else not_claimed,
            str(self.unread),
            f"{median(self.seconds):.2f} s",
        ]


HEAD = ("Tool", "Side", "Cause", "Place", "Gain error", "In its range", "False alarms", "Not read", "CPU time")


def table(group: str, cases: Sequence[Case], answers: dict[str, Answers]) -> str:
    rows = []
    for tool in TOOLS:
        if group not in tool.groups:
            continue
        score = Score(tool.causes)
        for case in cases:
            if case.group == group:
                score.add(case, answers[tool.name][case.key])
        rows.append([tool.name, *score.cells(tool.claims)])
    lines = [HEAD, ("---", *["---:"] * (len(HEAD) - 1)), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def missed(cases: Sequence[Case], answers: Answers) -> list[str]:
    """Where traceopt loses."""
    found = []
    for case in cases:
        said = answers[case.key].causes
        if case.is_healthy:
            if alarms := [cause for cause in said if case.is_alarm(cause)]:
                found.append(f"- {case.group}, `{case.name}`: without the fault; traceopt says {', '.join(alarms)}.")
        elif said[:1] != [case.faults[0].cause]:
            first = said[0] if said else "nothing"
            found.append(f"- {case.group}, `{case.name}`: {case.faults[0].cause}; traceopt says {first} first.")
    return found


def versions(tool: Tool) -> str:
    if not tool.environment:
        return "this repository" if tool.name == "traceopt" else f"torch {torch.__version__}"
    package = tool.requirements[0]
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    python = environment(tool.environment, *tool.requirements)
    return (
        f"{package} {subprocess.run([python, '-c', code], capture_output=True, text=True, check=True).stdout.strip()}"
    )


def page(cases: Sequence[Case], answers: dict[str, Answers], seed: int) -> str:
    groups = [group for group in GROUPS if any(case.group == group for case in cases)]
    tables = "\n\n".join(
        f"## {group[0].upper()}{group[1:]}\n\n{sum(one.group == group for one in cases)} cases: {GROUPS[group]}.\n\n"
        f"{table(group, cases, answers)}"
        for group in groups
    )
    tools = "\n".join(f"- {tool.name} ({versions(tool)}): {tool.reads}." for tool in TOOLS if answers[tool.name])
    losses = "\n".join(missed(cases, answers["traceopt"])) or "Nowhere."
    left_out = [group for group in GROUPS if group not in groups]
    only = "".join(f" --group {shlex.quote(group)}" for group in groups) if left_out else ""
    without = "".join(f"\n\nNot run for this page: {group}, {GROUPS[group]}." for group in left_out)
    return f"""# A referee for performance diagnosis

Written by `python -m benchmarks.referee --seed {seed}{only}`; do not edit. `make referee` draws a new seed.{without}

Every tool reads the same traces. On which side is the lost time, what is the cause, at which line, what does the fix
gain, and what does the tool claim where nothing is wrong? The first answer counts. What a tool does not claim to say is
"not claimed", not wrong. The labels (`causes.py`) and the adapters, which are as favorable as the output of each tool
allows, are in `benchmarks/referee/`.

{tools}

`torch.profiler._pattern_matcher` reads no traces but a running profiler, so it gets the scripts of the CPU cases.
HolisticTraceAnalysis reads kernels of GPUs, so it has nothing to say of these. AMD's TraceLens is not on PyPI.

- Side: host, GPU, copies or communication. A tool that shows shares of the step names the largest that is no compute,
  from a tenth of the time on, or else the GPU.
- Cause: the first one that it names. It is right if no other known fault of the case costs more: each known fault of a
  simulated job is priced by simulating the job without it.
- Place: its file and line, if the cause is right.
- Gain error: median of |predicted - true| / true, of the cases with the right cause. In its range: how many true gains
  are in the range that the tool states.
- False alarms: a cause named for a job without a fault, or that of a fault for its twin without it. It is no alarm if a
  known fault of that cause costs {WORTH_SHARE:.0%} of the step. Jobs that communicate have no twin here, because their
  communication is exposed with and without the fault.
- CPU time: median of a trace, of all processes, without the start of Python.

The faults were known while traceopt was built, so the first table says less about faults that nobody has thought of.
The held-out jobs have other sizes, not other faults. The H100 recordings are real, and were used to correct prices.
Faults that are not planted were priced after traceopt's first answers, some of which named them (`grad_scaler`,
`zero_grad_kernels`, `float64_fixed`, `conv_bias_fixed`); before, these answers counted as wrong. The script of
`unused_gradients` has its convolutions in channels first, too, and nobody measured what another layout gains there.

{tables}

## Where traceopt is wrong

{losses}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, help="of the held-out cases  [default: a new one]")
    parser.add_argument("--group", action="append", choices=list(GROUPS), help="only this one; may be repeated")
    options = parser.parse_args()
    seed = options.seed or random.SystemRandom().randrange(1, 10**8)
    groups = [group for group in GROUPS if group in (options.group or GROUPS)]
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        makers = {
            "simulated": lambda: simulated(here),
            "held out": lambda: simulated(here, seed),
            "H100": recorded,
            "one defect": lambda: one_defect(here),
            "CPU": lambda: recorded_here(here),
        }
        cases = [case for group in groups for case in makers[group]()]
        answers = {tool.name: answers_of(tool, cases) for tool in TOOLS}
        PAGE.write_text(page(cases, answers, seed), encoding="utf-8")
    print(f"{len(cases)} cases, seed {seed}: {PAGE.relative_to(ROOT)}", file=sys.stderr)


if __name__ == "__main__":
    main()
