"""Where the script constructs its DataLoaders, optimizers and the settings of its training framework.

The trace holds no frame of these calls: they happen before the recording.
"""

from __future__ import annotations

import os
import site
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from types import FrameType
from typing import Any

MOST_FRAMES = 64  # of one stack
MOST_STACKS = 3  # of one loader
MOST_SETTINGS = 20
_KEPT_AS = "_traceopt_built"


class Constructions:
    """Notes the call stack of each constructor.

    A stack is a list of frames, the caller of the constructor first, each named as in the trace: "train.py(97): main".
    """

    def __init__(self) -> None:
        self._settings: list[dict[str, Any]] = []
        self._wrappers: list[tuple[dict[str, Any], weakref.ref[Any]]] = []
        self._anomaly_mode: list[list[str]] = []
        self._loaders: dict[int, weakref.ref[Any]] = {}  # by the id of its dataset, the latest loader

    def optimizer(self, optimizer: Any) -> None:
        with suppress(Exception):  # an object of a class with unusual behavior is left out
            setattr(optimizer, _KEPT_AS, [stack_around(optimizer)])

    def loader(self, loader: Any) -> None:
        """Frameworks replace the script's loader with their own of the same dataset: it keeps the earlier stacks."""
        with suppress(Exception):
            earlier = self._loaders.get(id(loader.dataset), _nothing)()
            if earlier is not None and earlier.dataset is not loader.dataset:
                earlier = None  # the id of a dataset that no longer exists
            stacks = [stack_around(loader), *built(earlier)]
            setattr(loader, _KEPT_AS, stacks[:MOST_STACKS])
            self._loaders[id(loader.dataset)] = weakref.ref(loader)

    def framework(self, name: str, settings: Any) -> None:
        """`name` is the package of the framework, `settings` the object that the script configures it with."""
        with suppress(Exception):
            if len(self._settings) < MOST_SETTINGS:
                row = {"framework": name, "class": type(settings).__name__, "built": [stack_around(settings)]}
                self._settings.append(row)

    def ddp(self, module: Any) -> None:
        """`module`: a DistributedDataParallel."""
        with suppress(Exception):
            if len(self._wrappers) < MOST_SETTINGS:
                self._wrappers.append(({"built": [stack_around(module)]}, weakref.ref(module)))

    def anomaly_mode(self, is_on: Callable[[], bool], switch: Any) -> None:
        """The first set_detect_anomaly that turned the mode on."""
        with suppress(Exception):
            if not self._anomaly_mode and is_on():
                self._anomaly_mode = [stack_around(switch)]

    def document(self) -> dict[str, Any]:
        """What was noted, in order of construction."""
        for row, reference in self._wrappers:
            module = reference()
            if module is not None:
                with suppress(Exception):
                    row.update(describe_ddp(module))
        ddp = [row for row, _ in self._wrappers]
        return {"frameworks": self._settings, "ddp": ddp, "anomaly_mode_set": self._anomaly_mode}


def describe_ddp(module: Any) -> dict[str, Any]:
    """Whether it looks for parameters without a gradient, and how many bytes of them it saw in the last iteration that
    it logged. `unused_bytes` is null if they were not always the same.
    """
    looks = bool(module.find_unused_parameters) and not bool(module.static_graph)
    logged = module.logger._get_ddp_logging_data().ints_map
    always_same = module.reducer._ddp_graph_static()
    return {"looks_for_unused": looks, "unused_bytes": logged.get("unused_parameter_size") if always_same else None}


def built(thing: Any) -> list[list[str]]:
    """The stacks of an object's construction, the latest first; empty if it was not noted."""
    return list(getattr(thing, _KEPT_AS, ()))


def stack_around(thing: Any) -> list[str]:
    """The current call stack, without the frames of the object's own constructors and of wrappers around them."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _first_argument(frame) is not thing:
        frame = frame.f_back  # the code of this module
    while frame is not None and _first_argument(frame) is thing:
        frame = frame.f_back
    frames: list[str] = []
    while frame is not None and len(frames) < MOST_FRAMES:
        code = frame.f_code
        frames.append(f"{name_in_trace(code.co_filename)}({frame.f_lineno}): {code.co_name}")
        frame = frame.f_back
    return frames


def _first_argument(frame: FrameType) -> Any:
    code = frame.f_code
    if not code.co_varnames or (not code.co_argcount and not code.co_flags & 0x04):  # 0x04: it has *args
        return None
    # After the named arguments, *args follows the keyword-only ones.
    first = frame.f_locals.get(code.co_varnames[0 if code.co_argcount else code.co_kwonlyargcount])
    return first[0] if not code.co_argcount and isinstance(first, tuple) and first else first


def name_in_trace(file: str) -> str:
    """torch's profiler cuts off the first of these folders that a file is in, in reverse alphabetical order."""
    for folder in _folders(tuple(sys.path)):
        if file.startswith(folder):
            return file[len(folder) :]
    return file


@lru_cache(maxsize=1)
def _folders(path: tuple[str, ...]) -> list[str]:
    installed = [*site.getsitepackages(), site.getuserbase(), site.getusersitepackages()]
    return [one + os.sep for one in sorted({os.path.abspath(folder) for folder in (*path, *installed)}, reverse=True)]


def _nothing() -> None:
    return None
