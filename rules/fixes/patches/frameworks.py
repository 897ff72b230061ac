"""Patches for the settings of a training framework: TrainingArguments, Lightning's Trainer, Accelerator."""

from __future__ import annotations

import ast
import re

from traceopt.result.finding import Finding
from traceopt.rules.fixes.patches.origins import constructed_at
from traceopt.rules.fixes.patches.source import PythonSource, UnclearError, constant, only
from traceopt.rules.fixes.patches.text_edits import TextEdit, argument, set_keywords

# As fixes/framework_arguments.py writes it: "TrainingArguments(..., bf16=True)".
_SETTINGS = re.compile(r"(?!DataLoader\()[^\W\d]\w*\(\.\.\., .+\)")


def changes_settings(finding: Finding) -> bool:
    """Whether the fix is an argument of a framework's settings."""
    return _SETTINGS.fullmatch(finding.fix.code or "") is not None


def framework_settings(source: PythonSource, finding: Finding) -> list[TextEdit]:
    """Sets the arguments of the fix in the call at the finding's first location."""
    code = finding.fix.code or ""
    example = ast.parse(code, mode="eval").body
    if not isinstance(example, ast.Call):
        raise UnclearError("no settings")
    name = ast.unparse(example.func)
    call = only(constructed_at(source, finding.locations[0], lambda call: _name(source, call) == name))
    wanted = {one.arg: ast.get_source_segment(code, one.value) or "" for one in example.keywords if one.arg}
    if len(call.args) > 1 or any(constant(argument(call, one)) is ... for one in wanted):
        raise UnclearError("the value comes from elsewhere")
    return set_keywords(source, call, wanted)


def _name(source: PythonSource, call: ast.Call) -> str:
    return (source.dotted(call.func) or ast.unparse(call.func)).rpartition(".")[2]
