"""Runs each kind of training of a script in its own process, so that slow imports happen only once."""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module


def run_forked(functions: dict[str, Callable[[], None]], kinds: Sequence[str], imports: Sequence[str] = ()) -> None:
    """Forks before anything is trained; `processes.json` then says which process ran which kind.

    `imports`: modules that several kinds use. They are imported once, without garbage collections. Later collections
    leave them alone: in a fork, each collection would copy all their pages.
    """
    gc.disable()
    for name in imports:
        import_module(name)
    gc.enable()
    gc.freeze()
    processes = {}
    for kind in kinds:
        print(kind, flush=True)
        child = os.fork()
        if child == 0:
            functions[kind]()
            sys.stdout.flush()
            os._exit(0)
        processes[kind] = child
        assert os.waitpid(child, 0)[1] == 0, kind
    with open("processes.json", "w") as file:
        json.dump(processes, file)
