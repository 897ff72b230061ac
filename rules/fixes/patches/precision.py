"""Patches for precision and convolution: TF32, subnormal numbers, cuDNN benchmark, autocast, channels_last."""

from __future__ import annotations

import ast

from traceopt.result.edits import Call, SetAttribute
from traceopt.result.finding import Finding
from traceopt.rules.fixes.patches.source import PythonSource, UnclearError, only
from traceopt.rules.fixes.patches.text_edits import TextEdit, after_imports, put_inside, set_keywords

# Methods that pass on a batch or a result without model work.
_PLAIN = frozenset(
    """
    clone contiguous cuda detach dim flatten float int items len list long next permute requires_grad_ reshape size
    squeeze to tuple unsqueeze view
    """.split()  # noqa: SIM905
)
# Code that does not work under autocast to bfloat16 as it is, or that already chooses its own precision.
_INCOMPATIBLE = ("autocast", "GradScaler", "BCELoss", "binary_cross_entropy(", ".numpy(", ".half(", ".bfloat16(")


def tf32(source: PythonSource, finding: Finding) -> list[TextEdit]:
    """Adds lines below the imports of the script."""
    if source.mentions("set_float32_matmul_precision", "allow_tf32", "fp32_precision"):
        raise UnclearError("set already")
    return _switches(source, finding)


def cudnn_benchmark(source: PythonSource, finding: Finding) -> list[TextEdit]:
    """Switches off what the script switches on, or adds one line below its imports."""
    wanted = finding.fix.settings["torch.backends.cudnn.benchmark"]
    switched_on = [
        node.value
        for node in source.nodes
        if isinstance(node, ast.Assign)
        and source.dotted(node.targets[0]) == "torch.backends.cudnn.benchmark"
        and isinstance(node.value, ast.Constant)
        and node.value.value is True
    ]
    if wanted == "False" and len(switched_on) == 1:
        return [TextEdit(source.start(switched_on[0]), source.end(switched_on[0]), wanted)]
    if source.mentions("cudnn.benchmark", "cudnn.deterministic", "use_deterministic_algorithms"):
        raise UnclearError("set already")
    return _switches(source, finding)


def flush_denormal(source: PythonSource, finding: Finding) -> list[TextEdit]:
    """Adds one line below the imports of the script."""
    if source.mentions("set_flush_denormal"):
        raise UnclearError("set already")
    return _switches(source, finding)


def _switches(source: PythonSource, finding: Finding) -> list[TextEdit]:
    """The calls and attributes of torch that the fix sets."""
    guards = [
        statement.test
        for statement in source.tree.body
        if isinstance(statement, ast.If) and isinstance(statement.test, ast.Compare)
    ]
    if not _trains(source) and not any(_name(guard.left) == "__name__" for guard in guards):
        raise UnclearError("a library: the importing script decides")
    lines = [edit.code for edit in finding.fix.edits if isinstance(edit, (Call, SetAttribute))]
    return after_imports(source, "torch", lines)


def _trains(source: PythonSource) -> bool:
    return any(_name(call.func) == "backward" for call in source.calls)


def autocast(source: PythonSource, finding: Finding) -> list[TextEdit]:
    """Wraps the forward pass and the loss, if their statements are consecutive."""
    settings = finding.fix.settings
    if settings["torch.autocast.dtype"] != "torch.bfloat16" or source.mentions(*_INCOMPATIBLE):
        raise UnclearError("autocast alone is not enough")
    backward = only([node for node in source.nodes if isinstance(node, ast.Expr) and _backward_of(node) is not None])
    forward = _forward(source, backward, _backward_of(backward) or "")
    torch, device = source.module("torch"), settings["torch.autocast.device_type"]
    return put_inside(source, forward, f"with {torch}.autocast(device_type={device}, dtype={torch}.bfloat16):")


def _backward_of(statement: ast.Expr) -> str | None:
    """The variable that the statement calls backward() on: "loss" in loss.backward()."""
    call = statement.value
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "backward":
        return call.func.value.id if isinstance(call.func.value, ast.Name) else ""
    return None


def _forward(source: PythonSource, backward: ast.Expr, loss: str) -> list[ast.stmt]:
    """The statements that lead to the loss, from the first one that does model work."""
    block = source.block(backward)
    statements = block[: block.index(backward)]
    wanted = {loss}
    chain: list[int] = []
    for index in range(len(statements) - 1, -1, -1):
        statement = statements[index]
        stored = _names(statement, ast.Store)
        if not stored & wanted:
            continue
        if not isinstance(statement, ast.Assign):
            raise UnclearError("not a plain forward pass")
        wanted = (wanted - stored) | _names(statement.value, ast.Load)
        chain.append(index)
    chained = {node for index in chain for node in ast.walk(statements[index])}
    others = {node for statement in source.iteration(backward) for node in ast.walk(statement)} - chained
    names = [node for node in others if isinstance(node, ast.Name) and node.lineno < backward.lineno]
    if any(node.id in wanted and isinstance(node.ctx, ast.Store) for node in names):
        raise UnclearError("part of the forward pass is in another block")
    working = [index for index in chain if _works(statements[index])]
    if not working:
        raise UnclearError("no forward pass")
    forward = list(range(min(working), max(chain) + 1))
    if any(index not in chain and not _clears_gradients(statements[index]) for index in forward):
        raise UnclearError("another statement in between")
    return [statements[index] for index in forward]


def _works(statement: ast.stmt) -> bool:
    return any(isinstance(node, ast.Call) and _name(node.func) not in _PLAIN for node in ast.walk(statement))


def _clears_gradients(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Call) and _name(value.func) == "zero_grad"


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _names(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    return {name.id for name in ast.walk(node) if isinstance(name, ast.Name) and isinstance(name.ctx, context)}


def channels_last(source: PythonSource, _: Finding) -> list[TextEdit]:
    """For both the model and its input, if one `.to(...)` each moves them to the device."""
    if not _trains(source) or source.mentions("channels_last", "memory_format", "Conv1d", "Conv3d", ".view("):
        raise UnclearError("another layout")
    moves: dict[str, list[ast.Call]] = {}
    for node in source.nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = node.value
            if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "to":
                moves.setdefault(node.targets[0].id, []).append(value)
    pairs = {
        (call.func.id, call.args[0].id)
        for call in source.calls
        if isinstance(call.func, ast.Name) and call.args and isinstance(call.args[0], ast.Name)
    }
    model, images = only([pair for pair in sorted(pairs) if moves.keys() >= set(pair)])
    layout = {"memory_format": f"{source.module('torch')}.channels_last"}
    return [*set_keywords(source, only(moves[model]), layout), *set_keywords(source, only(moves[images]), layout)]
