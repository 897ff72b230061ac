"""The contents of a trace's key `traceopt`, except what the inventory and the loaders add.

{
  "cycle": {"name", "wait", "warmup", "active", "record_shapes", "profile_memory", "with_stack",
            "first_step", "steps", "partial_steps": [N], "evaluations": [I], "closed_early": why or null},
  "schema": 1, "torch_version", "script", "pid", "rank", "step_rule",
  "environment": {...}, "memory": {"before": {...}, "after": {...}},
  "models": [...], "optimizers": [...], "loaders": [...], "loader_workers": [...], "updates",
  "subnormals": what values/subnormals.py says, or null, "padding": what values/padding.py says,
  "mostly_zero": what values/mostly_zero.py says, "opened_files": what opened_files.py says,
  "frameworks": [{"framework", "class", "built"}], "ddp": [{"looks_for_unused", "unused_bytes", "built"}],
  "anomaly_mode_set": call stacks of the set_detect_anomaly that turned it on, as in `built`,
  "cleared_gradients": [{"backward", "of", "runs", "cleared", "shapes": [[...], ...], "built"}],
  "call_lines": {"count", "rows": [...], "lines": [...]},
  "dynamo": {"stats", "frames", "graph_break", "unimplemented", "inductor": counters,
             "breaks": [{"reason", "stack": [[file, line, function]], "count"}],
             "compilations": [{"id", metrics}], "graphs_recorded": {"recorded", "again"} or null},
  "gc": {"collections", "us", "full_collections", "full_us", "frozen_objects"},
  "failure": {"exit_code" or null, "signal" or null, "steps"},
  "checkpoint": {"saves", "us"}, "skipped_updates", "notes": [...],
  "ledger": {"step_us": [...], "fetch_us": [...], "gc_us": [...], "eval_us": [...], "saves": [[N, us], ...],
             "until_backward_us": [...], "page_faults": [...], "samples": [...], "elements": [...],
             "evaluations": [{"file", "line", "function", "count", "us"}], "saved_at": [the same],
             "long_steps": [the same], "long_waits": [[N, us], ...],
             "core_wait": {"us", "cpu_us", "wall_us"}, "windows": [{"cycle", "warmup_from", "from", "until"}],
             "drains": [[N, us], ...], "later_steps", "later_us", "later_eval_us", "own_us",
             "end": {"us", "eval_us", "save_us", "early"} or null},
  "start_up": what start_up/start_up.py says, or null,
  "step_memory": {"steps": [N, ...], "process_bytes": [...], "device_bytes": [...], "device_peak_bytes": [...]} or null
}

Times are microseconds of wall time; step N of the ledger is ProfilerStep#N; `until` is exclusive. `gc_us` is only there
if the collector ran, `eval_us` only if the script evaluated; `step_us` includes both. `fetch_us` and `gc_us` leave out
what happens in evaluations. `evaluations` and `saved_at` are the lines of the script at which evaluations began and
torch.save was called, `long_steps` those at which a step ended that took several times as long as the one before.
`environment.available_memory_bytes` is the memory of the machine or container that programs could still get.
`until_backward_us` is the time from the start of a step to its first backward pass, without evaluations and saves; 0 if
the step has none. In data-parallel training the ranks do not wait for each other before it.
`page_faults` counts the pages of memory that the system provided to the process, without traceopt's own.
`samples` and `elements` (of the largest tensor) are those of the batches that each step fetched, only there if they
differ from step to step.
`long_waits` is how long the training thread had no core in such a step, and since the one before.
`drains`: before step N the host waited so long until the GPU had done the work of the steps before, so before each
warm-up, the first recorded step and what follows the last one; only there if a GPU is used.
`end` is what follows the last step, null before the process ends; it is `early` after --stop-after or an exception.
`partial_steps` have a range in the trace that is not the whole step, or in which the script evaluated for an unknown
time. The ranges "traceopt: evaluation mode I" of the cycle's `evaluations` are evaluations. `core_wait` describes the
training thread during `wall_us`: `us` is how long it was ready but had no free core, `cpu_us` is how long it ran.
`updates` counts backward passes and optimizer updates, of the run and of each loader whose batches fed them.

`step_memory` has the memory at the end of some steps, recorded or not: as many as cost 0.1 % of the run, and at most
4,096. A value is null if it is not known, as for a process that does not use its GPU.

Each row of `cleared_gradients` is about one optimizer and the backward pass number `backward`, from 0, of the `of` that
a step usually has. In `runs` of the run, `cleared` gradients were set to None before the optimizer read them, while
another optimizer reads those of the same pass.

A model is `updated_by_hand` if weights that have gradients, but belong to no optimizer, change all the same; null if
it has none, or that was not seen.

The launcher adds `failure` after a command that failed: `steps` is how many it completed.

An optimizer, a loader and a framework's settings have `built`: call stacks of the constructor, the caller first. A
loader has those of the earlier loaders of its dataset, too, the latest first.
"""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from typing import Any

from ..settings import Cycle
from .compiler.dynamo_notes import describe_dynamo
from .environment import rank
from .step_ledger import LedgerWriter

SCHEMA = 1


def of_cycle(torch: Any, cycle: Cycle, part: dict[str, Any]) -> dict[str, Any]:
    """What is known about one trace; `cycle` comes first, so that a reader finds it without parsing the rest."""
    return {
        "cycle": asdict(cycle) | part,
        "schema": SCHEMA,
        "torch_version": str(torch.__version__),
        "script": sys.argv[0] if sys.argv else None,
        "pid": os.getpid(),
        "rank": rank(torch),
    }


def of_run(ledger: LedgerWriter, notes: list[str]) -> dict[str, Any]:
    """What is only complete at the end of the run."""
    return {
        "dynamo": describe_dynamo(),
        "gc": ledger.collections(),
        "checkpoint": {"saves": ledger.save_count, "us": round(ledger.save_us, 1)},
        "skipped_updates": ledger.skipped_updates,
        "notes": notes,
        "ledger": ledger.document(),
    }
