"""A fix as one text for an assistant: the finding, its evidence, the source lines, the change, and how to verify it."""

from __future__ import annotations

from traceopt.reports.agent import words
from traceopt.reports.words import run_words
from traceopt.reports.words.names import where
from traceopt.reports.words.step_words import step_noun
from traceopt.result.document import Result
from traceopt.result.finding import Finding
from traceopt.result.words.quantities import ms_of_us

EVIDENCE_ROWS = 8
LINES = 5


def prompt(finding: Finding, result: Result) -> str:
    """Plain text. `finding` is one of a document that was cleaned for display."""
    parts = [
        "Change this PyTorch script as described, and change nothing else. traceopt found the problem in "
        f"{words.analyzed_files(result)}. {words.UNTRUSTED}",
        job(result),
        f"Finding: {finding.title} ({finding.code}, {finding.confidence} confidence)\n{finding.why}",
        words.saving(finding, result),
        _listed("Where", [where(location) for location in finding.locations[:LINES]]),
        _listed("Evidence", [words.evidence_row(row, result) for row in finding.evidence[:EVIDENCE_ROWS]]),
        f"Fix: {finding.fix.text}",
        _change(finding),
        f"Risk: {finding.risk_words}",
        f"Verify: {words.verification(result)} {words.when_wrong(finding.code)}",
    ]
    return "\n\n".join(part for part in parts if part)


def job(result: Result) -> str:
    """ "Job: NVIDIA A100, 12 steps. A step takes 187.4 ms. <verdict>"."""
    if not words.has_trace(result):
        return f"Verdict: {run_words.verdict(result)}"
    facts = ", ".join(run_words.environment(result))
    typical_us = result.step.typical_us
    measured = "The recording" if step_noun(result) == "recording" else "A step"
    step = "" if typical_us is None else f" {measured} takes {ms_of_us(typical_us)}."
    return f"Job: {facts}.{step} {run_words.verdict(result)}"


def _listed(heading: str, rows: list[str]) -> str:
    return "\n".join([f"{heading}:", *(f"- {row}" for row in rows)]) if rows else ""


def _change(finding: Finding) -> str:
    if finding.fix.patch:
        return f"Patch, for git apply:\n{finding.fix.patch.rstrip()}"
    return f"Example:\n{finding.fix.code.rstrip()}" if finding.fix.code else ""
