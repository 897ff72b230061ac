"""Runs each kind of training of a script in its own process, so that slow imports happen only once."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence


def run_forked(functions: dict[str, Callable[[], None]], kinds: Sequence[str]) -> None:
    """Forks before anything is trained; `processes.json` then says which process ran which kind."""
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
