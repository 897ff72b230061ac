"""Every row of the table of causes is handled by all that read it: verdict, looks, words, links, advice, docs."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from traceopt.analyzer.vocabulary.causes.cause import Cause
from traceopt.analyzer.vocabulary.causes.span_categories import SPAN_CATEGORIES
from traceopt.analyzer.vocabulary.causes.table import (
    BUSY_PARTS,
    CAUSE_OF_KEY,
    CAUSES,
    COMMUNICATION,
    COMPUTE,
    COPIES,
    IDLE_CAUSES,
    PHASES,
)
from traceopt.document.verdict import _GpuVerdict
from traceopt.reports.figures import palette
from traceopt.reports.words.fixes.card_lookup import rules_of_cause
from traceopt.reports.words.part_styles import part_style, span_look
from traceopt.reports.words.step_words import limit
from traceopt.result.sections.work_rows import BreakdownPart
from traceopt.result.words.message import plain
from traceopt.rules.catalogue.ef002_slow_steps import OTHERWISE, _advice, _Growth
from traceopt.rules.registry import builtin_rules
from traceopt.testing import Machine

ROOT = Path(__file__).resolve().parents[1]
STYLES = (ROOT / "reports" / "html" / "assets" / "style" / "patterns.css").read_text(encoding="utf-8")
COLORS = set(re.findall(r"--([a-z]+):", palette.style_sheet()))
PATTERNS = {"", *re.findall(r"\.p-([a-z]+) \{", STYLES)}

every_cause = pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.key)


def test_a_cause_that_lacks_a_field_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="Missing required argument"):
        Cause(key="new", label="New")  # type: ignore[call-arg]


def test_keys_labels_and_looks_of_causes_differ() -> None:
    assert len(CAUSE_OF_KEY) == len(CAUSES)
    assert len({cause.label for cause in CAUSES}) == len(CAUSES)
    for of_one_step in ([*IDLE_CAUSES, *BUSY_PARTS], PHASES):
        assert len({cause.look.color for cause in of_one_step}) == len(of_one_step)


@every_cause
def test_a_report_draws_it(cause: Cause) -> None:
    look = part_style(cause.key, cause.busy)
    assert look == cause.look
    assert look.color in COLORS
    assert look.pattern in PATTERNS
    assert bool(look.pattern) is not cause.busy  # color is never the only difference
    assert cause.span in SPAN_CATEGORIES
    assert span_look(cause.span.key) == (cause.span.color, cause.span.label)


@every_cause
def test_the_verdict_names_it(cause: Cause) -> None:
    if cause in (*IDLE_CAUSES, COMMUNICATION, COPIES):
        assert cause.verdict
        assert cause.verdict.format(share="90%", unit="the step") in verdict_of(cause, 0.9)


@every_cause
def test_its_rules_exist_and_a_stall_links_to_them(cause: Cause) -> None:
    other = {*cause.slow_step_rules, *({cause.refill_rule} - {None})}
    assert {*cause.rules, *other} <= {rule.code for rule in builtin_rules()}
    assert rules_of_cause(cause.key) == cause.rules


@every_cause
def test_words_and_advice_follow_from_its_row(cause: Cause) -> None:
    assert limit(cause.key) == cause.limit
    grown = _Growth(cause, cause.label, np.array([0]), np.array([1e6]))
    compute = _Growth(COMPUTE, "", np.array([0]), np.array([1e6]))  # HOST_SLOW is for the same work
    assert _advice([grown], [grown, compute]) == (cause.advice or OTHERWISE)


@pytest.mark.parametrize("cause", IDLE_CAUSES, ids=lambda cause: cause.key)
def test_each_idle_part_has_its_explanation(cause: Cause) -> None:
    assert cause.look.detail


def test_the_page_of_causes_has_each() -> None:
    page = (ROOT / "docs" / "causes.md").read_text(encoding="utf-8")
    assert all(f"| `{cause.key}` | {cause.meaning} |" in page for cause in CAUSES)


def verdict_of(cause: Cause, share: float) -> str:
    """The verdict on a step of which this cause takes a share, and compute the rest."""
    machine = Machine()
    for _ in range(6):
        with machine.step():
            machine.launch(1_000)
            machine.synchronize()
    parts = [
        BreakdownPart(part.key, part.label, part.busy, part_share * 1_000, part_share, None)
        for part, part_share in ((COMPUTE, 1 - share), (cause, share))
    ]
    return plain(_GpuVerdict(machine.facts(), parts, [], []).text)
