"""What the quality of a trace allows to say of its findings."""

from __future__ import annotations

import pytest
from support.traces import GetExample

from traceopt.document.quality import Allowed, allowed
from traceopt.result.document import Note, Quality
from traceopt.result.finding import Confidence, Finding, Fix, Impact, Saving


def finding(impact: Impact = "high", confidence: Confidence = "high", priced: bool = True) -> Finding:
    saving = Saving(1.0, 2.0, 3.0, 0.5, "Measured.") if priced else None
    return Finding("DL001", "a", "A", impact, confidence, "", "", saving, "", [], [], Fix(""))


@pytest.mark.parametrize(
    ("may", "before", "after"),
    [
        (Allowed(), finding(), finding()),
        (Allowed(savings=False, impact="info"), finding(), finding("info", priced=False)),
        (Allowed(savings=False, impact="medium", lower=2), finding(), finding("medium", "low", priced=False)),
        (Allowed(savings=False, impact="medium"), finding("low"), finding("low", priced=False)),
        (Allowed(savings=False, impact="info"), finding(priced=False), finding(priced=False)),  # the run ends by it
        (Allowed(lower_with_saving=1), finding(), finding(confidence="medium")),
        (Allowed(lower_with_saving=1), finding(confidence="low"), finding(confidence="low")),
        (Allowed(lower_with_saving=2), finding(priced=False), finding(priced=False)),
        (Allowed(lower=2, lower_with_saving=1), finding(priced=False), finding(confidence="low", priced=False)),
    ],
)
def test_a_finding_is_said_as_far_as_it_may_be(may: Allowed, before: Finding, after: Finding) -> None:
    assert may.finding(before) == after


@pytest.mark.parametrize(
    ("quality", "expected"),
    [
        (Quality("good", []), Allowed()),
        (Quality("limited", [Note("TQ002", "no-steps", "")]), Allowed(lower_with_saving=1)),
        (Quality("unusable", [Note("TQ007", "unsupported-device", "")]), Allowed(savings=False, impact="info")),
    ],
)
def test_what_a_quality_allows(example: GetExample, quality: Quality, expected: Allowed) -> None:
    assert allowed(example("five_faults").facts, quality) == expected
