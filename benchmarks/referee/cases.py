"""The cases: traces with a label, which anyone can make again."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.referee.causes import HEALTHY, PLANTED, RECORDED, SIDE_OF_CAUSE
from fixtures.generate import generate_ranks
from fixtures.scenarios import SCENARIOS

ROOT = Path(__file__).resolve().parents[2]
H100 = ROOT / "fixtures" / "traces" / "h100"
LEAST_SHARE = 0.05  # of the step: a smaller fault is none
# Fields of fixtures.job.Job that a held-out case has other values of.
OTHER_JOBS: dict[str, tuple[Any, ...]] = {"layers": (2, 3, 4), "tokens": (512, 1024, 1536), "small_ops": (0, 20, 60)}


@dataclass(frozen=True)
class Case:
    """`paths`: a trace for each rank. `cause` None: healthy, and `removed` is the cause of the fault that its twin has.
    `gain_us`: what the fault costs per step. `place`: file and line; None: the fault has none.
    """

    name: str
    group: str
    paths: tuple[Path, ...]
    cause: str | None
    place: str | None = None
    gain_us: float | None = None
    removed: str | None = None


def simulated(folder: Path, seed: int | None = None) -> Iterator[Case]:
    """A case for each planted fault, and its healthy twin. With a `seed`, of jobs that nobody has seen."""
    group = "simulated" if seed is None else "held out"
    for name in (*PLANTED, *HEALTHY):
        chance = random.Random(f"{seed} {name}")  # noqa: S311
        fixed_fields = {**SCENARIOS[name].base, **SCENARIOS[name].fault}
        fields = {} if seed is None else {k: chance.choice(v) for k, v in OTHER_JOBS.items() if k not in fixed_fields}
        for fixed in (False, True) if name in PLANTED else (False,):
            ranks = generate_ranks(name, fixed=fixed, **fields)
            planted = ranks[0].planted
            healthy = fixed or name in HEALTHY
            if not healthy and planted.share < LEAST_SHARE:
                continue
            if fixed and SIDE_OF_CAUSE[PLANTED[name]] == "communication":
                continue
            place = folder / group.replace(" ", "_") / f"{name}{'_fixed' if fixed else ''}"
            paths = tuple(one.write(place / f"rank{one.rank}.json.gz") for one in ranks)
            if healthy:
                twin = f"{name}{'_fixed' if fixed else ''}"
                yield Case(twin, group, paths, None, removed=PLANTED[name] if fixed else None)
            else:
                yield Case(name, group, paths, PLANTED[name], planted.site, planted.cost_us)


def recorded() -> Iterator[Case]:
    """The slow halves of the pairs that were recorded on an H100, with the gain that was measured."""
    pairs = json.loads((H100 / "measured.json").read_text())["pairs"]
    for name, cause in RECORDED.items():
        paths = tuple(sorted((H100 / name / "plain").glob("*.json.gz")))
        if paths and {"plain", "fixed"} <= pairs[name].keys():
            before, after = (mean(_middle(pairs[name][half]["steps_us"])) for half in ("plain", "fixed"))
            yield Case(name, "H100", paths, cause, gain_us=before - after)


def _middle(steps_us: list[float]) -> list[float]:
    """Without a tenth at each end."""
    left_out = len(steps_us) // 10
    return sorted(steps_us)[left_out : len(steps_us) - left_out]
