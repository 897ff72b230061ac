"""What traceopt says: `python benchmarks/referee/traceopt_answers.py FOLDER...` prints a JSON line for each."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from traceopt.api import analyze
from traceopt.result.document import Result

LEAST_SHARE = 0.03  # of the step: below, the report itself says that nothing is worth a change
CAUSE_OF_RULE = {
    "DL": "input", "EF002": "input", "DL003": "copies", "DL004": "copies", "CP004": "input",
    "HS": "host sync", "LG002": "host sync", "LG004": "host sync",
    "LG001": "python", "LG003": "python", "LB006": "python", "LB007": "python", "PY": "python", "LG005": "python",
    "EF008": "recomputation",
    "LB": "launching", "CV004": "compilation", "LB003": "fusion", "LB004": "compilation", "LB005": "compilation",
    "MM003": "memory allocation", "MM": "memory allocation", "MM007": "recomputation",
    "CM": "communication", "CM003": "imbalance", "CM004": "imbalance", "CM012": "imbalance",
    "TC": "precision", "GM": "shapes", "EF018": "shapes", "CV": "layout", "CV002": "compilation", "CV003": "fusion",
    "AT": "attention", "OP": "optimizer",
}  # fmt: skip


def cause_of(code: str) -> str:
    return CAUSE_OF_RULE.get(code) or CAUSE_OF_RULE.get(code[:2], "other")


def answer(result: Result, seconds: float) -> dict[str, object]:
    """The plan in its order; without one, the findings with a saving that is worth a change."""
    by_id = {finding.id: finding for finding in result.findings}
    findings = [by_id[row.finding] for row in result.plan]
    step_us = result.step.typical_us or 0.0
    findings = findings or [one for one in result.findings if one.saving and one.saving.share >= LEAST_SHARE]
    findings = [one for one in findings if one.saving is None or one.saving.est_us >= LEAST_SHARE * step_us]
    return {
        "causes": [cause_of(finding.code) for finding in findings],
        "codes": [finding.code for finding in findings],
        "places": [[str(place) for place in finding.locations] for finding in findings],
        "gains_us": [finding.saving.est_us if finding.saving else None for finding in findings],
        "seconds": seconds,
    }


if __name__ == "__main__":
    for folder in sys.argv[1:]:
        began = time.perf_counter()
        result = analyze(folder)
        print(json.dumps(answer(result, time.perf_counter() - began)), flush=True)
