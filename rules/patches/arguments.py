"""Patches for arguments of the optimizer, zero_grad and DistributedDataParallel."""

from __future__ import annotations

import ast

from traceopt.result.finding import Finding
from traceopt.rules.patches.edits import Edit, argument, set_keywords
from traceopt.rules.patches.origins import constructor
from traceopt.rules.patches.places import own_nodes, statements_of
from traceopt.rules.patches.source import PythonSource, UnclearError, constant, only

_FUSED = ("Adam", "AdamW", "SGD")  # these have a fused form on CUDA; the others only a foreach form
_FOREACH = ("ASGD", "Adadelta", "Adagrad", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop")
_DDP = "torch.nn.parallel.DistributedDataParallel"


def fused_optimizer(source: PythonSource, finding: Finding) -> list[Edit]:
    """OP001, OP002: fused=True if the optimizer supports it, else foreach=True if the finding mentions it."""
    kinds = (*_FUSED, *_FOREACH) if "foreach" in finding.fix.text else _FUSED
    steps = [call for call in _calls_at(source, finding) if _method(call) == "step"]
    if not steps:
        raise UnclearError("no optimizer step")
    values = [
        value for call in steps if isinstance(call.func, ast.Attribute) for value in (call.func.value, *call.args)
    ]

    def changes(call: ast.Call) -> bool:
        name = _optimizer(source, call)
        way = "fused" if name in _FUSED else "foreach"
        given = [argument(call, "differentiable"), argument(call, way)]
        return name in kinds and all(constant(one) in (None, False) for one in given)

    call = constructor(source, values, lambda call: _optimizer(source, call) is not None, changes)
    if _optimizer(source, call) in _FOREACH:
        return set_keywords(source, call, {"foreach": "True"})
    foreach = next((one for one in call.keywords if one.arg == "foreach"), None)
    if foreach is None:
        return set_keywords(source, call, {"fused": "True"})
    if argument(call, "fused") is not None:
        raise UnclearError("both foreach and fused are given")
    return [Edit(source.start(foreach), source.end(foreach), "fused=True")]


def zero_grad(source: PythonSource, finding: Finding) -> list[Edit]:
    """OP003: set gradients to None instead of zeroing them."""
    call = only([call for call in _calls_at(source, finding) if _method(call) == "zero_grad"])
    given = call.args[0] if call.args else argument(call, "set_to_none")
    if given is None:
        return set_keywords(source, call, {"set_to_none": "True"})
    if constant(given) is not False:
        raise UnclearError("the value is set elsewhere")
    return [Edit(source.start(given), source.end(given), "True")]


def ddp_buffers(source: PythonSource, finding: Finding) -> list[Edit]:
    """CM007: DistributedDataParallel without buffer broadcasts."""

    def changes(call: ast.Call) -> bool:
        return constant(argument(call, "broadcast_buffers")) in (None, True)

    values = [call.func for call in _calls_at(source, finding)]
    if not values:
        raise UnclearError("no call of the model")
    call = constructor(source, values, lambda call: source.dotted(call.func) == _DDP, changes)
    if len(call.args) > 4:
        raise UnclearError("broadcast_buffers may be passed by position")
    return set_keywords(source, call, {"broadcast_buffers": "False"})


def _calls_at(source: PythonSource, finding: Finding) -> list[ast.Call]:
    return [node for one in statements_of(source, finding) for node in own_nodes(one) if isinstance(node, ast.Call)]


def _method(call: ast.Call) -> str | None:
    return call.func.attr if isinstance(call.func, ast.Attribute) else None


def _optimizer(source: PythonSource, call: ast.Call) -> str | None:
    """The optimizer's class name: "AdamW" for a call of torch.optim.AdamW."""
    full = source.dotted(call.func) or ""
    name = full.rpartition(".")[2]
    return name if full.startswith("torch.optim.") and name in (*_FUSED, *_FOREACH) else None
