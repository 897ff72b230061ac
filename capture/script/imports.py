"""Calls back when a module has finished loading, without importing it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

Callback = Callable[[ModuleType], None]

_waiting: dict[str, Callback] = {}


def when_imported(name: str, callback: Callback) -> None:
    """Calls `callback(module)` right after the module is loaded; immediately if it already is."""
    module = sys.modules.get(name)
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        callback(module)
        return
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)  # a class with a static method is sufficient
    _waiting[name] = callback


class _Finder:
    """Lets the other finders find the module, then wraps exec_module of that loader."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in _waiting:
            return None
        spec = found_by_others(name, path, target)
        if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
            _wrap(spec.loader, name)
        return spec


def found_by_others(
    name: str, path: Sequence[str] | None, target: ModuleType | None, except_for: object = None
) -> ModuleSpec | None:
    """The spec that the finders of the interpreter and the script find."""
    for finder in sys.meta_path:
        if finder in (_Finder, except_for) or not hasattr(finder, "find_spec"):
            continue
        spec = finder.find_spec(name, path, target)
        if spec is not None:
            return spec
    return None


def _wrap(loader: object, name: str) -> None:
    load: Callback = loader.exec_module  # type: ignore[attr-defined]

    def exec_module(module: ModuleType) -> None:
        load(module)
        loader.__dict__.pop("exec_module", None)
        callback = _waiting.pop(name, None)
        if callback is not None:
            callback(module)

    try:
        loader.exec_module = exec_module  # type: ignore[attr-defined]
    except AttributeError:  # a loader with slots: the module stays as it is
        return
