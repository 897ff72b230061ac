"""The settings recorded by `traceopt run` are read if present, and odd values are ignored."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import astuple
from odd_values import JSON, paths, put

from fixtures.generate import generate
from traceopt.analyzer.run_log.environment import Environment
from traceopt.analyzer.run_log.loaders import Build, HandOver, Loader, WorkerStart, read_loaders
from traceopt.analyzer.run_log.run_settings import Captured, captured
from traceopt.analyzer.run_log.step_ledger import read_ledger

DOCUMENT: dict[str, Any] = {
    "cycle": {"name": "timing"},
    "environment": {
        "cpu_count": 64,
        "cpu_affinity": 16,
        "cpu_quota": 7.5,
        "numa_nodes": {"all": 2, "used": 1},
        "threads": 8,
        "cudnn_benchmark": False,
        "anomaly_mode": True,
        "matmul_precision": "high",
        "variables": {"CUDA_LAUNCH_BLOCKING": "1"},
    },
    "models": [
        {
            "class": "torch.nn.parallel.distributed.DistributedDataParallel",
            "wrapped": "model.Net",
            "channels_last": True,
            "dtypes": {"float32": 10},
        }
    ],
    "optimizers": [{"class": "torch.optim.adamw.AdamW", "foreach": None, "fused": True, "tensors": 3}],
    "loaders": [
        {"num_workers": 0, "batches": 10},
        {
            "dataset": "data.Items",
            "num_workers": 2,
            "pin_memory": True,
            "batches": 90,
            "starts": [{"step": 0, "us": 10.0, "first_batch_us": 20.0, "end_us": None}],
        },
    ],
    "loader_workers": [
        {"dataset": "data.Items", "workers": 2, "batches": 30, "batch_us": 10_000.0, "batch_cpu_us": 1_000.0},
        {"dataset": "data.Items", "workers": 2, "batches": 10, "batch_us": 20_000.0, "batch_cpu_us": 4_000.0},
        {"dataset": "data.Other", "workers": 2, "batches": 10, "batch_us": 1.0},
    ],
    "dynamo": {"graph_break": {"print": 2}},
    "gc": {"collections": 3, "us": 1_500.0, "full_collections": 1, "full_us": 1_000.0, "frozen_objects": 7},
    "checkpoint": {"saves": 2, "us": 4_000.0},
    "memory": {"before": None, "after": {"allocated_bytes": 5, "alloc_retries": 1}},
    "ledger": {"step_us": [100.0, 3.0], "fetch_us": [1.0, 0.5], "windows": []},
}


def test_all_of_it_is_read() -> None:
    found = captured({"traceopt": DOCUMENT})
    assert found.recorded
    assert found.cycle == "timing"
    assert found.environment.numa_nodes == (2, 1)
    assert found.environment.variables == {"CUDA_LAUNCH_BLOCKING": "1"}
    assert (found.environment.cudnn_benchmark, found.environment.anomaly_mode) == (False, True)
    [model] = found.models
    assert (model.wrapped, model.channels_last, model.dtypes) == ("model.Net", True, {"float32": 10})
    [optimizer] = found.optimizers
    assert (optimizer.foreach, optimizer.fused, optimizer.tensors) == (None, True, 3)
    assert found.compilation is not None
    assert [(one.text.title, one.count) for one in found.compilation.breaks] == [("print", 2)]
    assert found.collections is not None
    assert (found.collections.count, found.collections.full_count, found.collections.frozen) == (3, 1, 7)
    assert found.checkpoints is not None
    assert (found.checkpoints.saves, found.checkpoints.total_ns) == (2, 4_000_000)
    before, after = found.memory
    assert before is None
    assert after is not None
    assert (after.allocated_bytes, after.reserved_bytes) == (5, None)
    assert found.ledger is not None


@pytest.mark.parametrize(
    ("recorded", "script"),
    [
        ("/home/me/secret/train.py", "train.py"),
        ("C:\\me\\train.py", "train.py"),
        ("/" + "a" * 400 + "/train.py", "train.py"),
        ("-c", None),
        ("/usr/lib/python3/site-packages/ipykernel_launcher.py", None),
        ("", None),
        (None, None),
        (["train.py"], None),
    ],
)
def test_a_script_has_no_folders(recorded: object, script: str | None) -> None:
    assert captured({"traceopt": {"script": recorded}}).script == script


def test_the_training_s_loader_is_the_one_that_was_read_most() -> None:
    loader = captured({"traceopt": DOCUMENT}).training_loader
    assert loader is not None
    assert (loader.num_workers, loader.pin_memory, loader.starts) == (2, True, (WorkerStart(0, 10_000, 20_000, None),))
    assert loader.build == Build(12_500_000.0, 1_750_000.0, 0.0)


def test_the_loader_that_feeds_updates_is_the_training_s() -> None:
    training, evaluation = (
        {"num_workers": 1, "batches": 5, "updates": 5},
        {"num_workers": 0, "batches": 90, "updates": 1},
    )
    own = {"loaders": [evaluation, training], "updates": 10}
    found = captured({"traceopt": own}).training_loader
    assert found is not None
    assert (found.num_workers, found.updates) == (1, 5)


@pytest.mark.parametrize(("updates", "known"), [(10, False), (0, True), (None, True)])
def test_a_loader_that_feeds_nothing_is_only_that_of_inference(updates: int | None, known: bool) -> None:
    own = {"loaders": [{"num_workers": 0, "batches": 90, "updates": 0}], "updates": updates}
    assert (captured({"traceopt": own}).training_loader is not None) == known


def test_workers_are_those_of_their_loader() -> None:
    """Both loaders have the same class of data set, and as many workers."""
    rows = [{"num_workers": 2, "dataset": "data.Items", "batches": 9} for _ in range(2)]
    times = [
        {"loader": n, "workers": 2, "dataset": "data.Items", "batches": 3, "batch_us": 10.0 * n} for n in (0, 1, 1)
    ]
    assert [loader.build for loader in read_loaders(rows, times[1:], None)] == [None, Build(10_000.0, None, 0.0)]


def test_the_hand_over_is_read() -> None:
    row = {"num_workers": 0, "batches": 9, "hand_over": {"us": 700.0, "worker_us": 90.0}}
    [loader] = read_loaders([row], [], None)
    assert loader.hand_over == HandOver(700_000.0, 90_000.0)
    [loader] = read_loaders([row | {"hand_over": {"us": -1, "worker_us": "x"}}], [], None)
    assert loader.hand_over is None


@pytest.mark.parametrize(("recorded", "read"), [(1.25, 1.25), (0.9, 1.0), (0, None), ("fast", None), (1e9, None)])
def test_the_slowdown_beside_another_process_is_read(recorded: object, read: float | None) -> None:
    row = {"num_workers": 0, "batches": 9, "hand_over": {"us": 700.0, "worker_us": 90.0, "slowdown": recorded}}
    [loader] = read_loaders([row], [], None)
    assert loader.hand_over == HandOver(700_000.0, 90_000.0, read)


@pytest.mark.parametrize(("wait_per_cpu", "waited_ns"), [(None, None), (0.5, 500_000.0), (99.0, 4_000_000.0)])
def test_the_training_process_builds_without_workers(wait_per_cpu: float | None, waited_ns: float | None) -> None:
    row = {"num_workers": 0, "batches": 10, "fetch_us": 40_000.0, "fetch_cpu_us": 10_000.0}
    [loader] = read_loaders([row], [], wait_per_cpu)
    assert loader.build == Build(4_000_000.0, 1_000_000.0, waited_ns)


def test_waiting_for_a_core_is_no_waiting_for_data() -> None:
    assert Build(10.0, 2.0, None).computing_share == 0.2
    assert Build(10.0, 2.0, 7.5).computing_share == 0.8
    assert Build(10.0, 2.0, 10.0).computing_share == 1.0
    assert Build(10.0, None, 7.5).computing_share is None


@pytest.mark.parametrize(
    ("settings", "cores"),
    [
        ({"cpu_count": 64}, 64),
        ({"cpu_count": 64, "cpu_affinity": 16}, 16),
        ({"cpu_affinity": 16, "cpu_quota": 3.5}, 3),
        ({"cpu_affinity": 16, "cpu_quota": 0.2}, 1),
        ({"cpu_affinity": 64, "local_world_size": 8}, 8),
        ({"cpu_affinity": 8, "cpu_affinity_of_parent": 64, "local_world_size": 8}, 8),
        ({"cpu_affinity": 64, "cpu_affinity_of_parent": 64, "local_world_size": 8}, 8),
        ({"cpu_affinity": 2, "local_world_size": 8}, 1),
        ({"local_world_size": 8}, None),
    ],
)
def test_cores_of_a_rank(settings: dict[str, Any], cores: int | None) -> None:
    assert Environment(**settings).cores == cores


class TestLedger:
    def test_steps_without_a_profiler(self) -> None:
        window = {"cycle": "timing", "warmup_from": 5, "from": 8, "until": 10}
        ledger = read_ledger({"step_us": [1.0] * 12, "windows": [window]})
        assert ledger is not None
        assert ledger.usual.tolist() == [3, 4, 10, 11]
        assert ledger.stretch == {}  # four are too few

    def test_stretch_leaves_the_wait_for_data_aside(self) -> None:
        windows = [
            {"cycle": "timing", "warmup_from": 10, "from": 10, "until": 12},
            {"cycle": "detail", "warmup_from": 12, "from": 12, "until": 20},
        ]
        ledger = read_ledger(
            {
                "step_us": [10.0] * 10 + [60.0, 60.0] + [90.0, 90.0],
                "fetch_us": [0.0] * 10 + [48.0, 48.0] + [50.0, 50.0],
                "windows": windows,
            }
        )
        assert ledger is not None
        assert ledger.stretch == pytest.approx({"timing": 1.2, "detail": 4.0})

    def test_where_the_host_ran_ahead_of_the_gpu_its_steps_take_what_the_gpu_took(self) -> None:
        """A step of 100 us on the GPU, whose queue fills before, in and after the recording."""
        steps = [10.0] * 5 + [10.0] * 3 + [10.0, 10.0, 10.0, 30.0] + [10.0] * 6 + [100.0] * 4
        document = {
            "step_us": steps,
            "windows": [{"cycle": "timing", "warmup_from": 5, "from": 8, "until": 12}],
            "drains": [[5, 450.0], [8, 270.0], [12, 340.0], [22, 540.0]],
        }
        ledger = read_ledger(document)
        assert ledger is not None
        assert ledger.usual.tolist() == list(range(12, 22)), "the GPU was behind in the steps before the first wait"
        assert ledger.usual_step_ns == 100_000
        assert ledger.stretch == pytest.approx({"timing": 1.0})

    @pytest.mark.parametrize("drains", [None, [[8, 0.1], [12, 1.0]], [[12, 340.0], [8, 1.0]], [[8, "1"], [12, None]]])
    def test_without_a_wait_for_the_gpu_steps_take_what_the_host_took(self, drains: object) -> None:
        window = {"cycle": "timing", "warmup_from": 8, "from": 8, "until": 12}
        ledger = read_ledger({"step_us": [10.0] * 8 + [12.0] * 4, "windows": [window], "drains": drains})
        assert ledger is not None
        assert ledger.stretch == pytest.approx({"timing": 1.2})

    def test_evaluations_belong_to_no_step(self) -> None:
        window = {"cycle": "timing", "warmup_from": 10, "from": 10, "until": 12}
        evaluations = [0.0] * 3 + [70.0] * 7 + [0.0, 30.0]
        steps = [10.0] * 3 + [80.0] * 7 + [12.0, 42.0]
        ledger = read_ledger({"step_us": steps, "eval_us": evaluations, "windows": [window]})
        assert ledger is not None
        assert ledger.usual_ns == 10_000
        assert ledger.stretch == pytest.approx({"timing": 1.2})

    def test_pages_that_the_profiler_spares_the_script_are_counted_in(self) -> None:
        """Steps that need no new pages after the recording are shorter than steps of a run without a profiler."""
        document = {
            "step_us": [5_000.0, 10_000.0] + [10_000.0] * 6 + [13_000.0] * 2 + [8_000.0] * 6,
            "page_faults": [9_000, 5_000] + [2_000] * 6 + [2_500] * 2 + [0] * 6,
            "windows": [{"cycle": "timing", "warmup_from": 6, "from": 8, "until": 10}],
        }
        known, unknown = read_ledger(document, page_fault_ns=1_000.0), read_ledger(document)
        assert known is not None
        assert unknown is not None
        assert (known.usual_page_faults, known.usual_ns) == (2_000, 10_000_000)
        assert known.stretch == pytest.approx({"timing": 1.3})
        assert unknown.stretch == pytest.approx({"timing": 13 / 8})
        assert known.step_ns.sum() == unknown.step_ns.sum(), "the whole run takes as long as it took"

    @pytest.mark.parametrize("page_faults", [None, [1] * 11, [1] * 11 + [-1], ["1"] * 12, [0] * 12])
    def test_without_page_faults_the_steps_are_as_they_were(self, page_faults: object) -> None:
        windows = [{"cycle": "timing", "warmup_from": 5, "from": 5, "until": 6}]
        document = {"step_us": [2.0] * 5 + [4.0] + [2.0] * 6, "page_faults": page_faults, "windows": windows}
        ledger = read_ledger(document, page_fault_ns=1e6)
        assert ledger is not None
        assert (ledger.usual_page_faults, ledger.stretch) == (0, {"timing": 2.0})

    @pytest.mark.parametrize(
        "fetch_us", [None, [0.0, 0.0], [1.0], [1.0, "2"], [1.0, -1.0], [1.0, 100.0], [1.0, math.nan], {"a": 1}]
    )
    def test_waits_that_cannot_be_are_not_known(self, fetch_us: object) -> None:
        ledger = read_ledger({"step_us": [2.0, 2.0], "fetch_us": fetch_us, "gc_us": fetch_us})
        assert ledger is not None
        assert ledger.fetch_ns is None

    @pytest.mark.parametrize(
        "step_us", [None, [], "12", [1.0, None], [math.inf], [-1.0], [1e300], [10**400], [[1.0]], [True], {"0": 1.0}]
    )
    def test_steps_that_cannot_be_leave_no_ledger(self, step_us: object) -> None:
        assert read_ledger({"step_us": step_us}) is None

    @pytest.mark.parametrize(
        "window",
        [
            {"cycle": "timing", "warmup_from": 3, "from": 2, "until": 4},
            {"cycle": "timing", "warmup_from": -1, "from": 2, "until": 4},
            {"cycle": 3, "warmup_from": 1, "from": 2, "until": 4},
            {"cycle": "timing"},
            "window",
        ],
    )
    def test_windows_that_cannot_be_are_left_out(self, window: object) -> None:
        ledger = read_ledger({"step_us": [1.0] * 9, "windows": [window]})
        assert ledger is not None
        assert ledger.windows == ()

    @pytest.mark.parametrize(
        ("wait", "share"),
        [
            ({"us": 1.0, "cpu_us": 2.0, "wall_us": 4.0}, 0.25),
            ({"us": 9.0, "wall_us": 4.0}, 1.0),
            ({"us": 1.0, "wall_us": 0.0}, None),
            ({"us": -1.0, "wall_us": 4.0}, None),
            ([1.0, 4.0], None),
        ],
    )
    def test_waiting_for_a_core(self, wait: object, share: float | None) -> None:
        ledger = read_ledger({"step_us": [1.0], "core_wait": wait})
        assert ledger is not None
        assert ledger.core_wait_share == share


@pytest.mark.parametrize(
    "header",
    [{}, {"traceopt": None}, {"traceopt": []}, {"traceopt": {"environment": 3, "loaders": {"num_workers": 4}}}],
)
def test_odd_headers_tell_nothing(header: dict[str, object]) -> None:
    assert captured(header) == Captured()


def test_odd_values_tell_nothing() -> None:
    loaders = [{"num_workers": "4", "pin_memory": 1, "batch_size": -4, "batches": 10**400}, "loader"]
    assert captured({"traceopt": {"loaders": loaders}}).loaders == (Loader(),)


def numbers(value: Any) -> list[Any]:
    """All numbers in what was read."""
    if isinstance(value, np.ndarray):
        return value.tolist()  # type: ignore[no-any-return]
    if isinstance(value, Struct):
        return [n for one in astuple(value) for n in numbers(one)]
    if isinstance(value, dict):
        return [n for one in value.values() for n in numbers(one)]
    if isinstance(value, (tuple, list)):
        return [n for one in value for n in numbers(one)]
    return [value] if isinstance(value, (int, float)) else []


def generated() -> dict[str, Any]:
    document = generate("worker_restart", steps=2, warmup=2).document["traceopt"]
    return json.loads(json.dumps(document)) | {
        "memory": {"after": {"allocated_bytes": 3}},
        "dynamo": {"frames": {"ok": 1}},
    }


HOSTILE = {"documented": DOCUMENT, "generated": generated()}


@given(st.sampled_from(sorted(HOSTILE)), st.data(), JSON)
def test_whatever_stands_anywhere_no_odd_number_is_taken(kind: str, data: st.DataObject, odd: Any) -> None:
    document = HOSTILE[kind]
    path = data.draw(st.sampled_from(paths(document)))
    found = captured({"traceopt": put(document, path, odd)})
    assert all(math.isfinite(number) and number >= 0 for number in numbers(found))
    cores = found.environment.cores
    assert cores is None or cores >= 1
    if found.ledger is not None:
        assert all(math.isfinite(ratio) for ratio in found.ledger.stretch.values())


@given(JSON)
def test_a_key_that_holds_anything_is_read_without_an_error(odd: Any) -> None:
    assert isinstance(captured({"traceopt": odd}), Captured)
