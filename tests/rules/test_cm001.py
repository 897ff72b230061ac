"""CM001 exposed-communication: overlap communication with compute."""

from __future__ import annotations

from typing import Any

import pytest
from support.collectives import COMMUNICATION, COMPUTE, RULES, after_compute, collective, machine
from support.planted import PlantedFault

from traceopt.testing import Machine, assert_finds


class TestPlanted(PlantedFault):
    code = "CM001"


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

    def test_torchrec_exchanges_the_next_inputs_already(self) -> None:
        rank = trained(("alltoall", 6_000), ("allreduce", 2_000))
        with rank.annotate("## wait_sparse_data_dist 2 ##"):
            rank.idle(10)
        fix = self.fix(rank)
        assert "TrainPipelineSparseDist" not in fix
        assert "all_to_all_single" in fix

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


class TestTensorParallelInference:
    """Nothing overlaps the all-reduce for which each layer waits: it has to be shorter, or there are fewer of them."""

    @staticmethod
    def decoded(us: float = 50, megabytes: float = 1.0, trains: bool = False, **args: Any) -> Machine:
        rank = machine()
        for _ in range(4):
            with rank.step():
                for _ in range(20):
                    rank.launch(60, after=rank.ends.get(COMMUNICATION, 0))
                    collective(rank, us, megabytes=megabytes, after=rank.ends[COMPUTE], **args)
                if trains:
                    with rank.annotate("Optimizer.step#SGD.step"):
                        rank.idle(100)
                rank.synchronize()
        return rank

    def test_small_all_reduces_of_layers(self) -> None:
        finding = assert_finds(RULES["CM001"], self.decoded())
        assert finding.title == "Use an all-reduce for small messages, or fewer tensor-parallel ranks"

    @pytest.mark.parametrize(
        "others",
        [
            {"megabytes": 100.0},
            {"trains": True},
            {"kind": "alltoall"},
            {"name": "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(x)"},
        ],
    )
    def test_others_are_to_overlap(self, others: dict[str, Any]) -> None:
        """Large messages, gradients, exchanges between experts, and all-reduces that are made for small messages."""
        assert assert_finds(RULES["CM001"], self.decoded(**others)).title == RULES["CM001"].title


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
