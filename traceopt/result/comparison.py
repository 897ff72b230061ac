"""The comparison document, schema 1, from which every format of `traceopt compare` is rendered.

As in the result document, times are microseconds per step, shares are 0..1, and unmeasured values are None. A change is
head minus base, so growth is positive.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import orjson
from msgspec import Struct
from msgspec.structs import astuple

from traceopt.result.encoding.serialization import to_indented_json
from traceopt.result.finding import Impact
from traceopt.result.sections.run import Tool

StepVerdict = Literal["within_noise", "slower", "faster", "unclear", "not_measured"]
RowStatus = Literal["appeared", "vanished", "slower", "faster", "more_calls", "fewer_calls", "outlier"]
FindingStatus = Literal["new", "fixed", "kept", "unknown"]
GateLevel = Literal["fail", "warn"]
GateStatus = Literal["passed", "failed", "not_checked"]
WorkUnit = Literal["FLOP", "token", "sample", "unit"]
MetricUnit = Literal["us", "share", "bytes", "per_s"]
CountUnit = Literal["calls", "bytes", "FLOP"]


class ComparedRun(Struct, frozen=True):
    """One recording of a side. `steps` is 0 without step marks, and `step_us`, the time of each, empty. `crowded`: its
    main thread often had no free core (PY002).
    """

    label: str
    paths: list[str]
    steps: int
    typical_us: float | None
    quality: str
    crowded: bool
    step_us: list[float] = []


class Side(Struct, frozen=True):
    """`device`, `torch_version` and `world_size` come from the first run that knows them."""

    runs: list[ComparedRun]
    device: str | None
    torch_version: str | None
    world_size: int | None


class StepChange(Struct, frozen=True):
    """The typical step: the mean of the typical steps of a run, or the geometric mean over several runs.

    `low_share` to `high_share` is the 99 % interval of the change (`comparison/noise.py`); None if the steps are too
    few and vary too much to give one. A change smaller than `unseen_share` could not be detected. `run_to_run_share` is
    the standard deviation of runs of the same side, None if each side has one. `in_turn`: pairs of runs were compared.
    `reason` says why there is no result.
    """

    verdict: StepVerdict
    base_us: float | None = None
    head_us: float | None = None
    change_share: float | None = None
    low_share: float | None = None
    high_share: float | None = None
    unseen_share: float | None = None
    run_to_run_share: float | None = None
    in_turn: bool = False
    reason: str | None = None


class AllSteps(Struct, frozen=True):
    """All steps of both sides, with the unusual ones that the typical step leaves out, added up over the runs.

    `base_us` and `head_us` are means of all steps of a run, or the geometric mean over several runs. `decisive`: the
    verdict names these means too, because many steps are left out, or they change the answer.
    """

    base_steps: int
    head_steps: int
    base_unusual: int
    head_unusual: int
    base_us: float
    head_us: float
    change_share: float
    decisive: bool = False


class WorkChange(Struct, frozen=True):
    """The work of a step of HEAD as a multiple of BASE's, and the change of the time for each `unit` of it.

    "unit": by the thread blocks of the same kernels, because neither FLOP nor tokens nor samples are known.
    """

    unit: WorkUnit
    ratio: float
    time_change_share: float


class PartChange(Struct, frozen=True):
    """A part of the typical step, averaged over the runs. `change_us` is None if the sides cannot be compared.

    `beyond_noise`: beyond the noise from run to run, or with one run per side beyond that of the steps. None then too,
    and with one run per side that does not have two steps.
    """

    name: str
    label: str
    busy: bool
    base_us: float
    head_us: float
    change_us: float | None
    beyond_noise: bool | None


class MetricChange(Struct, frozen=True):
    """A number that `--fail-on` accepts by `name`, averaged over the runs; None if a side did not measure it."""

    name: str
    label: str
    unit: MetricUnit
    base: float | None
    head: float | None
    beyond_noise: bool | None


class RowChange(Struct, frozen=True):
    """A kernel or operator whose time changed notably; None on a side that does not have it.

    `status`: "more_calls" or "fewer_calls" if calls and time both rose or both fell, whatever a call takes now;
    "outlier" if only a few steps changed it, and the median step did not. `counted`: what `base_calls` and `head_calls`
    count. Of an operator whose GPU time is compared, the GPU work that it launched: its calls on the CPU launch none.
    """

    name: str
    status: RowStatus
    base_us: float | None
    head_us: float | None
    base_calls: float | None
    head_calls: float | None
    change_us: float
    counted: Literal["calls", "launches"] = "calls"


class FindingChange(Struct, frozen=True):
    """A finding of either side, matched by its id. `unknown`: the other side could not check it.

    `base_saving_us` and `head_saving_us`: what the fix saves alone; `base_plan_us` and `head_plan_us`: what it saves in
    the plan, after the fixes above it. `base_impact` and `head_impact` are by the plan if it is there. `share_of_base`:
    of a new finding, its saving as a share of the step of BASE, if BASE may have left it out for being so small.
    """

    status: FindingStatus
    id: str
    code: str
    title: str
    place: str | None
    base_impact: Impact | None
    head_impact: Impact | None
    base_saving_us: float | None
    head_saving_us: float | None
    reason: str | None = None
    base_plan_us: float | None = None
    head_plan_us: float | None = None
    share_of_base: float | None = None


class CountChange(Struct, frozen=True):
    """How often or how much a step does something; 0 on a side that does not. `named`: calls of the operator or kernel
    of this name, not a total.
    """

    name: str
    unit: CountUnit
    base: float
    head: float
    named: bool = False


class SettingChange(Struct, frozen=True):
    name: str
    base: str | None
    head: str | None


class GateOutcome(Struct, frozen=True):
    """`gate` as it was given; `text` has the measured value and the limit."""

    gate: str
    level: GateLevel
    status: GateStatus
    text: str


class Comparison(Struct, frozen=True, eq=False):
    """`verdict` is the headline; `notes` say what makes the sides hard to compare.

    `unestimated`: findings without a saving and of unknown impact that only one side has. They count for no verdict and
    no gate.

    `all_steps` is None if no side has unusual steps, or the steps are not compared. `work` is None unless only the
    amount of work per step differs.

    `differences`: why they are no measurements of the same job, as in the verdict. `explanation`: what runs differently
    than before, the largest change of time first.

    `comparable` is False if times of one side say nothing about the other: another device, number of ranks or amount of
    work, no step marks, or a trace that cannot be judged. Then `step` has no change, no kernel or operator has one, and
    what only one side has is no new finding.

    `counts`: what a step of the first runs does more or less often. Counts have no noise, so they show at once that the
    work itself changed. Empty if it did not, or the sides are not comparable.
    """

    tool: Tool
    verdict: str
    base: Side
    head: Side
    step: StepChange
    breakdown: list[PartChange]
    metrics: list[MetricChange]
    kernels: list[RowChange]
    ops: list[RowChange]
    findings: list[FindingChange]
    settings: list[SettingChange]
    notes: list[str]
    differences: list[str] = []
    explanation: list[str] = []
    gates: list[GateOutcome] = []
    comparable: bool = True
    all_steps: AllSteps | None = None
    unestimated: list[FindingChange] = []
    work: WorkChange | None = None
    counts: list[CountChange] = []
    schema_version: int = 1

    def __eq__(self, other: object) -> bool:
        """Whether the documents are the same, whichever subclass holds them."""
        return isinstance(other, Comparison) and astuple(self) == astuple(other)

    __hash__ = None  # type: ignore[assignment]

    def to_json(self) -> bytes:
        """Indented JSON, byte for byte the same for the same input and version."""
        return to_indented_json(self)

    @staticmethod
    def from_json(data: bytes) -> Comparison:
        """Raises ValueError if `data` is not a comparison document of this schema."""
        return msgspec.convert(orjson.loads(data), Comparison)
