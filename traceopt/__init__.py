"""traceopt reads PyTorch profiler traces and says what the bottleneck is and how to fix it."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from traceopt.api import analyze as analyze
    from traceopt.recording import profile as profile

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "analyze":
        from traceopt.api import analyze

        return analyze
    if name == "profile":
        from traceopt.recording import profile

        return profile
    raise AttributeError(f"module 'traceopt' has no attribute {name!r}")
