"""What traceopt says: `python benchmarks/referee/traceopt_answers.py FOLDER...` prints a JSON line for each."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from traceopt.api import analyze
from traceopt.reports.agent.words import limit
from traceopt.result.document import Result

LEAST_SHARE = 0.03  # of the step: below, the report itself says that nothing is worth a change
# By the code of a rule, or else its first two letters.
CAUSE_OF_RULE = {
    "DL": "input", "DL003": "copies", "DL004": "copies", "DL010": "needless work", "EF002": "input",
    "HS": "host sync", "LG002": "host sync", "LG004": "host sync",
    "LG": "python", "LB006": "python", "LB007": "python", "PY": "python",
    "LB": "launching", "LB003": "fusion", "LB004": "compilation", "LB005": "compilation",
    "MM": "memory allocation", "MM007": "needless work", "CP006": "memory allocation",
    "CM": "communication", "CM004": "imbalance", "CM012": "imbalance", "FR": "imbalance",
    "TC": "precision", "GM": "shapes", "EF018": "shapes", "CP": "arithmetic", "CP002": "python",
    "CV": "layout", "CV002": "fusion", "CV003": "compilation", "CV004": "compilation",
    "AT": "attention", "OP": "optimizer", "EF": "needless work",
}  # fmt: skip

SIDE_OF_LIMIT = {"GPU-bound": "gpu", "communication-bound": "communication", "copy-bound": "copies"}


def cause_of(code: str) -> str:
    return CAUSE_OF_RULE.get(code) or CAUSE_OF_RULE.get(code[:2], "other")


def answer(result: Result, seconds: float) -> dict[str, object]:
    """The plan in its order; without one, the findings with a saving that is worth a change. Without any, the side is
    the limit that the report names.
    """
    by_id = {finding.id: finding for finding in result.findings}
    findings = [by_id[row.finding] for row in result.plan]
    step_us = result.step.typical_us or 0.0
    findings = findings or [one for one in result.findings if one.saving and one.saving.share >= LEAST_SHARE]
    findings = [one for one in findings if one.saving is None or one.saving.est_us >= LEAST_SHARE * step_us]
    bound = limit(result)
    return {
        "sides": [] if findings or bound is None else [SIDE_OF_LIMIT.get(bound, "host")],
        "causes": [cause_of(finding.code) for finding in findings],
        "codes": [finding.code for finding in findings],
        "places": [[str(place) for place in finding.locations] for finding in findings],
        "gains_us": [finding.saving.est_us if finding.saving else None for finding in findings],
        "ranges_us": [
            (finding.saving.low_us, finding.saving.high_us) if finding.saving else (0.0, 0.0) for finding in findings
        ],
        "seconds": seconds,
    }


if __name__ == "__main__":
    for folder in sys.argv[1:]:
        began = sum(os.times()[:4])
        result = analyze(folder)
        print(json.dumps(answer(result, sum(os.times()[:4]) - began)), flush=True)
