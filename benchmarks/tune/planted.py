"""Planted trainings whose step is a formula of its settings, and a machine that runs them with recorded noise."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from msgspec import Struct, field

from benchmarks.compare_noise import typical
from traceopt.rules.fixes.run_time import NO_COMPILE_CACHE
from traceopt.trying.changes import Change, Prediction
from traceopt.trying.expectation import Recording
from traceopt.trying.measured_run import MeasuredRun
from traceopt.trying.tuning.course import Plan
from traceopt.trying.tuning.searched import StepTimes, searches

NOISE = Path(__file__).parents[1] / "compare_noise.json"
START_S, MEASURED_S = 5.0, 5.0  # of a run
THREAD_COST = 0.01  # of an operator, for each further thread
HAND_OVER = 0.02  # of loading: what the training process takes to receive a batch of a worker
CACHED = 0.2  # of what compiling takes, with the cache on disk
BUCKET_MB = 25  # of DistributedDataParallel


class PlantedFix(Struct, frozen=True):
    """A fix of the plan: what it promises and what it leaves of the step. It shows once those of `after` are made."""

    name: str
    promised_share: float
    factor: float
    after: tuple[str, ...] = ()


class Training(Struct, frozen=True):
    """Times in microseconds. Without a GPU, `computing_us` is that of one thread, of which threads share `parallel`.

    `compiled`: for each mode, the factor of computing and the seconds that compiling takes.
    """

    name: str
    computing_us: float
    cores: int = 8
    gpu: bool = False
    parallel: float = 0.9
    loading_us: float = 0.0
    convolutions: float = 0.0  # share of computing
    channels_last: float = 1.0  # factor of convolutions
    exposed_us: float = 0.0
    best_bucket_mb: int = BUCKET_MB
    compiled: Mapping[str, tuple[float, float]] = {}
    fixes: tuple[PlantedFix, ...] = ()
    run_steps: int | None = None

    def step_us(self, changes: Sequence[Change]) -> float:
        switches = {name: value for change in changes for name, value in change.switches.items()}
        environment = {name: value for change in changes for name, value in change.environment.items()}
        workers = switches.get("loader_workers", 0)
        threads = 1 if self.gpu else int(environment.get("OMP_NUM_THREADS", self.cores))
        shared = 1.0 if self.gpu else 1 - self.parallel + self.parallel / threads + THREAD_COST * (threads - 1)
        layout = self.channels_last if "channels_last" in switches else 1.0
        computing_us = self.computing_us * shared * (1 - self.convolutions + self.convolutions * layout)
        if "compile" in switches:
            computing_us *= self._compiling(switches["compile"])[0]
        for fix in self.fixes:
            if fix.name in environment:
                computing_us *= fix.factor
        crowded = max(1.0, (threads + workers) / self.cores) if self.loading_us and workers else 1.0
        off = abs(math.log2(switches.get("bucket_cap_mb", BUCKET_MB) / self.best_bucket_mb))
        computing_us = computing_us * crowded + self.exposed_us * (1 + off) / (1 + self._usual_off)
        if not workers:
            return computing_us + self.loading_us
        return max(computing_us + HAND_OVER * self.loading_us, self.loading_us * crowded / workers)

    def extra_us(self, changes: Sequence[Change]) -> float:
        """What its first steps take beyond the usual ones."""
        arguments = [change.switches["compile"] for change in changes if change.compiles]
        anew = any(NO_COMPILE_CACHE.keys() & change.environment.keys() for change in changes)
        return 1e6 * self._compiling(arguments[-1])[1] * (1.0 if anew else CACHED) if arguments else 0.0

    def mean_us(self, changes: Sequence[Change]) -> float:
        """A step of the whole run, which compiles anew."""
        anew = [*changes, Change("anew", "environment", "", "environment", environment=NO_COMPILE_CACHE)]
        return self.step_us(anew) + (self.extra_us(anew) / self.run_steps if self.run_steps else 0.0)

    def plan(self, kept: Sequence[Change]) -> Plan:
        """What a recording with all that was kept offers."""
        whole_us, names = self.step_us(kept), {change.name for change in kept}
        shown = [fix for fix in self.fixes if fix.name not in names and names.issuperset(fix.after)]
        workers = any("loader_workers" in change.switches for change in kept)
        times = StepTimes(
            whole_us,
            min(0.9 * whole_us, self.loading_us) if not workers else HAND_OVER * self.loading_us,
            self.convolutions * self.computing_us / (1 if self.gpu else self.cores),
            self.exposed_us,
        )
        found = searches(times, cores=self.cores, gpu=self.gpu, compiled=False, numerics=False, threads=self.cores)
        return Plan(Recording(whole_us), [_change_of(fix, whole_us) for fix in shown], searches=found)

    def _compiling(self, arguments: Mapping[str, Any]) -> tuple[float, float]:
        mode = "dynamic" if "dynamic" in arguments else arguments.get("mode", "default")
        return self.compiled.get(mode, (1.0, 20.0))

    @property
    def _usual_off(self) -> float:
        return abs(math.log2(BUCKET_MB / self.best_bucket_mb))


def _change_of(fix: PlantedFix, step_us: float) -> Change:
    us = fix.promised_share * step_us
    alone = Prediction(us, us / 2, 1.2 * us)
    return Change(fix.name, "fix", fix.name, "environment", environment={fix.name: "1"}, alone=alone, in_plan=alone)


class Noise(Struct, frozen=True):
    """Recorded runs of one script: pairs that were recorded in the same minutes, in multiples of the usual step."""

    pairs: list[tuple[list[float], list[float]]]


def recorded_noise() -> Noise:
    runs: list[list[float]] = json.loads(NOISE.read_text(encoding="utf-8"))["runs"]["healthy"]
    runs = list(map(typical, runs))
    usual = math.exp(fmean(math.log(median(steps)) for steps in runs))
    scaled = [[us / usual for us in steps] for steps in runs]
    return Noise(list(zip(scaled[::2], scaled[1::2], strict=True)))


class SimulatedMachine(Struct):
    """Runs variants of a training: each pair has the noise of a recorded pair, in any order."""

    training: Training
    noise: Noise
    chance: random.Random
    runs: int = 0
    now_s: float = 0.0
    used: frozenset[str] = field(default_factory=frozenset)

    def __call__(self, sides: Sequence[Sequence[Change]], /) -> list[MeasuredRun]:
        pair = self.chance.sample(self.chance.choice(self.noise.pairs), 2)
        return [self._run(changes, steps) for changes, steps in zip(sides, pair, strict=True)]

    def _run(self, changes: Sequence[Change], noise: Sequence[float]) -> MeasuredRun:
        step_us, extra_us = self.training.step_us(changes), self.training.extra_us(changes)
        self.runs += 1
        self.now_s += START_S + MEASURED_S + extra_us / 1e6
        used = tuple(name for change in changes for name in change.switches)
        return MeasuredRun([step_us * factor for factor in noise], [1.0, 0.5], switches_used=used, extra_us=extra_us)


TRAININGS = (
    Training("healthy", 80_000, parallel=0.95),
    Training("waits for data", 200_000, loading_us=150_000),
    Training("workers and threads compete", 640_000, loading_us=240_000, parallel=0.98),
    Training("small operators: threads only cost", 20_000, parallel=0.05),
    Training(
        "convolutions on a CPU",
        1_200_000,
        convolutions=0.8,
        channels_last=0.6,
        compiled={"default": (0.85, 40.0), "max-autotune": (0.84, 120.0), "dynamic": (0.9, 60.0)},
        run_steps=20_000,
    ),
    Training(
        "launch-bound on a GPU",
        12_000,
        gpu=True,
        compiled={
            "default": (0.8, 30.0),
            "reduce-overhead": (0.45, 40.0),
            "max-autotune": (0.44, 600.0),
            "dynamic": (0.85, 60.0),
        },
        run_steps=100_000,
    ),
    Training(
        "too short to compile",
        30_000,
        gpu=True,
        compiled=dict.fromkeys(("default", "reduce-overhead", "max-autotune", "dynamic"), (0.7, 60.0)),
        run_steps=2_000,
        fixes=(PlantedFix("no sync", 0.2, 0.8),),
    ),
    Training("exposed reductions", 60_000, gpu=True, exposed_us=25_000, best_bucket_mb=100),
    Training(
        "one bottleneck behind the other",
        100_000,
        gpu=True,
        loading_us=120_000,
        fixes=(PlantedFix("no sync", 0.25, 0.75), PlantedFix("fused", 0.1, 0.9, ("no sync",))),
    ),
    Training(
        "empty promises",
        90_000,
        gpu=True,
        fixes=(
            PlantedFix("nothing", 0.3, 1.0),
            PlantedFix("slower", 0.2, 1.15),
            PlantedFix("half", 0.2, 0.9),
            PlantedFix("small", 0.05, 0.95),
        ),
    ),
)
