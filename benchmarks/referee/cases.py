"""The cases: traces with a label, which anyone can make again."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.referee.causes import HEALTHY, ONE_DEFECT, PLANTED, RECORDED, RECORDED_HERE, SIDE_OF_CAUSE
from fixtures.generate import generate_ranks, mean_step_us
from fixtures.job import Job
from fixtures.real_traces import SHARED
from fixtures.scenarios import SCENARIOS, Fields, call_site, cure
from fixtures.workloads.capture import record
from fixtures.workloads.pairs import PAIRS
from traceopt.capture.machine import usable_cores

ROOT = Path(__file__).resolve().parents[2]
H100 = ROOT / "fixtures" / "traces" / "h100"
ONE_DEFECT_TRACES = SHARED / "unseen" / "units"
LEAST_SHARE = 0.05  # of the step: a smaller planted fault makes no case
WORTH_SHARE = 0.03  # of the step: a tool is right to name a fault of this cost
# Fields of fixtures.job.Job that a held-out case has other values of.
OTHER_JOBS: dict[str, tuple[Any, ...]] = {"layers": (2, 3, 4), "tokens": (512, 1024, 1536), "small_ops": (0, 20, 60)}


@dataclass(frozen=True)
class Fault:
    """`cost_us`: per step; None: not known. `places`: file and line, any of which is right; empty: not asked."""

    cause: str
    cost_us: float | None
    places: tuple[str, ...] = ()


@dataclass(frozen=True)
class Case:
    """`paths`: a trace for each rank. `faults`: those that cost time, most expensive first, as far as they are known.
    `removed`: the cause of the fault that this case's twin has.
    """

    name: str
    group: str
    paths: tuple[Path, ...]
    faults: tuple[Fault, ...] = ()
    removed: str | None = None
    is_healthy: bool = False  # nothing is planted

    @property
    def key(self) -> str:
        return f"{self.group}/{self.name}"

    def is_alarm(self, cause: str) -> bool:
        """Whether it is false to name this cause."""
        is_asked = self.is_healthy and self.removed in (None, cause)
        return is_asked and cause not in {fault.cause for fault in self.faults}


@dataclass(frozen=True)
class _Known:
    """A fault that a job may have: the `fields` of `fixtures.job.Job` that it has then, and those without it."""

    cause: str
    fields: Fields
    cured: Fields
    place: str | None


_KNOWN = (
    *(_Known(cause, (one := SCENARIOS[name]).fault, cure(one), call_site(one)) for name, cause in PLANTED.items()),
    _Known("host sync", {"read_loss": "item"}, {"read_loss": "late"}, "train.py:33"),
    _Known("fusion", {"model": "cnn", "fused_norm": False}, {"fused_norm": True}, "cnn.py:29"),
)


def simulated(folder: Path, seed: int | None = None, names: Sequence[str] = (*PLANTED, *HEALTHY)) -> Iterator[Case]:
    """A case for each planted fault, and its healthy twin. With a `seed`, of jobs that nobody has seen.

    Some healthy jobs have faults that are not planted, so every known one is priced by simulating the job without it.
    """
    group = "simulated" if seed is None else "held out"
    for name in names:
        scenario, cause = SCENARIOS[name], PLANTED.get(name)
        chance = random.Random(f"{seed} {name}")  # noqa: S311
        set_fields = {**scenario.base, **scenario.fault}
        fields = {} if seed is None else {k: chance.choice(v) for k, v in OTHER_JOBS.items() if k not in set_fields}
        beside, alone = _others(name, fields)
        for fixed in (False, True) if cause else (True,):
            ranks = generate_ranks(name, fixed=fixed, **fields)
            planted = ranks[0].planted
            if fixed and cause and SIDE_OF_CAUSE[cause] == "communication":
                continue
            if not fixed and planted.share < LEAST_SHARE:
                continue
            twin = f"{name}_fixed" if cause and fixed else name
            place = folder / group.replace(" ", "_") / twin
            paths = tuple(rank.write(place / f"rank{rank.rank}.json.gz") for rank in ranks)
            faults = (
                alone if fixed or cause is None else [*beside, Fault(cause, planted.cost_us, _places(planted.site))]
            )
            by_cost = tuple(sorted(faults, key=lambda fault: -(fault.cost_us or 0.0)))
            yield Case(twin, group, paths, by_cost, cause if fixed else None, is_healthy=fixed)


def _others(name: str, fields: Fields) -> tuple[list[Fault], list[Fault]]:
    """The known faults of the scenario's job that are not planted: beside the planted fault, and without it.

    Beside it, one costs no more than without it, because its cure may hide the planted fault.
    """
    scenario = SCENARIOS[name]
    base = {**vars(Job()), **scenario.base, **fields}
    faulty_us, healthy_us = (mean_step_us(name, {}, fixed=fixed, **fields) for fixed in (False, True))
    beside, alone = dict[str, Fault](), dict[str, Fault]()
    for known in _KNOWN:
        if any(base[key] != value for key, value in known.fields.items()):
            continue
        cost_us = healthy_us - mean_step_us(name, known.cured, fixed=True, **fields)
        _keep_dearest(alone, known, cost_us, healthy_us)
        if not known.cured.keys() & scenario.fault.keys():
            cost_us = min(cost_us, faulty_us - mean_step_us(name, known.cured, **fields))
            _keep_dearest(beside, known, cost_us, faulty_us)
    return list(beside.values()), list(alone.values())


def _keep_dearest(found: dict[str, Fault], known: _Known, cost_us: float, step_us: float) -> None:
    """One fault of each cause."""
    is_larger = known.cause not in found or cost_us > (found[known.cause].cost_us or 0.0)
    if is_larger and cost_us >= WORTH_SHARE * step_us:
        found[known.cause] = Fault(known.cause, cost_us, _places(known.place))


def _places(place: str | None) -> tuple[str, ...]:
    return (place,) if place is not None else ()


def recorded() -> Iterator[Case]:
    """The slow halves of the pairs that were recorded on an H100, with the gain that was measured."""
    pairs = json.loads((H100 / "measured.json").read_text())["pairs"]
    for name, cause in RECORDED.items():
        paths = tuple(sorted((H100 / name / "plain").glob("*.json.gz")))
        if paths and {"plain", "fixed"} <= pairs[name].keys():
            before, after = (mean(_middle(pairs[name][half]["steps_us"])) for half in ("plain", "fixed"))
            yield Case(name, "H100", paths, (Fault(cause, before - after),))


def one_defect(folder: Path) -> Iterator[Case]:
    """Traces of a few kernels and no step, which nobody can commit here; none if they are not beside the checkout."""
    for path in sorted(ONE_DEFECT_TRACES.glob("*.json.gz")):
        name = path.name.removesuffix(".json.gz")
        place = folder / "one_defect" / name
        place.mkdir(parents=True)
        trace = place / path.name
        trace.write_bytes(path.read_bytes())
        yield Case(name, "one defect", (trace,), (Fault(ONE_DEFECT[name.partition("_")[0]], None),))


def recorded_here(folder: Path) -> Iterator[Case]:
    """Both halves of the pairs that a CPU can run, recorded now. A pair that the machine is too small for is left out.

    The folder of a case gets `script.json`, the words that run the script, for tools that read no traces.
    """
    cores = usable_cores()
    for pair in PAIRS:
        if pair.name not in RECORDED_HERE or pair.cores > cores:
            continue
        places = {variant: folder / "cpu" / pair.name / variant for variant in ("plain", "fixed")}
        try:
            measured = {name: record(pair, name, place, largest_bytes=10**9) for name, place in places.items()}
        except RuntimeError as error:
            print(f"{pair.name} is left out: {error}", file=sys.stderr)
            continue
        for variant, place in places.items():
            words = [str(pair.script), "--steps", "12", *(["--fixed"] if variant == "fixed" else [])]
            (place / "script.json").write_text(json.dumps(words))
        cause = RECORDED_HERE[pair.name]
        lines = tuple(f"{pair.script.name}:{line}" for line in pair.lines)
        gain_us = measured["plain"]["step_us"] - measured["fixed"]["step_us"]
        for variant, faults in (("plain", (Fault(cause, gain_us, lines),)), ("fixed", ())):
            paths = tuple(sorted(places[variant].glob("*.json.gz")))
            removed = None if faults else cause
            yield Case(f"{pair.name}, {variant}", "CPU", paths, faults, removed, is_healthy=not faults)


def _middle(steps_us: list[float]) -> list[float]:
    """Without a tenth at each end."""
    left_out = len(steps_us) // 10
    return sorted(steps_us)[left_out : len(steps_us) - left_out]
