"""traceopt reads PyTorch profiler traces and says what the bottleneck is and how to fix it."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from traceopt.comparison.compare import compare as compare
    from traceopt.recording import profile as profile

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "profile":
        from traceopt.recording import profile

        return profile
    if name == "compare":
        from traceopt.comparison.compare import compare

        return compare
    raise AttributeError(f"module 'traceopt' has no attribute {name!r}")
