"""A test says what to run with `@pytest.mark.run("loops.py", "gan", options=("--preset", "quick"))`.

The fixture `run` is that run, `bare` is the same script without traceopt. Tests with the same command share one run.
"""

from __future__ import annotations

import pytest
from runs import Run, Runner


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "run(*words, options=()): a command to run under traceopt")


@pytest.fixture(scope="session")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    return Runner(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def run(request: pytest.FixtureRequest, runner: Runner) -> Run:
    mark = _marker(request)
    return runner.run(*mark.args, options=_options(mark))


@pytest.fixture
def bare(request: pytest.FixtureRequest, runner: Runner) -> Run:
    return runner.run(*_marker(request).args, bare=True)


def _marker(request: pytest.FixtureRequest) -> pytest.Mark:
    mark = request.node.get_closest_marker("run")
    assert isinstance(mark, pytest.Mark)
    return mark


def _options(mark: pytest.Mark) -> tuple[str, ...]:
    """Most tests are about the recording, so they run without the analysis unless they ask for it."""
    options: tuple[str, ...] = mark.kwargs.get("options", ())
    return tuple(o for o in options if o != "--analyze") + (() if "--analyze" in options else ("--no-analyze",))
