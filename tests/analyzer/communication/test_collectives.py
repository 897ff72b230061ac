"""Collectives: their kind in any spelling, bytes, bus bandwidth, and exposed time."""

from __future__ import annotations

from typing import Any

import pytest

from traceopt.analyzer.communication.collectives import CollectiveCalls
from traceopt.analyzer.facts import Facts
from traceopt.testing.events import Json, annotation, document, kernel, op, python, read, runtime

GENERIC = "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)"


def collectives(*events: Json, world_size: int = 8) -> dict[str, CollectiveCalls]:
    header = {"distributedInfo": {"backend": "nccl", "rank": 0, "world_size": world_size}}
    facts = Facts(read(document([annotation("ProfilerStep#0", 0, 1000), *events], **header)))
    return {calls.name: calls for calls in facts.collectives}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", "all_reduce"),
        ("ncclKernel_AllReduce_RING_LL_Sum_half(x)", "all_reduce"),
        ("ncclAllReduceRingLLKernel_sum_f32(x)", "all_reduce"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(x)", "reduce_scatter"),
        ("ncclDevKernel_AllGather_RING_LL(x)", "all_gather"),
        ("ncclDevKernel_SendRecv(x)", "send_recv"),
        ("ncclDevKernel_Broadcast_RING_LL(x)", "broadcast"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL(x)", "reduce"),
        (GENERIC, "collective"),
    ],
)
def test_kind_by_the_kernels_name(name: str, kind: str) -> None:
    assert list(collectives(kernel(name, 100, 50, 1))) == [kind]


@pytest.mark.parametrize(
    ("spelled", "kind"),
    [
        ("allreduce", "all_reduce"),
        ("_allgather_base", "all_gather"),
        ("all_to_allv", "all_to_all"),
        ("reduce_scatter_tensor_coalesced", "reduce_scatter"),
    ],
)
def test_kind_by_nccls_metadata(spelled: str, kind: str) -> None:
    assert list(collectives(kernel(GENERIC, 100, 50, 1, **{"Collective name": spelled}))) == [kind]


def annotated(name: str, **args: Any) -> list[Json]:
    return [
        annotation(name, 40, 30, **args),
        runtime("cudaLaunchKernel", 50, 5, 1),
        kernel(GENERIC, 100, 50, 1),
    ]


def test_kind_by_the_annotation_around_the_launch() -> None:
    assert list(collectives(*annotated("nccl:reduce_scatter"))) == ["reduce_scatter"]
    assert list(collectives(*annotated("nccl:_all_gather_base"))) == ["all_gather"]


@pytest.mark.parametrize(
    ("size", "dtypes"),
    [(8, ("Double", "Long")), (4, ("Float", "Int")), (2, ("Half", "BFloat16")), (1, ("Byte", "Char", "Float8_e4m3fn"))],
)
def test_bytes_by_nccls_metadata(size: int, dtypes: tuple[str, ...]) -> None:
    for dtype in dtypes:
        args = {"Collective name": "allreduce", "In msg nelems": 1_000_000, "dtype": dtype, "Group size": 4}
        calls = collectives(kernel(GENERIC, 100, 50, 1, **args))["all_reduce"]
        assert calls.known_bytes == 1_000_000 * size, dtype


def test_bytes_of_an_unknown_type_are_unknown() -> None:
    args = {"Collective name": "allreduce", "In msg nelems": 1_000_000, "dtype": "Quaternion"}
    assert collectives(kernel(GENERIC, 100, 50, 1, **args))["all_reduce"].known_bytes is None


def test_bytes_by_the_annotation() -> None:
    """A list of tensors is one argument."""
    args = {"Input Dims": [[[1000, 1000], [24]], []], "Input type": ["c10::BFloat16", "Scalar"]}
    calls = collectives(*annotated("nccl:all_reduce", **args))["all_reduce"]
    assert calls.known_bytes == 2 * 1_000_024


def test_unknown_bytes() -> None:
    calls = collectives(*annotated("nccl:all_reduce"))["all_reduce"]
    assert (calls.known_bytes, calls.bus_gb_per_s()) == (None, None)


@pytest.mark.parametrize(
    ("name", "group", "world_size", "factor"),
    [
        ("allreduce", 8, 8, 2 * 7 / 8),
        ("allreduce", 4, 8, 2 * 3 / 4),  # a group within the world
        ("allreduce", None, 2, 1.0),
    ],
)
def test_bus_bandwidth_of_an_all_reduce(name: str, group: int | None, world_size: int, factor: float) -> None:
    args: dict[str, Any] = {"Collective name": name, "In msg nelems": 1_000_000, "dtype": "Float"}
    if group:
        args["Group size"] = group
    calls = collectives(kernel(GENERIC, 100, 50, 1, **args), world_size=world_size)["all_reduce"]
    assert calls.bus_factor == pytest.approx(factor)
    assert calls.bus_gb_per_s() == pytest.approx(4e6 * factor / 50e-6 / 1e9)


def test_exposed_is_without_compute() -> None:
    found = collectives(
        kernel("gemm", 100, 100, 1),
        kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 150, 100, 2, stream=20),  # 50 us after the gemm
        kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 110, 30, 3, stream=20),  # overlapped by it
        kernel("ncclDevKernel_AllGather_RING_LL(x)", 400, 10, 4, stream=20),
    )
    assert sorted(found["all_reduce"].exposed.tolist()) == [0, 50_000]
    assert found["all_reduce"].calls == 2
    assert found["all_gather"].exposed.tolist() == [10_000]
    assert list(found) == ["all_reduce", "all_gather"]  # most exposed first


def test_an_operator_of_c10d_tells_the_kind() -> None:
    events = [op("c10d::allreduce_", 40, 30), runtime("cudaLaunchKernel", 50, 5, 1), kernel(GENERIC, 100, 50, 1)]
    assert list(collectives(*events)) == ["all_reduce"]


def test_none() -> None:
    assert collectives(kernel("gemm", 100, 100, 1)) == {}


def on_cpu(*events: Json, world_size: int = 2) -> dict[str, CollectiveCalls]:
    header = {"distributedInfo": {"backend": "gloo", "rank": 0, "world_size": world_size}}
    facts = Facts(read(document([annotation("ProfilerStep#0", 0, 1000), *events], **header)))
    return {calls.name: calls for calls in facts.collectives}


def test_collectives_of_a_cpu_run() -> None:
    """gloo runs them on its own threads; they are hidden by what the main thread computes in the meantime."""
    sizes = {"Input Dims": [[1000]], "Input type": ["float"]}
    calls = on_cpu(
        op("c10d::allreduce_", 100, 10),
        annotation("gloo:all_reduce", 110, 100, 7, **sizes),
        op("aten::mm", 150, 20),
        op("c10d::broadcast_", 300, 10),
        annotation("gloo:broadcast", 310, 50, 7),
    )
    assert list(calls) == ["all_reduce", "broadcast"]
    assert (calls["all_reduce"].exposed.tolist(), calls["all_reduce"].known_bytes) == ([80_000], 4000)
    assert (calls["broadcast"].exposed.tolist(), calls["broadcast"].known_bytes) == ([50_000], None)


def test_two_collectives_at_once_on_the_cpu_cost_their_union() -> None:
    found = on_cpu(annotation("gloo:all_reduce", 100, 100, 7), annotation("gloo:all_reduce", 150, 100, 8))
    assert found["all_reduce"].exposed.tolist() == [100_000, 50_000]


def test_each_run_on_the_cpu_belongs_to_the_next_call() -> None:
    """The first was started before the recording began."""
    facts = Facts(
        read(
            [
                annotation("ProfilerStep#0", 0, 1000),
                annotation("gloo:all_reduce", 10, 20, 7),
                python("train.py(8): average", 90, 200),
                op("c10d::allreduce_", 100, 10),
                annotation("gloo:all_reduce", 110, 50, 7),
            ]
        )
    )
    [calls] = facts.collectives
    assert [facts.trace.names[facts.slices.name[row]] if row >= 0 else None for row in calls.launch] == [
        None,
        "c10d::allreduce_",
    ]
