"""traceopt reads PyTorch profiler traces, finds the bottleneck, and says how to fix it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from traceopt.api import analyze as analyze
    from traceopt.api import find_runs as find_runs
    from traceopt.integrations.notebook import load_ipython_extension as load_ipython_extension
    from traceopt.profiling import profile as profile
    from traceopt.run_comparison import compare as compare

from traceopt.version import __version__ as __version__

# Where the public functions are. They are imported on first use, because `import traceopt` may run in a training job.
_HOMES = {
    "analyze": "traceopt.api",
    "compare": "traceopt.run_comparison",
    "find_runs": "traceopt.api",
    "load_ipython_extension": "traceopt.integrations.notebook",
    "profile": "traceopt.profiling",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'traceopt' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*_HOMES, "__version__"])
