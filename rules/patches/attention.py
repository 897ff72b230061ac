"""AT001: replaces attention written as matmul, softmax, matmul with one call of the fused operator."""

from __future__ import annotations

import ast
from collections import Counter

from traceopt.result.finding import Finding
from traceopt.rules.patches.edits import Edit, removed
from traceopt.rules.patches.places import statements_at
from traceopt.rules.patches.source import PythonSource, UnclearError, only

_FUNCTIONAL = "torch.nn.functional"
_MATMULS = ("torch.matmul", "torch.bmm")
_SOFTMAX = ("torch.softmax", f"{_FUNCTIONAL}.softmax")
_NEVER = ("float('-inf')", "-float('inf')", "-math.inf", "-torch.inf", "-np.inf")  # as ast.unparse writes them


def fused_attention(source: PythonSource, finding: Finding) -> list[Edit]:
    """One call for `softmax(query @ key.transpose(-2, -1) * scale [+ mask], -1) @ value`, over one or more statements.

    Raises UnclearError for dropout, for weights used elsewhere, and for any other operation in between.
    """
    statements = [one for place in finding.locations for one in statements_at(source, place)]
    scopes = dict.fromkeys(source.scope(one) for one in statements)
    values = [node for scope in scopes for node in ast.walk(scope) if isinstance(node, ast.expr)]
    found = []
    for node in values:
        try:
            weights, value = _matmul(source, node)
            found.append(_Written(source, node).replaced(weights, value))
        except UnclearError:
            continue
    return only(found)


class _Written:
    """Reads attention backwards from its last matmul; statements that only lead to it are removed."""

    def __init__(self, source: PythonSource, last: ast.expr) -> None:
        self.source, self.last = source, last
        statement = source.statement(last)
        block = source.block(statement)
        self.before = block[: block.index(statement)]
        self.read = self.before
        self.removed: list[ast.Assign] = []
        self.names: Counter[str] = Counter()
        self.reused: list[ast.expr] = []

    def replaced(self, weights: ast.expr, value: ast.expr) -> list[Edit]:
        query, transposed, options = self._scores(_softmax(self.source, self._follow(weights)))
        key = _untransposed(self._follow(transposed))
        operands = ", ".join(self._text(one) for one in (query, key, value))
        self._check()
        called = f"{_functional(self.source)}.scaled_dot_product_attention({operands}, {options})"
        edits = [Edit(self.source.start(self.last), self.source.end(self.last), called)]
        for statement in self.removed:
            edits += removed(self.source, statement)
        return edits

    def _scores(self, scores: ast.expr) -> tuple[ast.expr, ast.expr, str]:
        """Both factors of the first matmul, and the mask and scale arguments. The mask is applied after the scale."""
        mask = scale = ""
        while True:
            scores = self._follow(scores)
            try:
                query, transposed = _matmul(self.source, scores)
            except UnclearError:
                pass
            else:
                return query, transposed, f"{mask}scale={scale or '1.0'}"
            if isinstance(scores, ast.Call) and not mask and not scale:
                mask, scores = self._filled(scores)
            elif isinstance(scores, ast.BinOp) and isinstance(scores.op, ast.Add) and not mask and not scale:
                mask, scores = f"attn_mask={self._text(scores.right)}, ", scores.left
            elif isinstance(scores, ast.BinOp) and isinstance(scores.op, (ast.Mult, ast.Div)) and not scale:
                scale = self._text(scores.right)
                if isinstance(scores.op, ast.Div):
                    scale = f"1 / ({scale})" if isinstance(scores.right, ast.BinOp) else f"1 / {scale}"
                scores = scores.left
            else:
                raise UnclearError("another operation")

    def _filled(self, call: ast.Call) -> tuple[str, ast.expr]:
        """The argument for scores.masked_fill(mask == 0, -inf), and the scores. True in the operator's mask attends."""
        function = call.func
        if not (isinstance(function, ast.Attribute) and function.attr == "masked_fill" and len(call.args) == 2):
            raise UnclearError("another operation")
        where, fill = call.args
        if ast.unparse(fill) not in _NEVER:
            raise UnclearError("another fill value")
        if isinstance(where, ast.Compare) and isinstance(where.ops[0], ast.Eq) and _literal(where.comparators[0]) == 0:
            return f"attn_mask={self._text(where.left)} != 0, ", function.value
        if isinstance(where, ast.UnaryOp) and isinstance(where.op, ast.Invert):
            return f"attn_mask={self._text(where.operand)}, ", function.value
        if isinstance(where, (ast.Name, ast.Attribute, ast.Subscript)):
            return f"attn_mask=~{self._text(where)}, ", function.value
        raise UnclearError("another mask")

    def _text(self, value: ast.expr) -> str:
        self.reused.append(value)
        return self.source.slice(value)

    def _follow(self, value: ast.expr) -> ast.expr:
        """The value that the nearest statement above in this block assigns to a name; else the value itself."""
        while isinstance(value, ast.Name):
            name = value.id
            index = next((i for i in range(len(self.read) - 1, -1, -1) if name in _stored(self.read[i])), None)
            statement = self.read[index] if index is not None else None
            if not isinstance(statement, ast.Assign) or not isinstance(only(statement.targets), ast.Name):
                return value
            self.names[name] += 1
            self.removed.append(statement)
            self.read = self.read[:index]
            value = statement.value
        return value

    def _check(self) -> None:
        """Raises UnclearError if a removed statement, or the order of the remaining ones, matters elsewhere."""
        scope = self.source.scope(self.last)
        used = [node for node in ast.walk(scope) if isinstance(node, ast.Name) and node.id in self.names]
        for context in (ast.Load, ast.Store):
            if Counter(node.id for node in used if isinstance(node.ctx, context)) != self.names:
                raise UnclearError("used elsewhere")
        needed = {node.id for value in self.reused for node in ast.walk(value) if isinstance(node, ast.Name)}
        first = min((self.before.index(one) for one in self.removed), default=len(self.before))
        for statement in self.before[first:]:
            stays = statement not in self.removed
            if stays and not (isinstance(statement, ast.Assign) and needed.isdisjoint(_stored(statement))):
                raise UnclearError("an operand changes in between")


def _matmul(source: PythonSource, node: ast.AST) -> tuple[ast.expr, ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return node.left, node.right
    if isinstance(node, ast.Call) and source.dotted(node.func) in _MATMULS and len(node.args) == 2:
        return node.args[0], node.args[1]
    raise UnclearError("no matmul")


def _softmax(source: PythonSource, node: ast.expr) -> ast.expr:
    """The input of softmax(..., dim=-1)."""
    if not isinstance(node, ast.Call):
        raise UnclearError("no softmax")
    arguments = list(node.args)
    if source.dotted(node.func) not in _SOFTMAX:
        if not (isinstance(node.func, ast.Attribute) and node.func.attr == "softmax"):
            raise UnclearError("no softmax")
        arguments.insert(0, node.func.value)
    arguments += [one.value for one in node.keywords if one.arg == "dim"]
    if len(arguments) != 2 or len(node.args) + len(node.keywords) > 2 or _literal(arguments[1]) != -1:
        raise UnclearError("another softmax")
    return arguments[0]


def _untransposed(node: ast.expr) -> ast.expr:
    """The key in key.transpose(-2, -1), key.mT and similar."""
    if isinstance(node, ast.Attribute) and node.attr == "mT":
        return node.value
    called = node.func if isinstance(node, ast.Call) else None
    if isinstance(node, ast.Call) and isinstance(called, ast.Attribute) and called.attr == "transpose":
        if {_literal(one) for one in node.args} not in ({-1, -2}, {2, 3}):
            raise UnclearError("other dimensions")
        return called.value
    raise UnclearError("no transposed key")


def _functional(source: PythonSource) -> str:
    try:
        return source.module(_FUNCTIONAL)
    except UnclearError:
        return f"{source.module('torch')}.nn.functional"


def _literal(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _stored(statement: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
