"""Patches for the settings of a training framework: TrainingArguments, Lightning's Trainer, Accelerator."""

from __future__ import annotations

import ast

from traceopt.result.finding import Finding
from traceopt.rules.fixes.patches.origins import constructed_at
from traceopt.rules.fixes.patches.source import PythonSource, UnclearError, constant, only
from traceopt.rules.fixes.patches.text_edits import TextEdit, argument, set_keywords


def framework_settings(source: PythonSource, finding: Finding) -> list[TextEdit]:
    """Sets the framework's arguments in the call at the finding's first location."""
    settings = finding.fix.in_framework
    if settings is None:
        raise UnclearError("no settings")
    call = only(constructed_at(source, finding.locations[0], lambda call: _name(source, call) == settings.callee))
    if len(call.args) > 1 or any(constant(argument(call, name)) is ... for name in settings.arguments):
        raise UnclearError("the value comes from elsewhere")
    return set_keywords(source, call, settings.arguments)


def _name(source: PythonSource, call: ast.Call) -> str:
    return (source.dotted(call.func) or ast.unparse(call.func)).rpartition(".")[2]
