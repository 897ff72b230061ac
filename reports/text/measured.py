"""The text output of `traceopt measure`: what was compared, and the savings before and after."""

from __future__ import annotations

from traceopt.reports.words import safe_text
from traceopt.result.document import Result
from traceopt.result.experiments import (
    AllPairs,
    Attention,
    Convolution,
    Experiment,
    Lookup,
    Matmul,
    OptimizerStep,
    Rates,
    RowGradient,
    VocabularyLoss,
)
from traceopt.result.finding import Saving
from traceopt.result.words import quantities


def render_measured(rates: Rates, asked: int, before: Result, after: Result, path: str) -> str:
    """A line for each comparison, then one for each saving that they change. `asked`: how many comparisons."""
    lines = [f"Measured on {safe_text.clean(rates.device.name)}:", ""]
    for one in rates.compared:
        what, now = words(one.comparison.before), _difference(one.comparison.before, one.comparison.after)
        spread = quantities.percent(one.spread)
        lines.append(f"  {one.speedup:5.2f} times as fast (± {spread})  {what}: {now}")
    lines += [
        f"  not measured  {words(failure.comparison.before)}: {safe_text.clean(failure.why)}"
        for failure in rates.failures
    ]
    left = asked - len(rates.compared) - len(rates.failures)
    if left:
        lines.append(f"  {quantities.counted(left, 'comparison')} did not fit into the budget.")
    return safe_text.without_commands("\n".join([*lines, "", *_changed(before, after), f"Rates: {path}", ""]))


def words(experiment: Experiment) -> str:
    """ "matmul 512x512x64 fp32"."""
    if isinstance(experiment, Matmul):
        batch = f"{experiment.batch} x " if experiment.batch > 1 else ""
        return f"matmul {batch}{experiment.m}x{experiment.n}x{experiment.k} {experiment.dtype}"
    if isinstance(experiment, Convolution):
        return f"convolution {_times(experiment.input)}, weight {_times(experiment.weight)} {experiment.dtype}"
    if isinstance(experiment, Attention):
        size = (experiment.batch, experiment.heads, experiment.queries, experiment.head_size)
        return f"attention {_times(size)} {experiment.dtype}"
    if isinstance(experiment, RowGradient):
        table = f"{experiment.table_rows}x{experiment.row_size}"
        return f"backward pass of {experiment.picked_rows} rows of {table} {experiment.dtype}"
    if isinstance(experiment, Lookup):
        table = f"{experiment.table_rows}x{experiment.row_size}"
        return f"{experiment.picked_rows} rows of each of {experiment.tables} tables {table} {experiment.dtype}"
    if isinstance(experiment, AllPairs):
        vectors = (experiment.batch, experiment.left, experiment.right, experiment.size)
        return f"{experiment.kind} of all pairs {_times(vectors)} {experiment.dtype}"
    if isinstance(experiment, VocabularyLoss):
        sizes = (experiment.tokens, experiment.width, experiment.words)
        return f"output layer and loss {_times(sizes)} {experiment.dtype}"
    count = sum(number for _, number in experiment.parameters)
    return f"{experiment.optimizer}.step of {count:,} parameters"


def _difference(before: Experiment, after: Experiment) -> str:
    """What is another value in the second one: "bf16", "channels last"."""
    if isinstance(after, OptimizerStep):
        return after.implementation
    fields = [name for name in after.__struct_fields__ if getattr(before, name, None) != getattr(after, name)]
    return ", ".join(f"{name.replace('_', ' ')} {getattr(after, name)}".lower() for name in fields)


def _changed(before: Result, after: Result) -> list[str]:
    savings = {one.id: one.saving for one in before.findings}
    lines = []
    for finding in after.findings:
        old, new = savings.get(finding.id), finding.saving
        if old is not None and new is not None and old.basis != new.basis:
            lines.append(f"  {finding.code} saves {_range(new)}; before the measurement: {_range(old)}")
    return ["Savings that follow from it:", "", *lines, ""] if lines else []


def _range(saving: Saving) -> str:
    """ "12 ms (9.8 to 14)"."""
    low, high = quantities.estimate(saving.low_us), quantities.estimate(saving.high_us)
    return f"{quantities.estimate(saving.est_us)} ({low} to {high})"


def _times(size: tuple[int, ...]) -> str:
    return "x".join(map(str, size))
