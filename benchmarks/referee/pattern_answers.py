"""What torch's own patterns find: `python pattern_answers.py FOLDER...` runs the script that each folder names.

They read a running profiler, never a trace. As favorable as possible: the pattern whose events take longest comes
first, and the pattern about TF32, which matches every matmul on a CPU, is left out there.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CAUSES = (
    ("ExtraCUDACopyPattern", "copies"),
    ("FP32MatMulPattern", "precision"),
    ("OptimizerSingleTensorPattern", "optimizer"),
    ("SynchronizedDataLoaderPattern", "input"),
    ("GradNotSetToNonePattern", "optimizer"),
    ("Conv2dBiasFollowedByBatchNorm2dPattern", "fusion"),
    ("MatMulDimInFP16Pattern", "shapes"),
    ("ForLoopIndexingPattern", "python"),
)


def found_in(prof: object) -> list[tuple[str, list[str]]]:
    """The cause of each pattern that matches, and its places as file:line, the longest total first."""
    import torch
    from torch.profiler import _pattern_matcher as patterns

    found = []
    for name, cause in CAUSES:
        if name == "FP32MatMulPattern" and not torch.cuda.is_available():
            continue
        events = list(_matched(getattr(patterns, name)(prof)))
        places = list(dict.fromkeys(patterns.source_code_location(event) for event in events))
        if events:
            found.append((sum(event.duration_time_ns for event in events), cause, places))
    return [(cause, places) for _, cause, places in sorted(found, key=lambda one: -one[0])]


def _matched(pattern: Any) -> Iterator[Any]:
    """As `pattern.matched_events()`, which fails at an event whose name torch has already freed."""
    for event in () if pattern.skip else pattern.eventTreeTraversal():
        with contextlib.suppress(UnicodeDecodeError):
            if pattern.match(event):
                yield event


def run(script: str, arguments: list[str]) -> None:
    """Runs the script under the profiler, and prints the answer."""
    from torch.profiler import profile

    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).parent))
    with (
        contextlib.redirect_stdout(sys.stderr),
        profile(record_shapes=True, with_stack=True, with_modules=True) as prof,
    ):
        runpy.run_path(script, run_name="__main__")
    began = sum(os.times()[:4])
    found = found_in(prof)
    answer = {
        "causes": [cause for cause, _ in found],
        "places": [places for _, places in found],
        "seconds": sum(os.times()[:4]) - began,
    }
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    if sys.argv[1].endswith(".py"):
        run(sys.argv[1], sys.argv[2:])
        sys.exit()
    for folder in sys.argv[1:]:
        words = json.loads((Path(folder) / "script.json").read_text())
        done = subprocess.run([sys.executable, __file__, *words], capture_output=True, text=True)
        error = None if done.returncode == 0 else (done.stderr.strip().splitlines() or ["no output"])[-1][:200]
        print(done.stdout.strip().splitlines()[-1] if error is None else json.dumps({"error": error}), flush=True)
