"""Runs rules over the facts of a trace: what is worth changing, what was checked, what could not be checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import orjson
from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.tables.json_values import MOST_US
from traceopt.config import typed_settings
from traceopt.errors import ConfigError, error_text, one_line
from traceopt.result.document import Check, CheckStatus, Note
from traceopt.result.edits import SetArguments
from traceopt.result.encoding.serialization import fields_of
from traceopt.result.finding import Finding, Location, value_order
from traceopt.result.words.message import Message
from traceopt.rules.bases.rank_rule import RunRule
from traceopt.rules.fixes.advice.compilation import within_compiler_limits
from traceopt.rules.fixes.framework_arguments import in_framework
from traceopt.rules.plan import Plan, in_order, make_plan
from traceopt.rules.registry import TRACE_QUALITY, Registry, former_of, is_retired, select
from traceopt.rules.rule import Rule
from traceopt.rules.savings.measured import gains_nothing
from traceopt.rules.savings.price import Priced
from traceopt.rules.savings.pricing import corrected
from traceopt.rules.savings.unrecorded import without_unrecorded_saving

if TYPE_CHECKING:
    from traceopt.analyzer.facts import Facts
    from traceopt.analyzer.ranks.run_facts import RunFacts

_AnyRule = TypeVar("_AnyRule", bound=Rule)
_Part = TypeVar("_Part", Finding, Check)
_NUMPY_TOO = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_PASSTHROUGH_SUBCLASS

HIDDEN = "The problem is hidden behind other work: fixing it does not shorten the replayed step."


class RulesOutcome(Struct, frozen=True):
    """`priced`: the findings, most valuable first. `notes`: those about trace quality. `checks`: one per rule."""

    priced: list[Priced]
    notes: list[Note]
    checks: list[Check]
    plan: Plan | None = None  # of one trace

    @property
    def findings(self) -> list[Finding]:
        return [fix.finding for fix in self.priced]


def prepare(
    registry: Registry,
    *,
    select_codes: Sequence[str] = (),
    ignore_codes: Sequence[str] = (),
    thresholds: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Rule]:
    """The selected rules with their thresholds; `thresholds` is keyed by rule code or name.

    Raises ConfigError for an unknown code, prefix, name or threshold (also for a rule that is not selected).
    """
    settings = _by_rule(registry, thresholds or {})
    configured = {rule: configure(rule, settings.get(rule, {})) for rule in registry.rules}
    return [configured[rule] for rule in select(registry.rules, select_codes, ignore_codes)]


def _by_rule(registry: Registry, thresholds: Mapping[str, Mapping[str, Any]]) -> dict[type[Rule], dict[str, Any]]:
    """The settings of each rule. Those under its own code or name take precedence over those of a former rule."""
    settings: dict[type[Rule], dict[str, Any]] = {}
    for key, table in thresholds.items():
        if is_retired(key):
            continue
        rule = registry.find(key)
        if not isinstance(table, Mapping):
            raise ConfigError(f"rule {rule.code}: expected a table of thresholds, got {type(table).__name__}")
        former, own = former_of(rule, key), settings.setdefault(rule, {})
        if former is None:
            own.update(table)
        else:
            settings[rule] = former.present(table) | own
    return settings


def configure(rule: type[Rule], settings: Mapping[str, Any]) -> Rule:
    """`rule` with `settings` as its thresholds. Raises ConfigError for an unknown threshold or a wrong type."""
    if not settings:
        return rule()
    where = f"rule {rule.code}"
    values = typed_settings(rule, [threshold.name for threshold in rule.thresholds()], settings, where)
    try:
        return rule(**values)
    except ValueError as error:  # the rule's own __post_init__
        raise ConfigError(f"{where}: {one_line(str(error))}") from error


def run_rules(rules: Sequence[Rule], facts: Facts, *, debug: bool = False) -> RulesOutcome:
    """What the rules find in one trace, and the plan. See `check_rules`."""
    outcome = check_rules(rules, facts, debug=debug)
    return planned(outcome, facts) if facts.has_trace else outcome


def check_rules(rules: Sequence[Rule], facts: Facts, *, only_found: bool = False, debug: bool = False) -> RulesOutcome:
    """Runs every rule on one trace, trace-quality rules first. A rule that raises becomes a check of status `error`.

    With `only_found`, rules that found nothing have no checks. With `debug`, the rule's exception is raised instead.
    """
    of_traces = [rule for rule in rules if not isinstance(rule, RunRule)]
    outcome = _outcome(of_traces, lambda rule: _ask(rule, facts, only_found), debug, only_found)
    return _in_words_of(facts.device.vendor.key, outcome) if facts.has_trace else outcome


def refuted(outcome: RulesOutcome, rules: Sequence[Rule]) -> Iterator[tuple[frozenset[str], RulesOutcome]]:
    """The outcomes before the plan if the other ranks show that fixes which they can refute save nothing: for each set
    of the codes of these fixes.
    """
    refutable = {rule.code for rule in rules if rule.refutable}
    saving = {fix.finding.code for fix in outcome.priced if fix.finding.saving is not None} & refutable
    for count in range(1, len(saving) + 1):
        for codes in map(frozenset, combinations(sorted(saving), count)):
            priced = [fix.without_saving() if fix.finding.code in codes else fix for fix in outcome.priced]
            yield codes, replace(outcome, priced=sorted(priced, key=_value_order))


def planned(outcome: RulesOutcome, facts: Facts) -> RulesOutcome:
    """The outcome with its plan: the findings in order, without those whose fix cannot shorten the step."""
    plan = make_plan(outcome.priced, facts)
    useful = in_order(outcome.priced, plan, facts)
    hidden = {fix.finding.code for fix in outcome.priced} - {fix.finding.code for fix in useful}
    checks = [replace(c, status="passed", reason=HIDDEN) if c.code in hidden else c for c in outcome.checks]
    return replace(outcome, priced=useful, checks=checks, plan=plan)


def run_rank_rules(rules: Sequence[Rule], run: RunFacts, *, debug: bool = False) -> RulesOutcome:
    """Runs the rules that compare ranks, in the same way."""
    of_ranks = [rule for rule in rules if isinstance(rule, RunRule)]
    return _outcome(of_ranks, lambda rule: _ask_run(rule, run if rule.with_engines else run.without_engines), debug)


def in_view_of_ranks(
    rules: Sequence[Rule], findings: Sequence[Finding], run: RunFacts, vendor: str | None, *, debug: bool = False
) -> tuple[list[Finding], list[Check]]:
    """The findings of single ranks in view of all ranks, in the same order, and the checks of those that changed. With
    a rule that raises, a finding stays as it is and its check has the status `error`.
    """
    of_code = {rule.code: rule for rule in rules}
    seen: list[Finding] = []
    checks: dict[str, Check] = {}
    for finding in findings:
        rule, now = of_code.get(finding.code), finding
        try:
            now = finding if rule is None else _plain(_in_view_of_ranks(rule, finding, run))
            now = finding if now == finding else now.for_vendor(vendor)
        except (Exception, SystemExit) as error:
            if debug:
                raise
            checks[finding.code] = Check(finding.code, finding.name, finding.title, "error", error_text(error))
        if now != finding:
            checks.setdefault(finding.code, Check(now.code, now.name, now.title, "found", now.why))
        seen.append(now)
    return seen, list(checks.values())


def _in_view_of_ranks(rule: Rule, finding: Finding, run: RunFacts) -> Finding:
    now = rule.in_view_of_ranks(finding, run)
    lost = finding.saving is not None and now.saving is None
    if lost and (not rule.refutable or run.missing is not None):
        raise ValueError("only a `refutable` rule may take a saving, and only where no rank is missing")
    return now


_Answer = tuple[CheckStatus, str, list[Priced]]


def _outcome(
    rules: Sequence[_AnyRule], ask: Callable[[_AnyRule], _Answer], debug: bool, only_found: bool = False
) -> RulesOutcome:
    priced: list[Priced] = []
    notes: list[Note] = []
    checks: list[Check] = []
    for rule in sorted(rules, key=lambda rule: rule.family != TRACE_QUALITY):
        found: list[Priced] = []
        try:
            status, reason, found = ask(rule)
            if only_found and status != "found":
                continue
            check = Check(rule.code, rule.name, rule.title, status, reason)
            check = _plain(check)
        except (Exception, SystemExit) as error:
            if debug:
                raise
            found, check = [], Check(rule.code, rule.name, rule.title, "error", error_text(error))
        checks.append(check)
        if rule.family == TRACE_QUALITY:
            notes += [Note(one.finding.code, one.finding.name, one.finding.why, one.finding.aspect) for one in found]
        else:
            priced += found
    return RulesOutcome(sorted(priced, key=_value_order), notes, checks)


def _ask(rule: Rule, facts: Facts, only_found: bool) -> _Answer:
    if rule.needs_trace and not facts.has_trace:
        return "not_applicable", "There is no trace.", []
    if (why := rule.ruled_out(facts)) is not None:
        return "not_applicable", why, []
    if rule.needs_trace and rule.family != TRACE_QUALITY and not facts.times_hold:
        return "not_checked", "Times in the trace contradict each other.", []
    if (lack := rule.missing(facts)) is not None:
        return "not_checked", lack, []
    if (why := rule.applies(facts)) is not None:
        return "not_applicable", why, []
    found = [_sound(fix) for fix in rule.check(facts) if not gains_nothing(facts, getattr(fix, "price", None))]
    if facts.has_trace:
        known = (corrected(without_unrecorded_saving(fix, facts), facts) for fix in found)
        framed = (replace(fix, finding=in_framework(fix.finding, facts)) for fix in known)
        found = [_with_user_lines(within_compiler_limits(fix, facts), facts) for fix in framed]
    found.sort(key=_value_order)
    if found:
        return "found", found[0].finding.why, found
    return "passed", "" if only_found else rule.passed(facts), []


def _ask_run(rule: RunRule, run: RunFacts) -> _Answer:
    if (lack := rule.lacks_ranks(run)) is not None:
        several = len(run.ranks) > 1 or any((rank.world_size or 1) > 1 for rank in run.ranks)
        return ("not_checked", lack, []) if several else ("not_applicable", "The run has one rank.", [])
    if (why := rule.applies_run(run)) is not None:
        return "not_applicable", why, []
    found = sorted(map(_sound, rule.check_run(run)), key=_value_order)
    return ("found", found[0].finding.why, found) if found else ("passed", rule.passed_run(run), [])


def _in_words_of(vendor: str, outcome: RulesOutcome) -> RulesOutcome:
    """The outcome with its messages in the words of the GPU's vendor."""
    return RulesOutcome(
        [replace(fix, finding=fix.finding.for_vendor(vendor)) for fix in outcome.priced],
        [note.for_vendor(vendor) for note in outcome.notes],
        [check.for_vendor(vendor) for check in outcome.checks],
    )


def _with_user_lines(fix: Priced, facts: Facts) -> Priced:
    """The finding, with the user's line that calls a library's model, which can be edited, beside each place in it:
    before it if the fix sets arguments, which only the user's own calls have.
    """
    every: dict[Location, None] = {}
    sets_arguments = any(isinstance(edit, SetArguments) for edit in fix.finding.fix.edits)
    for place in fix.finding.locations:
        caller = facts.call_sites.user_caller_of(place.file, place.function)
        both = [place] if caller is None else [place, caller]
        every |= dict.fromkeys(reversed(both) if sets_arguments else both)
    return replace(fix, finding=replace(fix.finding, locations=list(every)))


def _sound(found: object) -> Priced:
    """Protects the report from a rule that yields something else, or a saving that is not a finite number. A saving of
    nothing is none: the cost is hidden behind other work.
    """
    priced = Priced(found) if isinstance(found, Finding) else found
    if not isinstance(priced, Priced):
        raise TypeError(f"check() yielded {type(found).__name__}, not a Finding")
    saving = priced.finding.saving
    if saving and not all(map(math.isfinite, (saving.low_us, saving.est_us, saving.high_us, saving.share))):
        raise ValueError(f"the saving is not finite: {saving.est_us} us per step, share {saving.share}")
    if saving and max(abs(saving.low_us), abs(saving.est_us), abs(saving.high_us)) > MOST_US:
        raise ValueError(f"the saving is impossibly large: {saving.est_us} us per step")
    if saving and saving.est_us == 0:
        priced = priced.without_saving()
    return replace(priced, finding=_plain(priced.finding))


def _plain(part: _Part) -> _Part:
    """The same part with plain Python values, because rules may compute with NumPy.

    Raises ValueError or TypeError for a value that the result document cannot hold.
    """
    return msgspec.convert(orjson.loads(orjson.dumps(part, default=_fields, option=_NUMPY_TOO)), type(part))


def _fields(value: Any) -> Any:
    """What orjson does not know. A message keeps its slots."""
    return value.source if isinstance(value, Message) else fields_of(value)


def _value_order(fix: Priced) -> tuple[int, float, int, str, str]:
    return value_order(fix.finding)
