"""A test says what to run with `@pytest.mark.run("loops.py", "gan", options=("--preset", "quick"))`.

The fixture `run` is that run, `bare` is the same script without traceopt. The commands of all selected tests are
started with the first of them, so that the processes run in parallel.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from runs import Run, Runner


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "run(*words, options=()): a command to run under traceopt")


@pytest.fixture(scope="session")
def runner(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    runner = Runner(tmp_path_factory.mktemp("runs"))
    for item in request.session.items:
        mark = item.get_closest_marker("run")
        if mark is not None:
            names = item.fixturenames if isinstance(item, pytest.Function) else []
            if "run" in names:
                runner.submit(*mark.args, options=_options(mark))
            if "bare" in names:
                runner.submit(*mark.args, bare=True)
    yield runner
    runner.close()


@pytest.fixture
def run(request: pytest.FixtureRequest, runner: Runner) -> Run:
    mark = _marker(request)
    return runner.submit(*mark.args, options=_options(mark)).result()


@pytest.fixture
def bare(request: pytest.FixtureRequest, runner: Runner) -> Run:
    return runner.submit(*_marker(request).args, bare=True).result()


def _marker(request: pytest.FixtureRequest) -> pytest.Mark:
    mark = request.node.get_closest_marker("run")
    assert isinstance(mark, pytest.Mark)
    return mark


def _options(mark: pytest.Mark) -> tuple[str, ...]:
    """Most tests are about the recording, so they run without the analysis unless they ask for it."""
    options: tuple[str, ...] = mark.kwargs.get("options", ())
    return tuple(o for o in options if o != "--analyze") + (() if "--analyze" in options else ("--no-analyze",))
