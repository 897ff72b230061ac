"""What a rule finds in the facts of a trace, and what tests ask about a finding."""

from __future__ import annotations

from collections.abc import Iterable

from traceopt.analyzer.facts import Facts
from traceopt.document.rank_document import rank_document
from traceopt.result.document import Result
from traceopt.result.finding import Finding, Saving
from traceopt.rules.engine import RulesOutcome, run_rules
from traceopt.rules.registry import builtin_rules
from traceopt.rules.rule import Rule
from traceopt.rules.savings.price import Priced
from traceopt.testing import answer

RULES = {rule.code: rule() for rule in builtin_rules()}


def found(code: str, facts: Facts) -> list[Finding]:
    """Nothing where the rule does not apply, or cannot be checked."""
    rule = RULES[code]
    unanswered = rule.ruled_out(facts) or rule.missing(facts) or rule.applies(facts)
    return [] if unanswered else checked(code, facts)


def checked(code: str, facts: Facts) -> list[Finding]:
    """By a rule that applies."""
    rule = RULES[code]
    assert (rule.missing(facts), rule.applies(facts)) == (None, None)
    findings = [one.finding if isinstance(one, Priced) else one for one in rule.check(facts)]
    assert findings or rule.passed(facts)
    return findings


def only(rule: type[Rule], facts: Facts) -> Finding:
    """The only finding of a rule, in a trace that has what it requires."""
    check, findings = answer(rule, facts)
    assert len(findings) == 1, check.reason
    return findings[0]


def outcome_of(facts: Facts) -> RulesOutcome:
    """What all rules find."""
    return run_rules(list(RULES.values()), facts, debug=True)


def document_of(facts: Facts) -> Result:
    """The document of one rank."""
    return rank_document(facts, outcome_of(facts))


def of_code(findings: Iterable[Finding], code: str) -> list[Finding]:
    return [finding for finding in findings if finding.code == code]


def loud(findings: Iterable[Finding]) -> list[str]:
    """Findings that ask for a change."""
    return [f"{finding.code}: {finding.why}" for finding in findings if finding.impact in ("high", "medium")]


def saving_of(finding: Finding) -> Saving:
    assert finding.saving is not None
    return finding.saving


def places(finding: Finding) -> set[str]:
    located = [*finding.locations, *(row.location for row in finding.evidence if row.location)]
    return {str(location) for location in located}
