"""Rows about ranks: those of a job, also over the whole run, and what they send each other."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Struct

from traceopt.result.field_notes import note
from traceopt.result.finding import Location


class RankSteps(Struct, frozen=True):
    """The steps of one rank."""

    rank: Annotated[int | None, note("rank; null where the file does not say")]
    us: Annotated[list[float], note("duration of each step", "us")]


class ProcessGpu(Struct, frozen=True):
    """One of several GPUs of a process. Its times are exclusive and add up to the step."""

    gpu: Annotated[int, note("number of the GPU")]
    name: Annotated[str | None, note("its model; null: not recorded")]
    busy_share: Annotated[float, note("part of the step in which it works", "share")]
    compute_us_per_step: Annotated[float, note("compute per step", "us")]
    communication_us_per_step: Annotated[float, note("collectives per step that its compute does not overlap", "us")]
    copies_us_per_step: Annotated[float, note("copies and fills per step that nothing of it overlaps", "us")]
    waits_us_per_step: Annotated[
        float, note("idle per step while others work, with its next work launched or the host waiting as well", "us")
    ]
    waits_for: Annotated[list[int], note("GPUs whose work comes before its next work, longest wait first")]
    idle_us_per_step: Annotated[float, note("other idle time per step", "us")]
    peak_memory_bytes: Annotated[int | None, note("peak of the memory in tensors; null: not recorded", "bytes")]


class Collective(Struct, frozen=True):
    """Collectives of one name."""

    name: Annotated[str, note("name of the collective")]
    calls_per_step: Annotated[float, note("calls", "per step")]
    us_per_step: Annotated[float, note("time per step", "us")]
    exposed_us_per_step: Annotated[float, note("time per step that no compute overlaps", "us")]
    bytes_per_step: Annotated[float | None, note("data moved per step", "bytes")]
    gb_per_s: Annotated[float | None, note("rate while it runs", "GB/s")]
    location: Annotated[Location | None, note("line of the user's code that calls it")]


class CommunicationGroup(Struct, frozen=True):
    """Collectives of one process group."""

    name: Annotated[str, note("name of the process group")]
    description: Annotated[str, note('what the framework calls it: "mesh_tp"; empty: nothing')]
    parallelism: Annotated[
        str | None,
        note("what it is for: data, tensor, pipeline, context, expert, or several of these; null: not known"),
    ]
    size: Annotated[int | None, note("its number of ranks; null: not recorded")]
    ranks: Annotated[list[int], note("its ranks; empty: not recorded")]
    collectives: Annotated[list[str], note("kinds of its collectives, longest first")]
    calls_per_step: Annotated[float, note("calls", "per step")]
    us_per_step: Annotated[float, note("time per step", "us")]
    exposed_us_per_step: Annotated[float, note("time per step that no compute overlaps", "us")]
    beside_us_per_step: Annotated[float, note("time per step while a collective of another group runs", "us")]
    bytes_per_step: Annotated[float | None, note("data that a rank puts in per step", "bytes")]
    algorithm_gb_per_s: Annotated[float | None, note("that data by the time", "GB/s")]
    gb_per_s: Annotated[float | None, note("bytes over the link by the time: the bus bandwidth", "GB/s")]
    link_share: Annotated[
        float | None, note("bus bandwidth as a part of the rate of a GPU's link; null: not known", "share")
    ]
    late_us_per_step: Annotated[
        float | None, note("exposed time per step until the last rank enters; null: other ranks not known", "us")
    ] = None
    latest_rank: Annotated[int | None, note("rank for which this one waits longest in the group")] = None


class GroupOverlapRow(Struct, frozen=True):
    """Something that runs while a process group communicates."""

    group: Annotated[str, note("name of the process group, or what the framework calls it")]
    beside: Annotated[str, note("kind of GPU work, or another process group")]
    is_group: Annotated[bool, note("whether that is another process group")]
    us_per_step: Annotated[float, note("time per step of both", "us")]
    share: Annotated[float, note("the same as a part of the group's time", "share")]


class PipelineRow(Struct, frozen=True):
    """A rank as a stage of a pipeline."""

    rank: Annotated[int | None, note("number of the rank; null: not recorded")]
    schedule: Annotated[
        str, note('"GPipe", "1F1B", "GPipe or 1F1B" (alike with so few micro-batches), "interleaved" or "zero bubble"')
    ]
    stages: Annotated[int, note("ranks of the pipeline")]
    micro_batches: Annotated[int, note("micro-batches of a step")]
    chunks: Annotated[int, note("parts of the model that the rank holds")]
    compute_us_per_step: Annotated[float, note("compute time per step, without the optimizer's", "us")]
    bubble_us_per_step: Annotated[float, note("time per step in which the stage waits for others", "us")]
    bubble_share: Annotated[float, note("bubble as a part of bubble and compute", "share")]
    least_share: Annotated[float, note("the same of the schedule if all stages compute equally long", "share")]
    doubling_saves_us: Annotated[
        float, note("saved per step by twice as many micro-batches of half the size; 0 if the bubble is smaller", "us")
    ]
    interleaving_saves_us: Annotated[
        float, note("saved per step by twice as many chunks of half the layers; 0 if the bubble is smaller", "us")
    ]


class ExpertRow(Struct, frozen=True):
    """The experts of a rank. A pass is a layer's forward or backward."""

    rank: Annotated[int | None, note("number of the rank; null: not recorded")]
    passes: Annotated[int, note("passes of layers with experts per step")]
    tokens_per_step: Annotated[float, note("tokens that its experts get", "per step")]
    of_mean: Annotated[float, note("the same, by the mean of the recorded ranks")]
    hottest_pass: Annotated[int, note("the pass in which they get most tokens, counted from 0 in each step")]
    compute_us_per_step: Annotated[float, note("compute time per step between dispatch and combine", "us")]
    exchange_us_per_step: Annotated[float, note("exposed time per step of the all-to-alls", "us")]


class ExpertLayerRow(Struct, frozen=True):
    """A layer with experts, in the forward passes."""

    layer: Annotated[str, note("class and number of the module that exchanges the tokens")]
    hottest_rank: Annotated[int | None, note("the rank whose experts get most tokens; null: not recorded")]
    tokens_per_step: Annotated[float, note("tokens that they get", "per step")]
    of_mean: Annotated[float, note("the same, by the mean of the recorded ranks")]


class RankRow(Struct, frozen=True):
    """The headline numbers of one file."""

    rank: Annotated[int | None, note("rank; null where the file does not say")]
    path: Annotated[str, note("path of the trace")]
    step_us: Annotated[float | None, note("typical step", "us")]
    gpu_busy_share: Annotated[float | None, note("part of the step window in which the GPU works", "share")]
    dataloader_stall_us: Annotated[float | None, note("time per step waiting for data with the GPU idle", "us")]
    exposed_communication_us: Annotated[float | None, note("communication per step that no compute overlaps", "us")]
    verdict: Annotated[str, note("how far the trace can be trusted: good, limited or unusable")]
    waited_for_us: Annotated[
        float | None,
        note("wait of the others for this rank and those late with it, median step; null: not compared", "us"),
    ] = None
    engine: Annotated[
        str | None, note('name of an inference engine beside a training ("engine rank 1"); null for other processes')
    ] = None

    @property
    def process(self) -> str | None:
        """ "rank 3", "engine"; None if the file says neither."""
        return f"rank {self.rank}" if self.rank is not None else self.engine


class SlowRanks(Struct, frozen=True):
    """Ranks that were slow in the same steps of the run, or that alone evaluate or save checkpoints."""

    ranks: Annotated[list[int], note("the ranks")]
    is_node: Annotated[bool, note("whether they are all ranks of one of several machines")]
    first_step: Annotated[int, note("first slow step")]
    last_step: Annotated[int, note("last slow step")]
    late_us_per_step: Annotated[
        float | None,
        note("time per step beyond the others' median, in these steps; null: they alone evaluate or save", "us"),
    ]
    ratio: Annotated[
        float | None,
        note(
            "such a step as a multiple of the others' median; null: the ranks wait for each other, so only the time "
            "until the backward pass shows who is late, or they alone evaluate or save"
        ),
    ]
    share: Annotated[float, note("what it costs, as a part of the run", "share")]
    cause: Annotated[
        Literal["data", "gc", "checkpoints", "evaluation"] | None,
        note('"data": they wait for data; "gc": garbage collection; null: not known'),
    ]


class RanksOfRun(Struct, frozen=True):
    """Neighboring ranks over the run: usually one."""

    ranks: Annotated[list[int], note("the ranks")]
    longer: Annotated[
        list[float | None],
        note(
            "what a step takes beyond the median of the other ranks, as a part of that, in each stretch, for the "
            "slowest of these ranks; null: all steps had a profiler"
        ),
    ]


class RunRanks(Struct, frozen=True):
    """The steps of all ranks over the whole run, in stretches of equal length."""

    steps: Annotated[int, note("steps that all ranks have", "steps")]
    first_steps: Annotated[list[int], note("first step of each stretch")]
    us: Annotated[
        list[float | None], note("step of the median rank, without evaluations and saves; null: as in longer", "us")
    ]
    rows: Annotated[list[RanksOfRun], note("the ranks in their order")]
    evaluation_share: Annotated[list[float], note("part of each stretch in which a rank evaluates", "share")]
    checkpoint_share: Annotated[list[float], note("part of each stretch in which a rank saves", "share")]
    slow: Annotated[list[SlowRanks], note("slow ranks, most expensive first")]
