"""What to record: the cycles of the schedule, when a step ends, and where the files go."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

STEP_SOURCES = ("batch", "update", "backward", "forward")
TIME_LIMIT_S = 120.0  # a busy process records gigabytes in this time


@dataclass(frozen=True)
class Cycle:
    """One recording: `wait` steps without a profiler, `warmup` steps whose events are dropped, `active`
    recorded steps.
    """

    name: str
    wait: int
    warmup: int
    active: int
    record_shapes: bool = False
    profile_memory: bool = False
    with_stack: bool = False

    @property
    def length(self) -> int:
        """Number of steps from the start of the profiler to its end."""
        return self.warmup + self.active


def timing(wait: int, warmup: int, active: int) -> Cycle:
    """A cycle with undistorted times: records nothing that slows the steps down."""
    return Cycle("timing", wait, warmup, active)


def detail(wait: int, warmup: int, active: int) -> Cycle:
    """A cycle with shapes, memory and source lines; its times are stretched."""
    return Cycle("detail", wait, warmup, active, record_shapes=True, profile_memory=True, with_stack=True)


# The timing cycle comes first: in CUDA 12.6 to 13.0 GPU timestamps of later sessions are off (pytorch issues 192021,
# 175790).
PRESETS: dict[str, tuple[Cycle, ...]] = {
    "standard": (timing(5, 3, 5), detail(2, 2, 2)),
    "quick": (timing(1, 1, 3), detail(0, 1, 2)),
    "long": (timing(20, 5, 20), detail(5, 3, 5)),
    "timing": (timing(5, 3, 5),),
}


def plan_cycles(
    preset: str | None = None,
    *,
    wait: int | None = None,
    warmup: int | None = None,
    active: int | None = None,
    repeat: int | None = None,
    record_shapes: bool = False,
    profile_memory: bool = False,
    with_stack: bool = False,
) -> tuple[Cycle, ...]:
    """The cycles of a preset, or those given by the other arguments, which mean the same as in torch.profiler.

    Raises ValueError for both at once, an unknown preset or an invalid number.
    """
    numbers = {"wait": wait, "warmup": warmup, "active": active, "repeat": repeat}
    given = {name: number for name, number in numbers.items() if number is not None}
    if not given and not (record_shapes or profile_memory or with_stack):
        if preset is not None and preset not in PRESETS:
            raise ValueError(f"unknown preset {preset!r}; known: {', '.join(PRESETS)}")
        return PRESETS[preset or "standard"]
    if preset is not None:
        raise ValueError("use either a preset, or wait, warmup, active, repeat and recording options")
    for name, number in given.items():
        if number < (name in ("active", "repeat")):
            raise ValueError(f"{name}: {number} is too small")
    times = given.pop("repeat", 1)
    plain = Cycle("plain", wait=5, warmup=3, active=5)
    extras = {"record_shapes": record_shapes, "profile_memory": profile_memory, "with_stack": with_stack}
    return (replace(plain, **given, **extras),) * times  # type: ignore[arg-type]  # mypy sees no field names


@dataclass(frozen=True)
class TimedRun:
    """A run of `traceopt try`: no profiler; it ends after `steps` steps, of which `settle` are not measured.

    `turn_s`: how long it trains before it lets another run have the machine (timed_steps.py); None if it is alone.
    `switches` are the settings that are changed while the script starts (script/switches/).
    """

    steps: int
    settle: int
    turn_s: float | None = None
    switches: dict[str, Any] = field(default_factory=dict)


SLOW_STEPS, AMONG_STEPS = 3, 5  # so many of the last steps are slow: a single one may have saved or collected garbage


@dataclass(frozen=True)
class Trigger:
    """What begins the recording, the first of several: steps that take `slow_factor` times the median of the last
    ones, or more than `slow_us`; `after_s` from the start of the process; a request. Each request begins another one.
    """

    slow_factor: float | None = None
    slow_us: float | None = None
    after_s: float | None = None
    on_request: bool = False

    @property
    def watches_steps(self) -> bool:
        return self.slow_factor is not None or self.slow_us is not None

    @property
    def reasons(self) -> str:
        """ "3 of 5 steps take more than 1.3 times the median, or after 7200 s"."""
        slow = f"{SLOW_STEPS} of {AMONG_STEPS} steps take more than"
        listed = (
            None if self.slow_factor is None else f"{slow} {self.slow_factor:g} times the median",
            None if self.slow_us is None else f"{slow} {self.slow_us / 1e3:g} ms",
            None if self.after_s is None else f"after {self.after_s:g} s",
            "at each request" if self.on_request else None,
        )
        return ", or ".join(filter(None, listed))


@dataclass(frozen=True)
class Settings:
    """`step_on` is one of STEP_SOURCES, `module:function`, or None to detect steps.

    A cycle that records longer than `time_limit_s` is closed early in single-process runs. Ranks must record the same
    steps. A `timed` run records no cycles. `memory_snapshot`: record the history of the CUDA allocator. With a
    `trigger`, the first cycle waits for it, and for no number of steps.
    """

    folder: Path
    cycles: tuple[Cycle, ...]
    step_on: str | None = None
    stop_after: bool = False
    time_limit_s: float = TIME_LIMIT_S
    timed: TimedRun | None = None
    memory_snapshot: bool = False
    trigger: Trigger | None = None

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), default=str), encoding="utf-8")


def load_settings(path: str) -> Settings:
    with open(path, encoding="utf-8") as file:
        fields = json.load(file)
    cycles = tuple(Cycle(**cycle) for cycle in fields.pop("cycles"))
    timed, trigger = fields.pop("timed", None), fields.pop("trigger", None)
    return Settings(
        folder=Path(fields.pop("folder")),
        cycles=cycles,
        timed=None if timed is None else TimedRun(**timed),
        trigger=None if trigger is None else Trigger(**trigger),
        **fields,
    )


def recorded_steps(cycles: tuple[Cycle, ...]) -> list[range]:
    """Numbers, from 0, of the steps that each cycle records. Step 0 ends before a profiler can start."""
    found, ended = [], 0
    for cycle in cycles:
        first = max(1, ended + cycle.wait) + cycle.warmup
        ended = first + cycle.active
        found.append(range(first, ended))
    return found


def first_recorded_step(cycles: tuple[Cycle, ...]) -> int:
    return recorded_steps(cycles)[0].start


def needed_steps(cycles: tuple[Cycle, ...]) -> int:
    """How many steps a run must have for all cycles."""
    return recorded_steps(cycles)[-1].stop
