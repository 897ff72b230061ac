"""Times two ways of the same work in turn, on a GPU or a CPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median, quantiles
from typing import Any

from traceopt.capture.launch.measure_cpu import core_wait_s
from traceopt.measuring.work import Work, prepare
from traceopt.result.experiments import Compared, Comparison, Experiment

SECONDS, MOST_SECONDS = 0.3, 3.0  # for the rounds of a comparison, after the warm-up
LEAST_ROUNDS, MOST_ROUNDS = 5, 200
MOST_WAIT_SHARE = 0.05  # of a round on a CPU: one whose threads waited longer for a core does not count
WARM_UP = 2
SHORT_NS = 10_000_000  # the time of shorter work depends on what ran before it

Timer = Callable[[Work], float | None]  # ns of one repetition; None if it was disturbed


class DisturbedError(Exception):
    """Other programs held the cores in nearly all rounds."""


def compare(torch: Any, device: str, comparison: Comparison) -> Compared:
    """Raises DisturbedError, and what torch raises if the device cannot do the work."""
    rounds = _rounds(torch, device, (comparison.before, comparison.after))
    ratios = [before / after for before, after in rounds]
    low, middle, high = quantiles(ratios, n=4)
    before_ns = median(before for before, _ in rounds)
    return Compared(comparison, before_ns, before_ns / middle, min(1.0, (high - low) / 2 / middle))


def time_of(torch: Any, device: str, experiment: Experiment) -> float:
    """What the work takes once, in ns. Raises as `compare` does."""
    return median(ns for (ns,) in _rounds(torch, device, (experiment,)))


def _rounds(torch: Any, device: str, experiments: Sequence[Experiment]) -> list[tuple[float, ...]]:
    """In each round, all of them run in turn."""
    works = [prepare(torch, device, experiment) for experiment in experiments]
    timer = _on_gpu(torch) if device.startswith("cuda") else _on_cpu
    for work in works:
        for _ in range(WARM_UP):
            timer(work)
    rounds: list[tuple[float, ...]] = []
    began = time.perf_counter()
    while len(rounds) < MOST_ROUNDS:
        passed_s = time.perf_counter() - began
        if passed_s >= MOST_SECONDS or (passed_s >= SECONDS and len(rounds) >= LEAST_ROUNDS):
            break
        times = [_settled(timer, work) for work in works]
        undisturbed = tuple(ns for ns in times if ns is not None)
        if len(undisturbed) == len(works):
            rounds.append(undisturbed)
    if len(rounds) < LEAST_ROUNDS:
        raise DisturbedError(f"only {len(rounds)} rounds were undisturbed")
    return rounds


def _settled(timer: Timer, work: Work) -> float | None:
    """Short work is timed again: at first it finds caches and the heap as the other work left them."""
    took_ns = timer(work)
    return timer(work) if took_ns is not None and took_ns < SHORT_NS else took_ns


def _on_cpu(work: Work) -> float | None:
    waited_s, start = core_wait_s(), time.perf_counter_ns()
    work()
    took_ns = time.perf_counter_ns() - start
    return None if core_wait_s() - waited_s > MOST_WAIT_SHARE * took_ns * 1e-9 else float(took_ns)


def _on_gpu(torch: Any) -> Timer:
    """By events on the stream: the launch is not counted."""

    def timer(work: Work) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e6

    return timer
