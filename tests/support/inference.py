"""Inference: launched, replayed and compiled."""

from __future__ import annotations

from traceopt.result.finding import Finding

COMPILED_REGION = "## Call CompiledFxGraph fabc ##"


def advice(finding: Finding) -> str:
    return f"{finding.title}. {finding.fix.text} {finding.fix.code or ''}"
