"""CM001, CM002 and CM003: what overlap, fewer calls and a healthy link can save, and which collective waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from fixtures.real_traces import TRACES
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.reading.sources import find_sources
from traceopt.analyzer.recordings.cycle_pairs import find_recordings
from traceopt.analyzer.recordings.rank_trace import read_recording
from traceopt.result.finding import Finding
from traceopt.rules.engine import prepare, run_rules
from traceopt.rules.registry import builtin_rules, load_rules
from traceopt.rules.savings.price import Priced
from traceopt.testing import Machine, answer, assert_finds
from traceopt.testing.machine import A100

RULES = {rule.code: rule for rule in builtin_rules()}
RANKS = 8
COMPUTE, COMMUNICATION = 7, 20  # streams
NODE = [A100 | {"id": number} for number in range(RANKS)]


def machine(world_size: int = RANKS, devices: Sequence[dict[str, Any]] = NODE) -> Machine:
    """The first of several ranks, on a node that lists these devices."""
    job = {"backend": "nccl", "rank": 0, "world_size": world_size}
    return Machine(deviceProperties=list(devices), distributedInfo=job)


def collective(rank: Machine, us: float, kind: str = "allreduce", megabytes: float = 1.0, **args: Any) -> None:
    """A collective over all ranks; `megabytes` is what this rank puts in."""
    sizes = {"In msg nelems": int(megabytes * 1e6 / 4), "dtype": "Float", "Group size": RANKS}
    about = {"Collective name": kind, "Process Group Name": "0", **sizes}
    rank.launch(us, **({"stream": COMMUNICATION, "name": "ncclDevKernel_Generic(x)"} | about | args))


def after_compute(compute_us: float, us: float, **args: Any) -> Machine:
    """Each step computes, and then one collective runs alone."""
    rank = machine(**{key: args.pop(key) for key in ("world_size", "devices") if key in args})
    for _ in range(4):
        with rank.step():
            rank.launch(compute_us)
            rank.synchronize()
            collective(rank, us, **args)
            rank.synchronize()
    return rank


class TestOverlap:
    def test_hides_at_most_the_compute_that_is_left(self) -> None:
        """10 ms of communication cannot hide behind 2 ms of compute."""
        finding = assert_finds(RULES["CM001"], after_compute(2_000, 10_000), saving_us=0.7 * 2_000)
        assert finding.saving is not None
        assert finding.saving.high_us == pytest.approx(2_000, rel=0.01)
        assert "at most 2.0 ms" in finding.why

    def test_hides_all_where_there_is_enough(self) -> None:
        finding = assert_finds(RULES["CM001"], after_compute(20_000, 10_000), saving_us=0.7 * 10_000)
        assert "at most" not in finding.why

    def test_nothing_where_no_compute_is_left(self) -> None:
        """The finding stays, because communication is the limit. It has no saving."""
        finding = assert_finds(RULES["CM001"], after_compute(20, 10_000))
        assert finding.saving is None
        assert finding.impact == "info"

    def test_compute_that_a_collective_overlaps_is_taken(self) -> None:
        """Of 6 ms of compute, a first collective already hides behind 5 ms."""
        rank = machine()
        for _ in range(4):
            with rank.step():
                collective(rank, 5_000)
                rank.launch(6_000)
                rank.synchronize()
                collective(rank, 8_000)
                rank.synchronize()
        finding = assert_finds(RULES["CM001"], rank)
        assert finding.saving is not None
        assert finding.saving.high_us == pytest.approx(1_000, rel=0.05)


def trained(*exposed_us: tuple[str, float], micro_steps: int = 1) -> Machine:
    """A training whose backward passes launch these collectives; the last one is followed by an update."""
    rank = machine()
    for _ in range(4):
        with rank.step():
            for _ in range(micro_steps):
                rank.work(50, "aten::mm")
                rank.launch(20_000)
                rank.synchronize()
                with rank.annotate("autograd::engine::evaluate_function: MmBackward0"):
                    for kind, us in exposed_us:
                        collective(rank, us, kind)
                        rank.synchronize()
            with rank.annotate("Optimizer.step#SGD.step"):
                rank.idle(100)
    return rank


class TestAdvice:
    """The edit is for the kind of collective that is exposed most."""

    def fix(self, rank: Machine) -> str:
        fix = assert_finds(RULES["CM001"], rank).fix
        assert fix is not None
        return f"{fix.text} {fix.code}"

    def test_embeddings_are_exchanged_earlier(self) -> None:
        """No gradient is accumulated less often by no_sync() if the time is that of an all-to-all."""
        fix = self.fix(trained(("alltoall", 6_000), ("allreduce", 2_000), micro_steps=2))
        assert "TrainPipelineSparseDist" in fix
        assert "all_to_all_single" in fix
        assert "no_sync" not in fix

    def test_gradients_go_into_larger_buckets(self) -> None:
        fix = self.fix(trained(("alltoall", 2_000), ("allreduce", 6_000)))
        assert "bucket_cap_mb" in fix
        assert "no_sync" not in fix

    def test_accumulated_gradients_are_reduced_once(self) -> None:
        assert "no_sync" in self.fix(trained(("allreduce", 6_000), micro_steps=2))

    def test_an_all_reduce_outside_of_backward_passes_is_of_no_gradient(self) -> None:
        rank = machine()
        for _ in range(4):
            with rank.step():
                rank.work(50, "aten::mm")
                rank.launch(20_000)
                rank.synchronize()
                collective(rank, 6_000)
                rank.synchronize()
                with rank.annotate("autograd::engine::evaluate_function: MmBackward0"):
                    collective(rank, 500)
                rank.synchronize()
        fix = self.fix(rank)
        assert "async_op=True" in fix
        assert "bucket" not in fix

    def test_shards_are_prefetched(self) -> None:
        assert "set_modules_to_forward_prefetch" in self.fix(trained(("_allgather_base", 6_000)))


class TestCallsOfTheHost:
    def calls(self, count: int, host_us: float, frame: str = "") -> Machine:
        """Many small all-reduces, each of which costs the host more than the GPU."""
        rank = machine()
        for _ in range(4):
            with rank.step():
                rank.launch(20_000)
                rank.synchronize()
                for _ in range(count):
                    if frame:
                        with rank.python(frame):
                            self.call(rank, host_us)
                    else:
                        self.call(rank, host_us)
                rank.synchronize()
        return rank

    def call(self, rank: Machine, host_us: float) -> None:
        with rank.annotate("c10d::allreduce_"):
            rank.idle(0.5 * host_us)
            collective(rank, 14, megabytes=0.004)
            rank.idle(0.5 * host_us)

    def test_are_priced(self) -> None:
        """400 calls of 95 us each, of which the collective itself takes 14: the step waits for the host."""
        trace = self.calls(400, host_us=90)
        finding = assert_finds(RULES["CM002"], trace)
        assert finding.saving is not None
        assert 0.7 * 400 * 95 <= finding.saving.est_us <= 400 * 95
        assert "host time that the GPU waits for" in finding.why

    def test_include_the_frame_around_the_operator(self) -> None:
        """The same time, but in torch.distributed's Python."""
        frame = "torch/distributed/distributed_c10d.py(2810): all_reduce"
        rank = self.calls(100, host_us=40, frame=frame)
        (calls,) = rank.facts().collectives
        facts = rank.facts()
        assert {facts.trace.names[facts.slices.name[row]] for row in calls.call} == {frame}

    def test_cost_nothing_while_the_gpu_computes(self) -> None:
        """The host is ahead: 40 calls during 20 ms of compute."""
        rank = machine()
        for _ in range(4):
            with rank.step():
                rank.launch(20_000)
                for _ in range(40):
                    self.call(rank, 90)
                rank.synchronize()
        _, findings = answer(RULES["CM002"], rank)
        assert findings == []


class TestLinkOfTheNode:
    def test_a_rate_far_below_it_is_slow(self) -> None:
        """100 MB at 17 GB/s: twice what an unknown network is asked for, but far below NVLink's 300 GB/s."""
        finding = assert_finds(RULES["CM003"], after_compute(20_000, 10_000, megabytes=100))
        assert "150 GB/s" in finding.why
        assert finding.saving is not None
        assert finding.saving.high_us == pytest.approx(10_000 - 50 - 175e6 / 150e3, rel=0.02)

    def test_comes_after_what_little_compute_can_hide(self) -> None:
        facts = after_compute(2_000, 10_000, megabytes=100).facts()
        first, *others = run_rules(prepare(load_rules(None)), facts).findings
        assert first.code == "CM001"
        assert "CM003" in [one.code for one in others]

    def test_a_small_collective_that_takes_milliseconds_waits_for_a_rank(self) -> None:
        finding = assert_finds(RULES["CM003"], after_compute(20_000, 5_000, megabytes=0.01))
        assert finding.why.endswith("so this rank waits for a late one.")
        finding = assert_finds(RULES["CM003"], after_compute(20_000, 10_000, megabytes=100))
        assert finding.why.endswith("so a slow link is more likely than a rank that is late now and then.")
        assert finding.saving is not None
        assert finding.saving.low_us == 0  # it may be a rank that is always late

    @pytest.mark.parametrize(
        "job",
        [
            {"world_size": 16},  # two nodes
            {"devices": NODE[:1]},  # one GPU is visible, so the node's size is unknown
            {"devices": [one | {"name": "NVIDIA A100-PCIE-40GB"} for one in NODE]},  # no NVLink
            {"devices": [one | {"name": "NVIDIA H100 NVL"} for one in NODE]},  # bridges join pairs only
        ],
    )
    def test_an_unknown_link_is_asked_for_less(self, job: dict[str, Any]) -> None:
        _, findings = answer(RULES["CM003"], after_compute(20_000, 10_000, megabytes=100, **job))
        assert findings == []

    def test_a_group_of_two_is_asked_for_its_own_links(self) -> None:
        """Without a switch, two GPUs share only some of their links: 10 GB/s is not far below 43."""
        args = {"megabytes": 100, "Group size": 2}
        _, findings = answer(RULES["CM003"], after_compute(20_000, 10_000, **args))
        assert findings == []

    def test_a_healthy_rate_is_not_slow(self) -> None:
        _, findings = answer(RULES["CM003"], after_compute(20_000, 1_500, megabytes=100))
        assert findings == []

    def test_a_pipeline_stage_may_wait(self) -> None:
        _, findings = answer(
            RULES["CM003"], after_compute(20_000, 10_000, kind="send", name="ncclDevKernel_SendRecv(x)")
        )
        assert findings == []

    def test_an_all_to_all_is_given_the_time_of_the_largest(self) -> None:
        """This rank puts little into every second call; the others may put in as much as it does into the first."""
        rank = machine()
        for _ in range(4):
            with rank.step():
                rank.launch(20_000)
                rank.synchronize()
                for megabytes in (500.0, 1.0):
                    collective(rank, 4_000, "all_to_all", megabytes)
                rank.synchronize()
        _, findings = answer(RULES["CM003"], rank)
        assert findings == []

    def test_an_all_gather_moves_what_the_others_put_in(self) -> None:
        """Each rank puts in 100 MB and receives 700: 4.7 ms at 150 GB/s, so 10 ms are not slow."""
        _, findings = answer(RULES["CM003"], after_compute(20_000, 10_000, kind="_allgather_base", megabytes=100))
        assert findings == []


def sharded(group_of_reduction: str = "0", streams: tuple[int, int] = (20, 21)) -> Machine:
    """FSDP's backward pass: each layer's reduce-scatter and the next layer's all-gather are launched together, and the
    next layer's compute waits for its all-gather.
    """
    gather, scatter = streams
    rank = machine()
    for _ in range(4):
        with rank.step():
            ready = 0.0
            for _ in range(6):
                rank.launch(1_000, after=ready)
                done = rank.ends[COMPUTE]
                name = {"Process Group Name": group_of_reduction}
                collective(rank, 800, "_reduce_scatter_base", 100, stream=scatter, after=done, **name)
                shared = group_of_reduction == "0"
                ready = rank.ends[scatter] + 5 if shared else done
                collective(rank, 600, "_allgather_base", 10, stream=gather, after=ready)
                ready = rank.ends[gather] + 5
            rank.synchronize()
    return rank


class TestSerialized:
    @pytest.mark.parametrize("streams", [(20, 21), (20, 20)])
    def test_the_cause_is_named(self, streams: tuple[int, int]) -> None:
        finding = assert_finds(RULES["CM001"], sharded(streams=streams))
        assert "all_gather waits for reduce_scatter on the same communicator" in finding.why
        (row,) = [row for row in finding.evidence if "behind reduce_scatter" in row.what]
        assert row.calls_per_step == 6
        assert row.us_per_step == pytest.approx(6 * 800, rel=0.05)
        assert finding.fix is not None
        assert finding.fix.code == "model.set_separate_reduce_scatter_group(True)"

    def test_separate_groups_do_not_wait(self) -> None:
        finding = assert_finds(RULES["CM001"], sharded(group_of_reduction="1"))
        assert "same communicator" not in finding.why

    def test_a_kernel_between_the_two_is_what_the_second_waits_for(self) -> None:
        """Sequence parallelism: a short norm takes what was scattered, and its result is gathered."""
        rank = machine()
        for _ in range(4):
            with rank.step():
                rank.launch(3_000)
                collective(rank, 800, "_reduce_scatter_base", after=rank.ends[COMPUTE])
                rank.launch(15, after=rank.ends[COMMUNICATION] + 2)
                collective(rank, 600, "_allgather_base", after=rank.ends[COMPUTE] + 2)
                rank.synchronize()
        assert rank.facts().serialized_collectives == []

    def test_a_collective_that_was_launched_late_waited_for_the_host(self) -> None:
        rank = machine()
        for _ in range(4):
            with rank.step():
                rank.launch(3_000)
                rank.synchronize()
                collective(rank, 800, "_reduce_scatter_base")
                rank.synchronize()
                collective(rank, 600, "_allgather_base")
                rank.synchronize()
        assert rank.facts().serialized_collectives == []


def every_trace() -> list[str]:
    return sorted(str(path.relative_to(TRACES)) for path in TRACES.rglob("*.json.gz"))


def findings_of(path: str) -> tuple[Facts, list[Priced]] | None:
    """None for a file that is no trace, or that has no collectives."""
    recordings = find_recordings(find_sources([str(TRACES / path)]).sources)
    try:
        facts = Facts(read_recording(recordings[0], []))
    except Exception:
        return None
    return (facts, run_rules(prepare(load_rules(None)), facts).priced) if facts.collectives else None


@pytest.mark.real_traces
@pytest.mark.parametrize("path", every_trace())
def test_no_communication_finding_saves_more_than_is_there(path: str) -> None:
    read = findings_of(path)
    if read is None:
        return
    facts, priced = read
    overlap = facts.overlap
    for finding in (one.finding for one in priced if one.finding.code in ("CM001", "CM003")):
        if finding.saving is None:
            continue
        exposed_us = overlap.exposed_ns.max() / 1e3
        free_us = overlap.free_compute_ns.max() / 1e3
        limit_us = min(exposed_us, free_us) if finding.code == "CM001" else exposed_us
        assert finding.saving.high_us <= 1.001 * limit_us, finding.code


@pytest.mark.real_traces
def test_a_search_for_the_cause_does_not_come_before_fixes() -> None:
    """8 x MI300X: 17.6 MB at 3 GB/s on links of 448 GB/s a direction, and little compute to hide anything."""
    read = findings_of("tracelens/mi300/resnet_act_checkpoint.json.gz")
    assert read is not None
    found: dict[str, Finding] = {one.finding.code: one.finding for one in read[1]}
    assert next(iter(found)) == "CM001"
    assert (found["CM003"].confidence, found["CM003"].impact) == ("low", "high")
    assert found["CM003"].saving is not None
    assert found["CM003"].saving.low_us == 0
    assert "They take about as long in every step" in found["CM003"].why
