"""The JSON schema of the result document, from the types, meanings and units of its fields."""

from __future__ import annotations

from typing import Any

import msgspec

from traceopt.result.document import SCHEMA_VERSION, Result
from traceopt.result.serialization import to_indented_json


def result_schema() -> bytes:
    """JSON Schema 2020-12, indented. `unit` says what a number counts; a share is 0..1."""
    schema: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"traceopt result document, schema {SCHEMA_VERSION}",
    }
    return to_indented_json(schema | msgspec.json.schema(Result))
