"""Gates: limits on a run, as given to `--fail-on` and `--warn-on`.

    high                  no finding of high impact; medium and low include higher impacts
    finding=new-high      no such finding that the baseline lacks
    gpu_idle=40%          a metric and its limit
    step_time=+5%         a metric and how much worse than the baseline it may be

A gate has not passed if its metric was not measured: its status is "not_checked".
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from traceopt.comparison.metrics import METRICS, STEP_TIME, Metric, mean_of, peak_remarks, value_text
from traceopt.errors import ConfigError, suggestion
from traceopt.result.comparison import Comparison, GateLevel, GateOutcome, GateStatus, MetricChange, MetricUnit
from traceopt.result.document import Result
from traceopt.result.finding import Impact
from traceopt.result.words.quantities import percent

IMPACTS: tuple[Impact, ...] = ("high", "medium", "low")
_FINDING = re.compile(r"(?:finding=)?(?P<new>new-)?(?P<impact>high|medium|low)")
_LIMIT = re.compile(r"(?P<sign>[+-]?)(?P<number>\d{1,15}(?:\.\d{1,9})?)(?P<unit>%|[A-Za-z]*)")
_UNITS: dict[MetricUnit, dict[str, float]] = {
    "us": {"us": 1.0, "ms": 1e3, "s": 1e6},
    "share": {"": 1.0, "%": 0.01},
    "bytes": {"MB": 1e6, "GB": 1e9, "MiB": 2.0**20, "GiB": 2.0**30},
    "per_s": {"": 1.0},
}


class Gate(Struct, frozen=True):
    """`text` is as given. A gate on findings has an `impact`; a gate on a metric has `metric` and `limit`.

    `needs_baseline`: the gate is on new findings, or `limit` is a change. A change is in the metric's unit (for shares:
    in points) or, with `in_percent`, a share of the baseline.
    """

    text: str
    level: GateLevel
    needs_baseline: bool
    impact: Impact | None = None
    metric: Metric | None = None
    limit: float = 0.0
    in_percent: bool = False

    @staticmethod
    def parse(text: str, level: GateLevel) -> Gate:
        """Raises ConfigError for an unknown gate."""
        found = _FINDING.fullmatch(text)
        if found is not None:
            impact = next(impact for impact in IMPACTS if impact == found["impact"])
            return Gate(text, level, found["new"] is not None, impact=impact)
        name, _, limit = text.partition("=")
        if name not in METRICS:
            hint = suggestion(name, [*IMPACTS, *METRICS]) or f"; known: {', '.join((*IMPACTS, 'finding', *METRICS))}"
            raise ConfigError(f"no such gate: {text}{hint}")
        return _metric_gate(text, level, METRICS[name], limit)


def judge(gate: Gate, head: Sequence[Result], comparison: Comparison | None) -> GateOutcome:
    """The outcome of a gate for the runs of a side and, if there is a baseline, their comparison with it."""
    if gate.needs_baseline and comparison is None:
        status, text = _not_checked("no baseline to compare with; pass --baseline FILE")
    elif gate.needs_baseline and comparison is not None and not (comparison.comparable or _is_rate(gate, comparison)):
        status, text = _not_checked(_sentence(comparison.verdict))
    elif gate.impact is not None:
        status, text = _findings(gate.impact, head, comparison if gate.needs_baseline else None)
    elif gate.metric is not None:
        if comparison is not None and gate.needs_baseline:
            status, text = _change(gate, gate.metric, comparison)
        else:
            status, text = _level(gate, gate.metric, head)
    return GateOutcome(gate.text, gate.level, status, text)


def _is_rate(gate: Gate, comparison: Comparison) -> bool:
    """Whether the gate is on a throughput, of sides that only differ in the amount of work."""
    return gate.metric is not None and gate.metric.unit == "per_s" and comparison.work is not None


def _metric_gate(text: str, level: GateLevel, metric: Metric, limit: str) -> Gate:
    found = _LIMIT.fullmatch(limit)
    units = _UNITS[metric.unit]
    worse = "-" if metric.fewer_is_worse else "+"
    relative = found is not None and found["sign"] != ""
    in_percent = relative and found is not None and found["unit"] == "%" and "%" not in units
    if found is None or not (in_percent or found["unit"] in units) or found["sign"] not in ("", worse):
        raise ConfigError(f"not a valid limit: {text}; expected {_examples(metric, worse)}")
    value = float(found["number"]) * (0.01 if in_percent else units[found["unit"]])
    if metric.unit == "share" and value > 1:
        raise ConfigError(f"not a valid limit: {text}; a share is at most 1 (100%)")
    return Gate(text, level, relative, metric=metric, limit=value, in_percent=in_percent)


def _examples(metric: Metric, worse: str) -> str:
    absolute = {"us": "450ms", "share": "0.4 or 40%", "bytes": "70GiB", "per_s": "12000"}[metric.unit]
    return f"{metric.name}={absolute}, or relative to a baseline {metric.name}={worse}5%"


def _findings(impact: Impact, head: Sequence[Result], comparison: Comparison | None) -> tuple[GateStatus, str]:
    if any(result.quality.verdict == "unusable" for result in head):
        return _not_checked("this trace cannot be judged")
    of_impact = f"of {impact} impact" if impact == "high" else f"of {impact} impact or above"
    if comparison is None:
        found, kind = _found(head, impact), f"findings {of_impact}"
    else:
        wanted = IMPACTS[: IMPACTS.index(impact) + 1]
        changes = [change for change in comparison.findings if change.head_impact in wanted]
        new = [change for change in changes if change.status == "new" and change.share_of_base is None]
        found, kind = [change.code for change in new], f"new findings {of_impact}"
        unknown = [change.code for change in changes if change.status == "unknown"]
        if unknown and not found:
            return _not_checked(f"the baseline did not check {', '.join(unknown)} {of_impact}")
    return ("failed", f"{kind}: {', '.join(found)}") if found else ("passed", f"no {kind}")


def _level(gate: Gate, metric: Metric, head: Sequence[Result]) -> tuple[GateStatus, str]:
    value, _ = mean_of(metric, head)
    if value is None:
        return _not_checked(f"{metric.name} was not measured: {metric.record}")
    beyond = value < gate.limit if metric.fewer_is_worse else value > gate.limit
    measured = f"{value_text(metric.unit, value)}{peak_remarks(metric, head)}"
    text = f"{metric.name} is {measured}, the limit is {value_text(metric.unit, gate.limit)}"
    return "failed" if beyond else "passed", text


def _change(gate: Gate, metric: Metric, comparison: Comparison) -> tuple[GateStatus, str]:
    step = comparison.step
    if metric.name == STEP_TIME and step.reason is not None:
        return _not_checked(f"{metric.name}: {step.reason}")
    change = next((change for change in comparison.metrics if change.name == metric.name), None)
    if change is None or change.base is None or change.head is None:
        missing = "baseline" if change is None or change.base is None else "new run"
        return _not_checked(f"{metric.name} was not measured in the {missing}: {metric.record}")
    if gate.in_percent and change.base <= 0:
        return _not_checked(f"{metric.name} is 0 in the baseline, so there is no percentage change")
    worse = (change.base - change.head) if metric.fewer_is_worse else (change.head - change.base)
    beyond = (worse / change.base if gate.in_percent else worse) > gate.limit
    remarks = change.label.removeprefix(metric.label)
    text = f"{metric.name} {_change_text(change, worse)}{remarks}, the limit is {_limit_text(gate, metric)}"
    if not beyond or change.beyond_noise is not False:
        return "failed" if beyond else "passed", text
    return "passed", f"{text}; the change is within noise"


def _found(head: Sequence[Result], impact: Impact) -> list[str]:
    """Codes of the findings that have this impact or a higher one in more than half of the runs."""
    wanted = IMPACTS[: IMPACTS.index(impact) + 1]
    runs = [{finding.code for finding in result.findings if finding.impact in wanted} for result in head]
    codes = dict.fromkeys(finding.code for result in head for finding in result.findings)
    return [code for code in codes if 2 * sum(code in run for run in runs) > len(runs)]


def _sentence(verdict: str) -> str:
    """The first sentence of a verdict as a part of another sentence."""
    first = verdict.partition(". ")[0]
    return first[:1].lower() + first[1:]


def _not_checked(text: str) -> tuple[GateStatus, str]:
    return "not_checked", text


def _change_text(change: MetricChange, worse: float) -> str:
    """ "is 5.2% worse than the baseline: 43.0 ms → 45.2 ms"; for a share in points."""
    before, after = (value_text(change.unit, value or 0.0) for value in (change.base, change.head))
    if not worse:
        return f"is {after}, as in the baseline"
    if change.unit == "share":
        amount = f"{abs(worse) * 100:.1f} points"
    elif change.base:
        amount = percent(abs(worse) / change.base)
    else:
        amount = value_text(change.unit, abs(worse))
    return f"is {amount} {'worse' if worse > 0 else 'better'} than the baseline: {before} → {after}"


def _limit_text(gate: Gate, metric: Metric) -> str:
    if gate.in_percent:
        return f"{gate.limit * 100:.3g}%"
    return f"{gate.limit * 100:.3g} points" if metric.unit == "share" else value_text(metric.unit, gate.limit)
