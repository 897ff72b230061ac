"""What a CPU thread did is split into exclusive activities; if they nest, one owns the time."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traceopt.analyzer.arrays.intervals import intersect, union
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.timeline.call_tree import build_slices
from traceopt.analyzer.timeline.host_activity import Host
from traceopt.analyzer.vocabulary.causes.table import DATA_LOADING, HOST_ACTIVITIES
from traceopt.testing.events import Json, annotation, op, python, read, runtime, span

MAIN, OTHER = 1, 2
LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def host_of(*events: Json) -> Host:
    trace = read(list(events))
    return Host(trace, build_slices(trace), {})


def times(host: Host, tid: int = MAIN) -> dict[str, int]:
    thread = next(i for i, thread in enumerate(host.trace.threads) if thread.tid == tid)
    return {cause.key: area.total for cause, area in host.of_thread(thread).items() if area.total}


@pytest.mark.parametrize(
    ("category", "name", "activity"),
    [
        ("user_annotation", LOADER, "data_loading"),
        ("python_function", "torch/utils/data/dataloader.py(733): __next__", "data_loading"),
        ("python_function", "/x/site-packages/torch/utils/data/dataloader.py(7): __next__", "data_loading"),
        ("python_function", "torch/serialization.py(943): save", "checkpoint"),
        ("python_function", "utils.py(9): save_checkpoint", "checkpoint"),
        ("python_function", "logging/__init__.py(1489): info", "logging"),
        ("python_function", "tqdm/std.py(1198): update", "logging"),
        ("python_function", "tqdm/std.py(1160): __iter__", "python"),  # contains the whole loop
        ("python_function", "<built-in function print>", "logging"),
        ("python_function", "torch/utils/tensorboard/writer.py(3): add_scalar", "logging"),
        ("python_function", "my_writers.py(8): add_histogram", "logging"),
        ("python_function", "figure.py(8): add_scalar_field", "python"),
        ("python_function", "data/tokenizer.py(20): encode", "input_work"),
        ("python_function", "models/tokenizer.py(20): forward", "python"),  # a network
        ("python_function", "json/encoder.py(205): iterencode", "logging"),
        ("python_function", "json/decoder.py(332): decode", "python"),
        ("python_function", "/x/site-packages/numpy/lib/npyio.py(660): savez_compressed", "logging"),
        ("python_function", "numpy/lib/_npyio_impl.py(312): load", "python"),
        ("python_function", "pandas/core/generic.py(3800): to_csv", "logging"),
        ("python_function", "<built-in function fsync>", "logging"),
        ("python_function", "<built-in method commit of sqlite3.Connection object at 0x7f>", "logging"),
        ("python_function", "<built-in method executemany of sqlite3.Cursor object at 0x7f>", "logging"),
        ("python_function", "<built-in method execute of sqlite3.Connection object at 0x7f>", "python"),  # reads?
        ("python_function", "<built-in method commit of psycopg.Connection object at 0x7f>", "python"),
        ("python_function", "<built-in function sleep>", "sleep"),
        ("python_function", "train.py(9): sleep", "python"),
        ("python_function", "subprocess.py(506): run", "program"),
        ("python_function", "/usr/lib/python3.11/subprocess.py(1024): __init__", "program"),
        ("python_function", "subprocess.py(420): check_output", "program"),
        ("python_function", "subprocess.py(1966): _internal_poll", "python"),  # of __del__: the program is long over
        ("python_function", "tools/subprocess.py(7): run", "python"),
        ("python_function", "<built-in function system>", "program"),
        ("python_function", "<built-in function collect>", "gc"),
        ("cpu_op", "traceopt: gc", "gc"),
        ("cuda_runtime", "cudaMalloc", "allocation"),
        ("cuda_driver", "cuLibraryLoadData", "module_load"),
        ("cuda_runtime", "Lazy Function Loading", "module_load"),  # of the category "overhead", inside the launch
        ("cuda_runtime", "Activity Buffer Request", "profiler"),
        ("cuda_runtime", "cudaStreamSynchronize", "host_sync"),
        ("python_function", "torch/_dynamo/convert_frame.py(3): _compile", "compile"),
        ("python_function", "PIL/Image.py(3): resize", "input_work"),
        ("python_function", "PIL/Image.py(2500): save", "logging"),
        ("python_function", "data/prep.py(3): tokenize", "input_work"),
        ("python_function", "vision.py(3): decode_image", "input_work"),
        ("cpu_op", "aten::mm", "launch"),
        ("cuda_runtime", "cudaLaunchKernel", "launch"),
        ("python_function", "train.py(3): train_step", "python"),
        ("python_function", "catalogue.py(3): show", "python"),  # "log" inside a word
        ("python_function", "logging_tools.py(3): f", "python"),
        (
            "python_function",
            "logging/__init__.py(1720): getEffectiveLevel",
            "python",
        ),  # by torch, in each backward pass
    ],
)
def test_activity_by_name(category: str, name: str, activity: str) -> None:
    assert times(host_of(span(category, name, 100, 50))) == {activity: 50_000}


def test_the_earlier_activity_owns_nested_time() -> None:
    """An allocation inside an operator inside the data loader is data loading; a sync inside logging is logging."""
    host = host_of(
        annotation(LOADER, 100, 100),
        op("aten::empty", 120, 50),
        runtime("cudaMalloc", 130, 20, 1),
        python("train.py(3): step", 0, 500),
        python("logging/__init__.py(1): info", 300, 100),
        runtime("cudaStreamSynchronize", 310, 50, 2),
        op("aten::mm", 410, 40),
        runtime("cudaMalloc", 420, 10, 3),
    )
    assert times(host) == {
        "data_loading": 100_000,
        "logging": 100_000,
        "allocation": 10_000,
        "launch": 30_000,
        "python": 260_000,
    }


@pytest.mark.parametrize(("opens", "activity"), [(False, "logging"), (True, "input_work")])
def test_images_that_a_function_draws_and_writes_are_no_input(opens: bool, activity: str) -> None:
    """A function that opens images, too, may prepare input."""
    grid = [python("vae.py(3): save_grid", 0, 100), python("PIL/Image.py(7): resize", 10, 40)]
    more = [python("PIL/Image.py(9): open", 0, 5)] if opens else []
    elsewhere = [python("vae.py(9): augment", 200, 50), python("PIL/Image.py(7): resize", 210, 40)]
    facts = Facts(read([*more, *grid, python("PIL/Image.py(8): save", 60, 30), *elsewhere]))
    resized = [row for row in range(len(facts.slices)) if "resize" in facts.trace.names[facts.slices.name[row]]]
    assert [HOST_ACTIVITIES[facts.host.activity[row]].key for row in resized] == [activity, "input_work"]


@pytest.mark.parametrize(("beside", "activity"), [("commit", "logging"), ("fetchone", "python"), (None, "python")])
def test_statements_that_a_function_commits_write_rows(beside: str | None, activity: str) -> None:
    """Statements of a function that fetches rows, or does not commit, may read data."""
    calls = [python("<built-in method execute of sqlite3.Connection object>", 10, 40)]
    if beside is not None:
        calls += [python("<built-in method commit of sqlite3.Connection object>", 60, 30)]
    if beside == "fetchone":
        calls += [python("<built-in method fetchone of sqlite3.Cursor object>", 92, 5)]
    facts = Facts(read([python("tracker.py(3): log", 0, 100), *calls]))
    [executed] = [row for row in range(len(facts.slices)) if "execute" in facts.trace.names[facts.slices.name[row]]]
    assert HOST_ACTIVITIES[facts.host.activity[executed]].key == activity


def test_threads_are_apart() -> None:
    host = host_of(op("aten::mm", 100, 50), op("aten::mm", 120, 70, OTHER))
    assert times(host) == {"launch": 50_000}
    assert times(host, OTHER) == {"launch": 70_000}


def test_rows_are_the_outermost() -> None:
    host = host_of(
        python("torch/utils/data/dataloader.py(733): __next__", 100, 100),
        annotation(LOADER, 110, 80),
        annotation(LOADER, 300, 80),
    )
    rows = host.rows_of(DATA_LOADING)
    first, second = host.slices.start[rows].tolist()
    assert second - first == 200_000
    assert (host.slices.end - host.slices.start)[rows].tolist() == [100_000, 80_000]


names = st.sampled_from(
    [
        ("user_annotation", LOADER),
        ("python_function", "logging/__init__.py(1): info"),
        ("python_function", "train.py(3): step"),
        ("cpu_op", "aten::mm"),
        ("cuda_runtime", "cudaMalloc"),
        ("cuda_runtime", "cudaDeviceSynchronize"),
    ]
)
events = st.builds(
    lambda named, start, duration: span(*named, start, duration), names, st.integers(0, 300), st.integers(0, 90)
)


@settings(max_examples=80)
@given(st.lists(events, min_size=1, max_size=14))
def test_activities_are_a_partition_of_what_was_traced(some: list[Json]) -> None:
    host = host_of(*some)
    areas = host.of_thread(0)
    assert tuple(areas) == HOST_ACTIVITIES
    assert all(intersect(a, b).total == 0 for a, b in combinations(areas.values(), 2))
    traced = union(host.slices.start, host.slices.end).total
    assert sum(area.total for area in areas.values()) == traced


def test_slices_that_cross_count_once() -> None:
    """A frame borrowed from another cycle ends before the event of the same call does."""
    frame = "torch/utils/data/dataloader.py(733): __next__"
    twice = [python(frame, 0, 95), annotation(LOADER, 5, 95), op("aten::stack", 50, 10)]
    host = host_of(*twice, python(frame, 200, 60), annotation(LOADER, 255, 145))
    rows = host.rows_of(DATA_LOADING)
    assert host.slices.start[rows].tolist() == [5_000, 200_000, 255_000], "the last two hardly meet"


def test_a_function_that_trains_prepares_no_input() -> None:
    """A script named collate.py has its training loop in it."""
    events = [
        python("collate.py(30): main", 0, 1_000),
        python("collate.py(12): clean", 10, 100),
        op("aten::mm", 200, 300),
        op("autograd::engine::evaluate_function: AddmmBackward0", 510, 300),
        annotation("Optimizer.step#SGD.step", 820, 100),
    ]
    host = Facts(read([annotation("ProfilerStep#1", 0, 1_000), *events])).host
    assert times(host)["input_work"] == 100_000


@pytest.mark.parametrize(
    ("pause_us", "freed_us"),
    [(300, 300), (100, 0), (2_000, 0)],
    ids=["frees", "too short to tell", "longer than the call"],
)
def test_input_work_ends_when_what_it_held_is_freed(pause_us: int, freed_us: int) -> None:
    """A function's tensors are freed after it has returned."""
    loop = python("train.py(1): loop", 0, 5_000)
    host = host_of(loop, python("data.py(9): preprocess", 10, 1_000), op("aten::add", 1_010 + pause_us, 5))
    assert times(host)["input_work"] == (1_000 + freed_us) * 1_000
