"""Starts the capture agent in every Python process below `traceopt run`, then runs the sitecustomize that it hides.

site.py imports this file because the launcher put its folder first in PYTHONPATH. It must never raise, and must not
import anything that the script could notice. It runs in whatever interpreter the user's command starts.
"""

import os
import sys

OLDEST_PYTHON = (3, 10)


def _start():
    # type: () -> None
    here = os.path.dirname(os.path.abspath(__file__))
    real = os.path.realpath(here)
    # PYTHONPATH keeps this folder, so that child processes are recorded too.
    sys.path[:] = [entry for entry in sys.path if not entry or os.path.realpath(entry) != real]
    control = os.environ.get("TRACEOPT_CONTROL")
    if control and os.path.isdir(control):
        try:
            if sys.version_info < OLDEST_PYTHON:
                raise RuntimeError("Python {}.{} is too old, traceopt needs 3.10".format(*sys.version_info))
            _install_agent(os.path.dirname(here), control)
        except Exception as error:
            _write(os.path.join(control, "failed"), type(error).__name__ + ": " + str(error))
    _run_shadowed()


def _install_agent(folder, control):
    # type: (str, str) -> None
    package = type(sys)("_traceopt_capture")
    package.__path__ = [folder]
    sys.modules["_traceopt_capture"] = package
    from _traceopt_capture.agent import install  # type: ignore

    install(control)


def _run_shadowed():
    # type: () -> None
    """Imports the sitecustomize of the user or the distribution, as site.py would have done."""
    ours = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # type: ignore  # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        if ours is not None:  # the import system removes the name when this module returns, so it must be there
            sys.modules.setdefault("sitecustomize", ours)


def _write(path, text):
    # type: (str, str) -> None
    try:
        with open(path, "w") as file:
            file.write(text)
    except OSError:
        pass


_start()
