"""Whether both sides ran in the same way, and what runs differently."""

from __future__ import annotations

import re
from collections.abc import Sequence

from traceopt.analyzer.vocabulary.causes.table import DATA_LOADING
from traceopt.analyzer.vocabulary.kernels.kernel_labels import short_name
from traceopt.document.run_section import LOADER_WORKERS
from traceopt.result.comparison import RowChange
from traceopt.result.document import Result
from traceopt.result.sections.work_rows import Gemm
from traceopt.result.words.quantities import count, ms, percent
from traceopt.result.words.vendors import device_name

SAME_CALLS = 0.02  # smallest change in the number of calls to name, as a share of the larger
NOTABLE_SHARE = 0.005  # of the step: smaller changes are not explained
EXPLAINED = 4  # sentences
OTHER_GRAPHS = 0.05  # of the GPU's work: smaller differences leave nearly all operators where they were


def other_machines(base: Result, head: Result) -> list[str]:
    """How the machines differ, for example "devices (A100 and H100)"."""
    devices = _differ("devices", device_of(base), device_of(head)) or _differ("devices", *map(_worked_on, (base, head)))
    return [*devices, *_differ("numbers of ranks", *map(_ranks, (base, head)))]


def _ranks(result: Result) -> str | None:
    """A trace without a job of several processes and without collectives is of one process."""
    if result.run.world_size is None:
        return None if result.communication.collectives or not result.breakdown else "1"
    return str(result.run.world_size)


def _worked_on(result: Result) -> str | None:
    """None without a breakdown of the step."""
    if not result.breakdown:
        return None
    return "the CPU" if result.gpu.busy_share is None else "a GPU"


def other_types(base: Result, head: Result) -> list[str]:
    """How the precision differs. It is a change that people make to save time, so the times are still compared."""
    return _differ("types of most matmuls", base.efficiency.peak_dtype, head.efficiency.peak_dtype)


def unknown_work(base: Result, head: Result) -> str:
    """Says that nothing shows whether both sides did the same amount of work."""
    unknown = [name for name, side in (("BASE", base), ("HEAD", head)) if not side.efficiency.flops_per_step]
    sides = " and of ".join(unknown or ("BASE", "HEAD"))
    return (
        f"The amount of work per step of {sides} is not known, so a larger batch or model would not be noticed. "
        "Record shapes to check it."
    )


def unknown_ranks(base: Result, head: Result) -> list[str]:
    """Says that only one side names the ranks of its job."""
    unknown = [name for name, side in (("BASE", base), ("HEAD", head)) if side.breakdown and _ranks(side) is None]
    return [f"The number of ranks of {unknown[0]} is not known."] if len(unknown) == 1 else []


def _differ(what: str, one: str | None, other: str | None) -> list[str]:
    return [f"{what} ({one} and {other})"] if one and other and one != other else []


def explanation(base: Result, head: Result, ops: Sequence[RowChange], kernels: Sequence[RowChange]) -> list[str]:
    """What runs differently than before: loader workers, CUDA graphs, shapes, kernels, numbers of calls."""
    found = [*_new_workers(base, head), *_new_shapes(base, head), *_new_kernels(base, head, kernels), *_new_calls(ops)]
    least_us = NOTABLE_SHARE * max(base.step.typical_us or 0.0, head.step.typical_us or 0.0)
    notable = sorted((pair for pair in found if pair[0] >= least_us), key=lambda pair: -pair[0])
    return [*_new_graphs(base, head), *(sentence for _, sentence in notable)][:EXPLAINED]


def other_graphs(base: Result, head: Result) -> bool:
    """Whether CUDA graphs launch another part of the work. The operators of a graph run only when it is captured."""
    before, after = (result.gpu.graph_share or 0.0 for result in (base, head))
    return abs(after - before) >= OTHER_GRAPHS


def _new_graphs(base: Result, head: Result) -> list[str]:
    if not other_graphs(base, head):
        return []
    before, after = (percent(result.gpu.graph_share or 0.0) for result in (base, head))
    return [
        f"CUDA graphs launch {after} instead of {before} of the GPU's work. Operators in a graph do not run again, so "
        "operators are not compared."
    ]


def device_of(result: Result) -> str | None:
    device = result.run.device
    return None if device is None else device_name(device.name, device.vendor)


def _new_workers(base: Result, head: Result) -> list[tuple[float, str]]:
    """Another number of loader workers, and how the wait for data changed."""
    sides = ({setting.name: setting.value for setting in result.run.settings} for result in (base, head))
    before, after = (settings.get(LOADER_WORKERS) for settings in sides)
    if before is None or after is None or before == after:
        return []
    waits = [sum(p.us_per_step for p in result.breakdown if p.name == DATA_LOADING.key) for result in (base, head)]
    change_us = waits[1] - waits[0]
    waiting = f"waiting for data {_signed(change_us)}"
    unseen = ""
    if "0" in (before, after):
        moved = "gone" if before == "0" else "new"
        unseen = f" The trace does not show what workers do, so operators of loading count as {moved}."
    return [(abs(change_us), f"{LOADER_WORKERS}: {before} in BASE, {after} in HEAD ({waiting}).{unseen}")]


def _new_calls(ops: Sequence[RowChange]) -> list[tuple[float, str]]:
    found = []
    for row in ops:
        before, after = row.base_calls or 0.0, row.head_calls or 0.0
        explains = (after - before) * row.change_us > 0  # fewer calls that take longer are no reason
        if explains and abs(after - before) > SAME_CALLS * max(before, after):
            calls = f"{count(after)} instead of {count(before)} times per step"
            verb = "launches GPU work" if row.counted == "launches" else "runs"
            found.append((abs(row.change_us), f"{row.name} {verb} {calls} ({_signed(row.change_us)})."))
    return found


def _new_kernels(base: Result, head: Result, kernels: Sequence[RowChange]) -> list[tuple[float, str]]:
    """For each operator, the largest of its new kernels in place of the largest that is gone."""
    operators = {kernel.name: kernel.op for result in (base, head) for kernel in result.kernels if kernel.op}
    largest: dict[tuple[str, str | None, str], RowChange] = {}
    for row in kernels:
        if row.status in ("appeared", "vanished") and row.name in operators:
            largest.setdefault((operators[row.name], _direction(row.name), row.status), row)
    found = []
    for (op, direction, status), new in largest.items():
        gone = largest.get((op, direction, "vanished"))
        if status == "appeared" and gone is not None:
            change_us = (new.head_us or 0.0) - (gone.base_us or 0.0)
            names = f"{short_name(new.name)} instead of {short_name(gone.name)}"
            found.append((abs(change_us), f"{op} runs {names} ({_signed(change_us)})."))
    return found


def _direction(name: str) -> str | None:
    """ "HtoD" of a copy, which replaces no copy of another direction; None for a kernel."""
    copy = re.search(r"\b[HDPA]to[HDPA]\b", name)
    return copy and copy[0]


def _new_shapes(base: Result, head: Result) -> list[tuple[float, str]]:
    """The largest matmul shape that only the base has, and the largest that only the head has, of each operator."""
    before, after = ({(g.op, g.m, g.n, g.k, g.batch, g.dtype): g for g in r.gemms} for r in (base, head))
    gone = _largest([gemm for shape, gemm in before.items() if shape not in after])
    new = _largest([gemm for shape, gemm in after.items() if shape not in before])
    return [
        (
            abs(new[op].us_per_step - gone[op].us_per_step),
            f"{op}: {_shape(new[op])} instead of {_shape(gone[op])} "
            f"({_signed(new[op].us_per_step - gone[op].us_per_step)}).",
        )
        for op in gone
        if op in new
    ]


def _largest(gemms: Sequence[Gemm]) -> dict[str, Gemm]:
    """By operator, the one that takes longest."""
    return {gemm.op: gemm for gemm in sorted(gemms, key=lambda gemm: gemm.us_per_step)}


def _shape(gemm: Gemm) -> str:
    batch = f"{gemm.batch} x " if gemm.batch > 1 else ""
    return f"{batch}M={gemm.m}, N={gemm.n}, K={gemm.k} in {gemm.dtype}"


def _signed(us: float) -> str:
    return f"{'+' if us >= 0 else '−'}{ms(abs(us) * 1e3)}"
