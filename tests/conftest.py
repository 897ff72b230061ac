"""What the tests share: the repository's root on the path, each generated trace analyzed once."""

from __future__ import annotations

import getpass
import importlib.util
import os
import pickle
import signal
import sys
import tempfile
from pathlib import Path

import orjson
import pytest
from hypothesis import HealthCheck, settings

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent


def require_this_checkout() -> None:
    """`python -m pytest` finds traceopt/ in the current folder, but its sub-packages where they are installed from."""
    for package, folder in (("traceopt", "traceopt"), ("traceopt.analyzer", "analyzer")):
        found = importlib.util.find_spec(package)
        if found is None or found.origin is None or Path(found.origin).resolve().parent != ROOT / folder:
            where = "is not installed" if found is None else f"comes from {found.origin}"
            sys.exit(f"These are the tests of {ROOT}, but {package} {where}: run make test there.")


require_this_checkout()
# What `traceopt run` measures of this machine: once for all tests, and not where the user's own runs find it.
os.environ["XDG_CACHE_HOME"] = os.path.join(tempfile.gettempdir(), f"traceopt-tests-{getpass.getuser()}")
# For fixtures/, which is not installed, and for same_traces.py and sample.py, which tests of several folders use.
sys.path[:0] = [str(ROOT), str(HERE / "analyzer"), str(HERE / "reports")]

pytest.register_assert_rewrite("support")

from support.traces import FIXED, GENERATED, AnalyzedTrace, Example, GetExample, real_trace  # noqa: E402

from fixtures.generate import generate_ranks  # noqa: E402

pytest_plugins = ("browser_pages", "real_traces_marker", "scheduling")

# How long an example takes says more about the machine than about the code.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("any machine"), max_examples=20)  # of make test-quick
settings.load_profile("any machine")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A background job has SIGINT ignored, and its children inherit that. A handler they do not inherit: in a process
    # that the tests start, Ctrl-C does what it does by default, while the tests themselves still ignore it.
    signal.signal(signal.SIGINT, lambda *_: None)

LIGHT_TORCH = HERE / "light_torch"


@pytest.fixture(scope="session", autouse=True)
def light_torch() -> None:
    """For the trainings that tests start."""
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(LIGHT_TORCH), os.environ.get("PYTHONPATH")]))


@pytest.fixture(scope="session")
def example(shared_folder: Path) -> GetExample:
    """`example(scenario, fixed=False)`: rank 0 of a scenario of fixtures/, generated once, analyzed once a process."""
    folder = shared_folder / "examples"
    folder.mkdir(exist_ok=True)
    known: dict[tuple[str, bool], Example] = {}

    def get(scenario: str, fixed: bool = False) -> Example:
        key = (scenario, fixed)
        if key not in known:
            path = folder / f"{scenario}{FIXED if fixed else ''}.json"
            planted = path.with_suffix(".planted")
            if not planted.exists():
                trace = generate_ranks(scenario, fixed=fixed)[0]
                write_whole(path, orjson.dumps(trace.document))
                write_whole(planted, pickle.dumps(trace.planted))
            known[key] = Example(path, pickle.loads(planted.read_bytes()))  # noqa: S301 - our own
        return known[key]

    return get


@pytest.fixture
def trace(request: pytest.FixtureRequest, example: GetExample) -> AnalyzedTrace:
    """The one of a test that is marked `@over(...)` (support/traces.py)."""
    scenario = request.param.removesuffix(FIXED)
    return example(scenario, scenario != request.param) if scenario in GENERATED else real_trace(request.param)


def write_whole(path: Path, data: bytes) -> None:
    """Another worker sees all of the file or none of it."""
    part = path.with_name(f"{path.name}.{os.getpid()}")
    part.write_bytes(data)
    part.replace(path)
