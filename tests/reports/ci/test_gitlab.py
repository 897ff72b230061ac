"""GitLab's Code Quality report follows its schema, has the code in the text, and keeps hostile strings as text."""

from __future__ import annotations

import json
from typing import Any

import pytest
import sample
import schemas
from jsonschema import Draft7Validator

from traceopt.reports.ci.gitlab import render_gitlab

VALIDATOR = Draft7Validator(schemas.GITLAB)


def issues(result: Any) -> Any:
    return json.loads(render_gitlab(result))


@pytest.mark.parametrize("build", sample.ALL)
def test_valid_by_the_schema(build) -> None:
    found = issues(build())
    assert [error.message for error in VALIDATOR.iter_errors(found)] == []
    assert len({issue["fingerprint"] for issue in found}) == len(found)


def test_what_a_merge_request_shows() -> None:
    found = issues(sample.rich())
    assert [issue["severity"] for issue in found] == ["major", "major", "minor", "minor"]
    assert found[0]["location"] == {"path": "train.py", "lines": {"begin": 61}}
    assert found[0]["check_name"] == "DL001"
    assert found[0]["description"].startswith(
        "DL001: Load data in worker processes, saves about 150\u00a0ms per step (36%) alone. The loader runs inside"
    )


def test_hostile_strings_are_text() -> None:
    found = issues(sample.hostile())
    assert len(found) >= 3
    for issue in found:
        assert issue["description"].replace("\u00a0", " ").isprintable()
        assert issue["location"]["path"].isprintable()
