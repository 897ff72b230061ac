"""How the tests are run: what `make test-quick` leaves out, which tests share a worker of `pytest -n`, and when."""

from __future__ import annotations

import ast
import gc
import importlib.util
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from traceopt.capture.machine import usable_cores

TESTS = Path(__file__).resolve().parent

MARK_OF_FIXTURE = {"run": "torch", "bare": "torch", "recorded": "torch", "browser": "browser"}

# Left out by `make test-quick`, as are all tests over the traces of support/traces.py.
SLOW = (
    "tests/action/",
    "tests/analyzer/nsight/test_nsight_exports.py",
    "tests/analyzer/ranks/test_joint_replay.py",
    "tests/analyzer/reading/test_damaged_traces.py",
    "tests/analyzer/reading/test_two_processes.py",
    "tests/analyzer/replay/test_graph.py",
    "tests/analyzer/run_log/test_step_drift.py",
    "tests/assistants/test_mcp_server.py",
    "tests/benchmarks/",
    "tests/comparison/test_noise.py",
    "tests/fixtures/",
    "tests/reports/html/test_template_cache.py",
    "tests/reports/test_plan_agrees.py",
    "tests/rules/savings/test_never_more_than_it_changes.py",
    "tests/rules/test_catalogue.py",
    "tests/rules/test_planted.py",
    "tests/rules/test_recorded_settings.py",
    "tests/test_adversity.py",
    "tests/test_device_settings.py",
    "tests/test_guides.py",
    "tests/test_packaging.py",
    "tests/test_plan_and_verdict.py",
    "tests/test_public_files.py",
    "tests/test_quantities_agree.py",
    "tests/trying/test_stop_rule.py",
    "tests/trying/test_try_command.py",
    "tests/workers/",
)


@pytest.hookimpl(tryfirst=True)
def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What `make test-quick` leaves out is not even imported, nor is torch."""
    left_out = config.option.markexpr
    slow = (
        "not slow" in left_out and collection_path.is_relative_to(TESTS) and name_of(collection_path).startswith(SLOW)
    )
    return True if slow or ("not torch" in left_out and imports_torch(collection_path)) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if imports_torch(item.path):
            item.add_marker("torch")
        if item.nodeid.startswith(SLOW) or parameters_of(item).keys() & {"scenario", "trace"}:
            item.add_marker("slow")
        for fixture in getattr(item, "fixturenames", ()):
            if fixture in MARK_OF_FIXTURE:
                item.add_marker(MARK_OF_FIXTURE[fixture])
        if item.get_closest_marker("torch") and not importlib.util.find_spec("torch"):
            item.add_marker(pytest.mark.skip("torch is not installed"))
    if is_worker(config):
        items.sort(key=lambda item: item.get_closest_marker("torch") is None)  # the longest tests come first


def name_of(path: Path) -> str:
    """As in the ids of tests: "tests/workers/"."""
    return path.relative_to(TESTS.parent).as_posix() + "/" * path.is_dir()


@cache
def imports_torch(path: Path) -> bool:
    """Whether the file does so as soon as it is imported."""
    text = path.read_text(encoding="utf-8") if path.suffix == ".py" else ""
    modules = ast.parse(text).body if "\nimport torch\n" in text else []  # or it is a line of a script in a string
    return any(isinstance(line, ast.Import) and line.names[0].name == "torch" for line in modules)


def group_of(item: pytest.Item) -> str:
    """Tests of one group run on one worker. They share slow fixtures: a recording, a trace."""
    command = item.get_closest_marker("run")
    if command is not None:
        return next((word for word in command.args if word.endswith(".py")), str(command.args[0]))  # also runs it bare
    trace = parameters_of(item).get("trace")
    if isinstance(trace, str):
        return trace.removesuffix("_fixed")  # with the tests of the scenario: they read its result, too
    if item.get_closest_marker("real_traces") and item.path.parent == TESTS:
        return "results of real traces"  # those that look at all of them
    return str(parameters_of(item).get("scenario", item.nodeid.partition("::")[0]))


def parameters_of(item: pytest.Item) -> dict[str, object]:
    return item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}


def is_worker(config: pytest.Config) -> bool:
    """Whether this is one of the processes of `pytest -n`."""
    return hasattr(config, "workerinput")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """In the process that starts the workers, for each of them."""
    from worker_groups import groups_file

    node.workerinput["groups_file"] = str(groups_file(node.config))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from worker_groups import GroupScheduling  # only the environments of `make test` have pytest-xdist

    return GroupScheduling(config, log) if config.getoption("dist") == "loadgroup" else None


@pytest.hookimpl(tryfirst=True)  # before the worker reports its tests
def pytest_collection_finish(session: pytest.Session) -> None:
    if is_worker(session.config):
        groups = {item.nodeid: group_of(item) for item in session.items}
        Path(session.config.workerinput["groups_file"]).write_text(json.dumps(groups))
    keep_the_collector_off()


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Path:
    """A folder that all workers share."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if is_worker(pytestconfig) else folder


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than there are cores: a fifth of the time, tests wait for processes that sleep or end.

    Those of `make test-quick`, which asks for `-n logical`, do not wait.
    """
    return usable_cores() + (config.getoption("numprocesses") == "auto")


def keep_the_collector_off() -> None:
    """Keeps the garbage collector off what stays until the end: all modules and tests.

    A generated trace has a hundred thousand small objects and no cycles, so collections are made rarer as well.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(400_000, 20, 100)
