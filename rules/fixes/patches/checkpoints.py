"""Calls layers directly that activation checkpointing runs twice."""

from __future__ import annotations

import ast

from traceopt.result.finding import Finding
from traceopt.rules.fixes.patches.places import own_nodes, statements_of
from traceopt.rules.fixes.patches.source import PythonSource, UnclearError, constant, only
from traceopt.rules.fixes.patches.text_edits import TextEdit, argument

CHECKPOINT = "torch.utils.checkpoint.checkpoint"
REMOVED = f"{CHECKPOINT}.removed"
_OWN = ("use_reentrant", "preserve_rng_state", "determinism_check", "debug", "early_stop")  # not passed on
_PLAIN = (ast.Name, ast.Attribute, ast.Subscript)  # what can be called without parentheses around it
_INDEX = "index"  # of the layers


def without_checkpoint(source: PythonSource, finding: Finding) -> list[TextEdit]:
    """`checkpoint(layer, x, use_reentrant=False)` becomes `layer(x)`, at each line of the finding; or only for every
    second layer of a loop over layers.

    With use_reentrant=True, a layer whose inputs need no gradient is not trained, so that the call does more than to
    save memory.
    """
    nodes = (node for statement in statements_of(source, finding) for node in own_nodes(statement))
    found = {node: None for node in nodes if isinstance(node, ast.Call) and source.dotted(node.func) == CHECKPOINT}
    if not found:
        raise UnclearError("no call of checkpoint")
    if finding.fix.settings.get(REMOVED):
        return _every_second(source, only(list(found)))
    return [TextEdit(source.start(call), source.end(call), _direct(source, call)) for call in found]


def _every_second(source: PythonSource, call: ast.Call) -> list[TextEdit]:
    """The first of two layers is checkpointed, so that at most half of them keep what they compute."""
    direct, layer = _direct(source, call), call.args[0]
    loop = next(iter(source.loops(call)), None)
    if not (isinstance(loop, ast.For) and isinstance(layer, ast.Name) and isinstance(loop.target, ast.Name)):
        raise UnclearError("no loop over layers")
    names = [node for part in loop.body for node in ast.walk(part) if isinstance(node, ast.Name)]
    rebound = any(node.id == layer.id and isinstance(node.ctx, ast.Store) for node in names)
    if loop.target.id != layer.id or rebound or isinstance(loop.iter, ast.Tuple):
        raise UnclearError("no plain loop over layers")
    if any(_INDEX in (getattr(node, "id", None), getattr(node, "arg", None)) for node in source.nodes):
        raise UnclearError(f"{_INDEX} is used already")
    return [
        TextEdit(source.start(loop.target), source.end(loop.target), f"{_INDEX}, {layer.id}"),
        TextEdit(source.start(loop.iter), source.end(loop.iter), f"enumerate({source.slice(loop.iter)})"),
        TextEdit(source.start(call), source.end(call), f"({direct} if {_INDEX} % 2 else {source.slice(call)})"),
    ]


def _direct(source: PythonSource, call: ast.Call) -> str:
    if "#" in source.slice(call):
        raise UnclearError("a comment inside of the call would be lost")
    names = [keyword.arg for keyword in call.keywords]
    if not call.args or isinstance(call.args[0], ast.Starred) or None in names or "context_fn" in names:
        raise UnclearError("checkpoint is called in an unusual way")
    if constant(argument(call, "use_reentrant")) is not False:
        raise UnclearError("the checkpoint is reentrant, or may be")
    function, *inputs = call.args
    passed = [*map(source.slice, inputs)]
    passed += [f"{keyword.arg}={source.slice(keyword.value)}" for keyword in call.keywords if keyword.arg not in _OWN]
    called = source.slice(function) if isinstance(function, _PLAIN) else f"({source.slice(function)})"
    return f"{called}({', '.join(passed)})"
