"""Calls layers directly that activation checkpointing runs twice."""

from __future__ import annotations

import ast

from traceopt.result.finding import Finding
from traceopt.rules.fixes.patches.places import own_nodes, statements_of
from traceopt.rules.fixes.patches.source import PythonSource, UnclearError, constant
from traceopt.rules.fixes.patches.text_edits import TextEdit, argument

CHECKPOINT = "torch.utils.checkpoint.checkpoint"
_OWN = ("use_reentrant", "preserve_rng_state", "determinism_check", "debug", "early_stop")  # not passed on
_PLAIN = (ast.Name, ast.Attribute, ast.Subscript)  # what can be called without parentheses around it


def without_checkpoint(source: PythonSource, finding: Finding) -> list[TextEdit]:
    """`checkpoint(layer, x, use_reentrant=False)` becomes `layer(x)`, at each line of the finding.

    With use_reentrant=True, a layer whose inputs need no gradient is not trained, so that the call does more than to
    save memory.
    """
    nodes = (node for statement in statements_of(source, finding) for node in own_nodes(statement))
    calls = {node: None for node in nodes if isinstance(node, ast.Call) and source.dotted(node.func) == CHECKPOINT}
    if not calls:
        raise UnclearError("no call of checkpoint")
    return [_direct(source, call) for call in calls]


def _direct(source: PythonSource, call: ast.Call) -> TextEdit:
    names = [keyword.arg for keyword in call.keywords]
    if not call.args or isinstance(call.args[0], ast.Starred) or None in names or "context_fn" in names:
        raise UnclearError("checkpoint is called in an unusual way")
    if constant(argument(call, "use_reentrant")) is not False:
        raise UnclearError("the checkpoint is reentrant, or may be")
    function, *inputs = call.args
    passed = [*map(source.slice, inputs)]
    passed += [f"{one.arg}={source.slice(one.value)}" for one in call.keywords if one.arg not in _OWN]
    called = source.slice(function) if isinstance(function, _PLAIN) else f"({source.slice(function)})"
    return TextEdit(source.start(call), source.end(call), f"{called}({', '.join(passed)})")
