"""Patches for arguments of the optimizer, zero_grad, embeddings and DistributedDataParallel."""

from __future__ import annotations

import ast
from contextlib import suppress

from traceopt.result.finding import Finding
from traceopt.rules.fixes.optimizers import FOREACH, FUSED
from traceopt.rules.fixes.patches.origins import Wanted, constructed_at, constructor
from traceopt.rules.fixes.patches.places import own_nodes, statements_at
from traceopt.rules.fixes.patches.source import PythonSource, UnclearError, constant, only
from traceopt.rules.fixes.patches.text_edits import TextEdit, argument, set_keywords

_EMBEDDINGS = ("torch.nn.Embedding", "torch.nn.EmbeddingBag")
_DDP = "torch.nn.parallel.DistributedDataParallel"


def fused_optimizer(source: PythonSource, finding: Finding) -> list[TextEdit]:
    """fused=True or foreach=True, as the fix says for each kind of optimizer; for each optimizer of the script."""
    settings = finding.fix.settings

    def changes(call: ast.Call) -> bool:
        given = [argument(call, "differentiable"), argument(call, _way(source, call))]
        wanted = f"torch.optim.{_optimizer(source, call)}.{_way(source, call)}" in settings
        return wanted and all(constant(value) in (None, False) for value in given)

    calls = _optimizers(source, finding, changes)
    return [edit for call in calls for edit in _fused(source, call)]


def _optimizers(source: PythonSource, finding: Finding, changes: Wanted) -> list[ast.Call]:
    """The optimizers that the fix changes: those constructed at the finding's locations, else those that step there."""

    def wanted(call: ast.Call) -> bool:
        return _optimizer(source, call) is not None

    built = [call for place in finding.locations for call in constructed_at(source, place, wanted)]
    if built:
        return [call for call in dict.fromkeys(built) if changes(call)]
    found: dict[ast.Call, None] = {}
    for step in (call for call in _calls_at(source, finding) if _method(call) == "step"):
        if isinstance(step.func, ast.Attribute):
            with suppress(UnclearError):  # the other optimizers still gain
                found[constructor(source, (step.func.value, *step.args), wanted, changes)] = None
    if not found:
        raise UnclearError("no optimizer")
    return list(found)


def _fused(source: PythonSource, call: ast.Call) -> list[TextEdit]:
    if _way(source, call) == "foreach":
        return set_keywords(source, call, {"foreach": "True"})
    foreach = next((keyword for keyword in call.keywords if keyword.arg == "foreach"), None)
    if foreach is None:
        return set_keywords(source, call, {"fused": "True"})
    if argument(call, "fused") is not None:
        raise UnclearError("both foreach and fused are given")
    return [TextEdit(source.start(foreach), source.end(foreach), "fused=True")]


def zero_grad(source: PythonSource, finding: Finding) -> list[TextEdit]:
    """Set gradients to None instead of zeroing them."""
    call = only([call for call in _calls_at(source, finding) if _method(call) == "zero_grad"])
    given = call.args[0] if call.args else argument(call, "set_to_none")
    if given is None:
        return set_keywords(source, call, {"set_to_none": "True"})
    if constant(given) is not False:
        raise UnclearError("the value is set elsewhere")
    return [TextEdit(source.start(given), source.end(given), "True")]


def sparse_embedding(source: PythonSource, finding: Finding) -> list[TextEdit]:
    """The embedding with sparse gradients. A table whose rows are scaled by frequency cannot have them."""

    def changes(call: ast.Call) -> bool:
        given = [argument(call, name) for name in ("sparse", "scale_grad_by_freq", "mode")]
        return len(call.args) <= 2 and all(constant(value) in (None, False) for value in given)

    values = [call.func for call in _calls_at(source, finding)]
    call = constructor(source, values, lambda call: source.dotted(call.func) in _EMBEDDINGS, changes)
    return set_keywords(source, call, {"sparse": "True"})


def ddp_buffers(source: PythonSource, finding: Finding) -> list[TextEdit]:
    """DistributedDataParallel without buffer broadcasts."""

    def changes(call: ast.Call) -> bool:
        return constant(argument(call, "broadcast_buffers")) in (None, True)

    values = [call.func for call in _calls_at(source, finding)]
    if not values:
        raise UnclearError("no call of the model")
    call = constructor(source, values, lambda call: source.dotted(call.func) == _DDP, changes)
    if len(call.args) > 4:
        raise UnclearError("broadcast_buffers may be passed by position")
    return set_keywords(source, call, {"broadcast_buffers": "False"})


def ddp_search(source: PythonSource, finding: Finding) -> list[TextEdit]:
    """DistributedDataParallel without the search for unused parameters, at the line that constructs it."""
    call = only(constructed_at(source, finding.locations[0], lambda call: source.dotted(call.func) == _DDP))
    if constant(argument(call, "find_unused_parameters")) is not True:
        raise UnclearError("find_unused_parameters is set elsewhere")
    return set_keywords(source, call, {"find_unused_parameters": "False"})


def _calls_at(source: PythonSource, finding: Finding) -> list[ast.Call]:
    """The calls in the statements at all locations of a finding."""
    statements = dict.fromkeys(statement for place in finding.locations for statement in statements_at(source, place))
    return [node for statement in statements for node in own_nodes(statement) if isinstance(node, ast.Call)]


def _method(call: ast.Call) -> str | None:
    return call.func.attr if isinstance(call.func, ast.Attribute) else None


def _way(source: PythonSource, call: ast.Call) -> str:
    return "fused" if _optimizer(source, call) in FUSED else "foreach"


def _optimizer(source: PythonSource, call: ast.Call) -> str | None:
    """The optimizer's class name: "AdamW" for a call of torch.optim.AdamW."""
    full = source.dotted(call.func) or ""
    name = full.rpartition(".")[2]
    return name if full.startswith("torch.optim.") and name in (*FUSED, *FOREACH) else None
