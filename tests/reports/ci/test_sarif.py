"""SARIF follows the OASIS schema and GitHub's limits, and the same finding has the same fingerprint."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import unquote

import pytest
import sample
import schemas
from jsonschema import Draft7Validator, FormatChecker
from msgspec.structs import replace

from fixtures.hostile import HOSTILE
from traceopt.reports.ci.sarif import DESCRIPTION_LIMIT, NAME_LIMIT, render_sarif
from traceopt.result.comparison import GateOutcome
from traceopt.result.document import Result
from traceopt.result.finding import Finding, Fix, Location
from traceopt.rules.fingerprint import with_ids


@pytest.fixture(scope="module")
def validator() -> Draft7Validator:
    return Draft7Validator(schemas.sarif(), format_checker=FormatChecker())


def run_of(result: Result, **options: Any) -> Any:
    (run,) = json.loads(render_sarif(result, **options))["runs"]
    return run


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from strings(item)


@pytest.mark.parametrize("build", sample.ALL)
def test_valid_by_the_schema(build, validator: Draft7Validator) -> None:
    document = json.loads(render_sarif(build(), label="two words/and\na line"))
    assert [error.message for error in validator.iter_errors(document)] == []
    assert document["version"] == "2.1.0"


def test_the_schema_finds_mistakes(validator: Draft7Validator) -> None:
    document = json.loads(render_sarif(sample.rich()))
    document["runs"][0]["results"][0]["level"] = "high"
    document["runs"][0]["results"][1]["line"] = 3
    assert len(list(validator.iter_errors(document))) == 2


def test_what_code_scanning_shows() -> None:
    run = run_of(sample.rich(), label="resnet")
    assert run["automationDetails"]["id"] == "resnet/"
    first = run["results"][0]
    assert (first["ruleId"], first["level"]) == ("DL001", "warning")
    assert first["message"]["text"].startswith(
        "Load data in worker processes: saves about 150\u00a0ms per step (36%) alone. "
    )
    physical = first["locations"][0]["physicalLocation"]
    assert physical["artifactLocation"] == {"uri": "train.py", "uriBaseId": "%SRCROOT%"}
    assert physical["region"] == {"startLine": 61, "endLine": 61}
    rules = run["tool"]["driver"]["rules"]
    assert [rules[result["ruleIndex"]]["id"] for result in run["results"]] == [one["ruleId"] for one in run["results"]]
    assert [result["level"] for result in run["results"]] == ["warning"] * 4
    assert (rules[1]["properties"]["precision"], first["properties"]["savingMs"]) == ("medium", 150.0)


def test_a_rule_is_described_as_in_every_run() -> None:
    rich = sample.rich()
    loader = replace(rich.findings[0], title="Load 61 items", fix=Fix("Use 61 workers.", edits=[]))
    rules = [run_of(one)["tool"]["driver"]["rules"][0] for one in (rich, replace(rich, findings=[loader]))]
    assert rules[0] == rules[1]
    assert rules[0]["fullDescription"]["text"].startswith("Load data in worker processes. Measures the time in which")
    assert "## Thresholds" in rules[0]["help"]["markdown"]


def test_only_a_gate_that_failed_is_an_error() -> None:
    gates = [GateOutcome("high", level, "failed", "findings of high impact: DL001") for level in ("fail", "warn")]
    notes = run_of(sample.rich(), gates=gates)["invocations"][0]["toolExecutionNotifications"]
    assert [(note["level"], note["message"]["text"]) for note in notes[:2]] == [
        ("error", "findings of high impact: DL001 (--fail-on high)"),
        ("warning", "findings of high impact: DL001 (--warn-on high)"),
    ]


def test_findings_without_a_place_are_listed() -> None:
    notes = [note["message"]["text"] for note in run_of(sample.rich())["invocations"][0]["toolExecutionNotifications"]]
    assert notes[0] == "Left out, because they have no place in the repository: CM004, TC003."


def test_a_rule_that_found_two_things_is_listed_once() -> None:
    rich = sample.rich()
    again = replace(rich.findings[0], locations=[Location("train.py", 70, "build_loader")])
    run = run_of(replace(rich, findings=with_ids([rich.findings[0], rich.findings[2], again])))
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["DL001", "HS002"]
    assert [result["ruleIndex"] for result in run["results"]] == [0, 1, 0]
    assert len({result["partialFingerprints"]["primaryLocationLineHash"] for result in run["results"]}) == 3


def test_lines_and_times_are_not_in_the_fingerprint() -> None:
    rich = sample.rich()
    moved = [
        replace(
            one,
            why="Other numbers.",
            saving=one.saving and replace(one.saving, est_us=1.0),
            locations=[replace(place, line=(place.line or 0) + 7) for place in one.locations],
        )
        for one in rich.findings
    ]

    def marks(findings: Sequence[Finding]) -> list[Any]:
        found = with_ids([replace(one, id="") for one in findings])
        return [one["partialFingerprints"] for one in run_of(replace(rich, findings=found))["results"]]

    assert marks(moved) == marks(rich.findings)


def test_unusable_trace_has_no_savings() -> None:
    run = run_of(sample.unusable())
    assert all("savingMs" not in one["properties"] and one["level"] == "note" for one in run["results"])
    assert run["invocations"][0]["toolExecutionNotifications"][0]["level"] == "error"


def test_hostile_strings_are_text_within_githubs_limits() -> None:
    run = run_of(sample.hostile())
    assert len(run["results"]) >= 3
    everything = list(strings(run))
    assert not {char for string in everything for char in string if not char.isprintable()} - {"\n", "\u00a0"}
    assert any(attack in string for attack in HOSTILE[:5] for string in everything)
    for rule in run["tool"]["driver"]["rules"]:
        assert len(rule["name"]) <= NAME_LIMIT
        assert len(rule["shortDescription"]["text"]) <= DESCRIPTION_LIMIT
        assert len(rule["fullDescription"]["text"]) <= DESCRIPTION_LIMIT
        assert "](" not in rule["help"]["text"]
    for result in run["results"]:
        assert "](" not in result["message"]["text"]  # an embedded link
        for location in [*result["locations"], *result.get("relatedLocations", ())]:
            uri = location["physicalLocation"]["artifactLocation"]["uri"]
            assert uri.isascii()
            assert ":" not in uri
            assert not unquote(uri).startswith(("/", "~", ".."))
