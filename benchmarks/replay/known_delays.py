#!/usr/bin/env python3
"""Records a small training loop on the CPU with and without a known delay, and removes the delay again in the replay.

python benchmarks/replay/known_delays.py    # adds trials to known_delays.json; replay_accuracy.py writes the page

A trial records the loop without the delay, with it, and without it again. It counts if the loop waited for a core for
at most 2 % of the time, and the two recordings without the delay differ by at most 5 %. The delays take turns.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

if __name__ == "__main__":  # run as a script: the packages are two folders above
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from traceopt.what_if import what_if

DATA = Path(__file__).with_suffix(".json")
TRIALS = 9  # of each delay
ATTEMPTS = 20  # for each trial
MOST_READY_SHARE = 0.02  # of the time, in which the loop could have run but had no core
MOST_NOISE = 0.05
BEFORE, STEPS = 4, 10  # steps that are not recorded, and those that are
MARK = "known_delay"
SLEEP_S = 0.004

Delay = Callable[[Any], None]
Trial = dict[str, float]


def nothing(_: Any) -> None:
    """The loop without a delay; marked as well, so that all recordings hold the same events."""


def sleep(_: Any) -> None:
    time.sleep(SLEEP_S)


def wait(loss: Any) -> None:
    """As `.item()` on a GPU: the host waits for a result that is computed elsewhere."""
    with ThreadPoolExecutor(1) as other:
        other.submit(time.sleep, SLEEP_S).result()
    loss.item()


def printing(loss: Any) -> None:
    out = io.StringIO()
    for _ in range(5):
        print(loss.detach().expand(30), file=out)


DELAYS: dict[str, Delay] = {"sleep": sleep, "wait": wait, "print": printing}


def recorded(delay: Delay, path: Path) -> float:
    """Records some steps of the loop. Returns the share of the time in which the loop had to wait for a core."""
    import torch
    from torch import nn
    from torch.profiler import ProfilerActivity, profile, record_function, schedule

    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(256, 256), nn.GELU()) for _ in range(6)))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    batch = torch.randn(256, 256)
    began, ready = time.perf_counter_ns(), _ready_ns()
    with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=2, warmup=2, active=STEPS)) as profiler:
        for _ in range(BEFORE + STEPS):
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
            with record_function(MARK):
                delay(loss)
            profiler.step()
    share = (_ready_ns() - ready) / (time.perf_counter_ns() - began)
    profiler.export_chrome_trace(str(path))
    return share


def _ready_ns() -> int:
    """For how long this thread could have run but had no core (Linux)."""
    return int(Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1])


def trial(delay: Delay, folder: Path) -> tuple[Trial, bool]:
    """Steps in us: with the delay, predicted without it, and measured without it before and after. And whether the
    machine was quiet.
    """
    shares, steps = [], []
    for one in (nothing, delay, nothing):
        shares.append(recorded(one, folder / "trace.json"))
        result = what_if(str(folder / "trace.json"), scales=[(f"host~{MARK}", 0.0)])
        steps.append(result)
    first, delayed, again = steps
    values = {
        "before": delayed.before_us,
        "predicted": delayed.after_us,
        "measured": first.before_us,
        "measured_again": again.before_us,
    }
    quiet = max(shares) <= MOST_READY_SHARE and noise(values) <= MOST_NOISE
    return {name: round(us, 1) for name, us in values.items()}, quiet


def noise(one: Trial) -> float:
    """How far the two recordings without a delay differ."""
    return abs(one["measured_again"] / one["measured"] - 1)


def error(one: Trial) -> float:
    """The error of the predicted step."""
    return one["predicted"] / ((one["measured"] + one["measured_again"]) / 2) - 1


def record(path: Path, trials: int) -> None:
    """Adds trials to the file until it has `trials` of each delay that were not disturbed."""
    import torch

    torch.set_num_threads(1)
    data = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"discarded": 0, "trials": {}}
    data["torch"] = torch.__version__.partition("+")[0]
    for _ in range(ATTEMPTS * trials):
        name = min(DELAYS, key=lambda name: len(data["trials"].get(name, [])))
        if len(data["trials"].get(name, [])) >= trials:
            break
        with tempfile.TemporaryDirectory() as folder:
            values, quiet = trial(DELAYS[name], Path(folder))
        if quiet:
            data["trials"].setdefault(name, []).append(values)
        else:
            data["discarded"] += 1
        path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def section(data: dict[str, Any]) -> list[str]:
    """Part of docs/accuracy.md."""
    rows = []
    for name, trials in data["trials"].items():
        usual = [median(one[key] for one in trials) / 1e3 for key in ("before", "predicted", "measured")]
        errors = sorted((error(one) for one in trials), key=abs)
        rows.append(
            f"| {name} | {len(trials)} | {' | '.join(f'{ms:.2f}' for ms in usual)} | {median(errors):+.1%} "
            f"| {errors[-1]:+.1%} | {median(map(noise, trials)):.1%} |"
        )
    return [
        "| delay | trials | step with it | predicted without | measured without | error | largest | noise |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        *rows,
        "",
        f"Times are in milliseconds, on torch {data['torch']}; errors are of the step time, medians over the trials.",
        "Noise is how far two recordings without the delay differ. "
        f"{data['discarded']} disturbed trials were discarded.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=TRIALS, help="of each delay, in the end (default: %(default)s)")
    record(DATA, parser.parse_args().trials)


if __name__ == "__main__":
    main()
