"""A finding that loses its saving once all ranks are read leaves the plan, what follows from it, and the verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from traceopt.analyzer.ranks.run_facts import RunFacts
from traceopt.document.settled import with_settled_findings
from traceopt.result.finding import Finding
from traceopt.rules.registry import builtin_rules
from traceopt.rules.rule import Rule

if TYPE_CHECKING:
    from conftest import GetExample

NO_RANKS = RunFacts([])


def settling(code: str, **changes: object) -> Rule:
    """The rule with this code, which changes its findings so."""
    (of_code,) = (rule for rule in builtin_rules() if rule.code == code)

    class Settling(of_code):  # type: ignore[misc, valid-type]
        """As the rule."""

        def settled(self, finding: Finding, run: RunFacts) -> Finding:  # noqa: ARG002
            return replace(finding, **changes)

    return Settling()


def test_the_plan_goes_on_without_it(example: GetExample) -> None:
    result = example("five_faults").result
    assert len(result.plan) > 2
    assert result.combined is not None
    gone = result.plan[0]
    title = result.planned[0][1].title
    verdict = f"{result.verdict} Biggest lever: {title[:1].lower()}{title[1:]}."
    settled = with_settled_findings(
        replace(result, verdict=verdict), [settling(gone.code, saving=None, why="It is not.")], NO_RANKS, debug=True
    )
    assert settled.verdict == result.verdict.replace(f" First fix: {title[:1].lower()}{title[1:]}.", "")
    assert gone.code not in [row.code for row in settled.plan]
    assert [finding.code for _, finding in settled.planned] == [row.code for row in settled.plan]
    assert sorted(one.code for one in settled.findings) == sorted(one.code for one in result.findings)
    after_us, alone_us = result.step.typical_us or 0.0, {row.code: row.alone_us for row in result.plan}
    for row in settled.plan:
        after_us -= row.saving_us
        assert row.step_us_after == pytest.approx(after_us, abs=0.01)
        assert row.low_us <= row.saving_us <= alone_us[row.code]
        assert all(0 < number < len(settled.plan) for number in row.needs)
    assert settled.combined is not None
    assert settled.combined.codes == [row.code for row in settled.plan]
    assert settled.combined.saving_us == pytest.approx(sum(row.saving_us for row in settled.plan))
    assert settled.combined.low_us == pytest.approx(sum(row.low_us for row in settled.plan))
    assert settled.combined.saving_us <= settled.combined.high_us
    assert settled.combined.breakdown_after == []
    assert all(one.after_plan_us is None for one in settled.findings), "they were replayed after another plan"
    (check,) = [check for check in settled.checks if check.code == gone.code]
    assert (check.status, check.reason) == ("found", "It is not.")


def test_a_finding_without_a_saving_saves_nothing_after_the_plan(example: GetExample) -> None:
    result = example("five_faults").result
    planned = {row.finding for row in result.plan}
    before = [one if one.id in planned else replace(one, after_plan_us=5.0) for one in result.findings]
    code = next(one.code for one in result.findings if one.id not in planned)
    settled = with_settled_findings(
        replace(result, findings=before), [settling(code, saving=None)], NO_RANKS, debug=True
    )
    assert settled.plan == result.plan
    assert [one.after_plan_us for one in settled.findings if one.code == code] == [None]


def test_without_a_fix_there_is_no_plan(example: GetExample) -> None:
    result = example("slow_loader").result
    rules = [settling(row.code, saving=None) for row in result.plan]
    settled = with_settled_findings(result, rules, NO_RANKS, debug=True)
    assert (settled.plan, settled.combined) == ([], None)


def test_other_words_leave_the_plan_as_it_is(example: GetExample) -> None:
    result = example("slow_loader").result
    settled = with_settled_findings(result, [settling("DL001", why="Another reason.")], NO_RANKS, debug=True)
    assert (settled.plan, settled.combined) == (result.plan, result.combined)
    assert [one.why for one in settled.findings if one.code == "DL001"] == ["Another reason."]


def test_a_rule_that_raises_leaves_its_finding(example: GetExample) -> None:
    result = example("slow_loader").result
    settled = with_settled_findings(result, [settling("DL001", unknown=1)], NO_RANKS)
    assert settled.findings == result.findings
    assert [check.status for check in settled.checks if check.code == "DL001"] == ["error"]
