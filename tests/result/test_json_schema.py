"""The published schema is current, every field has a meaning and its unit, and documents follow the schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator
from support.traces import GetExample

from traceopt.result import document, finding
from traceopt.result.document import Result
from traceopt.result.field_notes import field_notes
from traceopt.result.sections import rank_rows, run, step, timeline_rows, work_rows

PAGE = Path(__file__).resolve().parents[2] / "docs" / "result.schema.json"
UNITS = {
    "_us": "us",
    "_share": "share",
    "_bytes": "bytes",
    "us_per_step": "us",
    "bytes_per_step": "bytes",
    "share": "share",
}


def parts() -> Iterator[type[msgspec.Struct]]:
    for module in (document, finding, rank_rows, run, step, timeline_rows, work_rows):
        for name, part in vars(module).items():
            if isinstance(part, type) and issubclass(part, msgspec.Struct) and not name.startswith("_"):
                yield part


def test_descriptions_are_the_same_in_every_version_of_python() -> None:
    """Before 3.13, docstrings keep the indentation of the source."""
    definitions = json.loads(Result.json_schema())["$defs"].values()
    assert [line for one in definitions for line in one["description"].splitlines() if line.startswith(" ")] == []


@pytest.mark.parametrize("part", [part for part in dict.fromkeys(parts()) if part is not msgspec.Struct])
def test_every_field_has_a_meaning_and_its_unit(part: type[msgspec.Struct]) -> None:
    notes = field_notes(part)
    assert notes.keys() == set(part.__struct_fields__)
    for name, note in notes.items():
        for ending, unit in UNITS.items():
            if name.endswith(ending) and note.type in (float, int, float | None, int | None):
                assert note.unit == unit, name


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    schema: dict[str, Any] = json.loads(PAGE.read_bytes())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


@pytest.mark.parametrize("scenario", ["five_faults", "straggler", "memory_pressure", "cpu_only", "healthy"])
def test_documents_follow_it(example: GetExample, scenario: str, validator: Draft202012Validator) -> None:
    validator.validate(json.loads(example(scenario).result.to_json()))


def test_a_document_that_does_not_follow_it_is_noticed(example: GetExample, validator: Draft202012Validator) -> None:
    odd = json.loads(example("healthy").result.to_json())
    odd["step"]["count"] = "five"
    assert [error.json_path for error in validator.iter_errors(odd)] == ["$.step.count"]
