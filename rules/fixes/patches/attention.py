"""Replaces attention written as matmul, softmax, matmul with one call of the fused operator.

A cast around the softmax is dropped, because the fused operator computes the softmax in FP32 by itself.
"""

from __future__ import annotations

import ast
from collections import Counter

from traceopt.result.finding import Finding
from traceopt.rules.fixes.patches.places import statements_at
from traceopt.rules.fixes.patches.source import PythonSource, UnclearError, only
from traceopt.rules.fixes.patches.text_edits import TextEdit, removed

_FUNCTIONAL = "torch.nn.functional"
_MATMULS = ("torch.matmul", "torch.bmm")
_SOFTMAX = ("torch.softmax", f"{_FUNCTIONAL}.softmax")
_FP32 = ("torch.float32", "torch.float")
_CASTS = (".float(", ".double(", ".to(", ".type(")
_NEVER = ("float('-inf')", "-float('inf')", "-math.inf", "-torch.inf", "-np.inf")  # as ast.unparse writes them


def fused_attention(source: PythonSource, finding: Finding) -> list[TextEdit]:
    """One call for `softmax(query @ key.transpose(-2, -1) * scale [+ mask], -1) @ value`, over one or more statements.

    Raises UnclearError for dropout, for weights used elsewhere, and for any other operation in between.
    """
    statements = [one for place in finding.locations for one in statements_at(source, place)]
    scopes = dict.fromkeys(source.scope(statement) for statement in statements)
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
        self.dropped: set[ast.AST] = set()  # they may use the scores

    def replaced(self, weights: ast.expr, value: ast.expr) -> list[TextEdit]:
        weights = self._follow(weights)
        cast = _cast(weights)
        probabilities = weights if cast is None else self._follow(cast[0])
        query, transposed, options = self._scores(_softmax(self.source, probabilities, upcast=cast is not None))
        key = _untransposed(self._follow(transposed))
        if cast is not None:
            self._check_cast(cast[1], query, key, value)
        operands = ", ".join(self._text(one) for one in (query, key, value))
        self._check()
        called = f"{_functional(self.source)}.scaled_dot_product_attention({operands}, {options})"
        edits = [TextEdit(self.source.start(self.last), self.source.end(self.last), called)]
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
        """The argument for scores.masked_fill(mask == 0, -inf), and the scores. True in the operator's mask attends.

        A mask of all later tokens that is made here needs no mask.
        """
        function = call.func
        if not (isinstance(function, ast.Attribute) and function.attr == "masked_fill" and len(call.args) == 2):
            raise UnclearError("another operation")
        where, fill = call.args
        if ast.unparse(fill) not in _NEVER:
            raise UnclearError("another fill value")
        if isinstance(where, ast.Name) and (made := self._later_tokens(where, function.value)) is not None:
            self.names[where.id] += 1
            self.removed.append(made)
            return "is_causal=True, ", function.value
        if isinstance(where, ast.Compare) and isinstance(where.ops[0], ast.Eq) and _literal(where.comparators[0]) == 0:
            return f"attn_mask={self._text(where.left)} != 0, ", function.value
        if isinstance(where, ast.UnaryOp) and isinstance(where.op, ast.Invert):
            return f"attn_mask={self._text(where.operand)}, ", function.value
        if isinstance(where, (ast.Name, ast.Attribute, ast.Subscript)):
            return f"attn_mask=~{self._text(where)}, ", function.value
        raise UnclearError("another mask")

    def _later_tokens(self, mask: ast.Name, scores: ast.expr) -> ast.Assign | None:
        """The statement that makes a mask that is true above the diagonal: torch.ones(..., dtype=torch.bool).triu(1).

        It is square, or has the shape of the scores. None for any other mask, or if it is also used elsewhere.
        """
        made = [statement for statement in self.read if mask.id in _stored(statement)]
        uses = [node for node in ast.walk(self.source.scope(mask)) if isinstance(node, ast.Name) and node.id == mask.id]
        if len(made) != 1 or len(uses) != 2:
            return None
        if not isinstance(made[0], ast.Assign) or not isinstance(made[0].targets[0], ast.Name):
            return None
        ones = _above_diagonal(self.source, made[0].value)
        if ones is None or not (_square(ones) or _shape_of(ones, scores)):
            return None
        self.dropped |= set(ast.walk(ones))
        return made[0]

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

    def _check_cast(self, like: ast.expr, query: ast.expr, key: ast.expr, value: ast.expr) -> None:
        """Raises UnclearError if the operands may be of different types, which the fused operator refuses."""
        wanted = ast.unparse(like)
        if wanted in (ast.unparse(query), ast.unparse(key)):
            return
        names = {ast.unparse(query), ast.unparse(key)}
        given = [ast.unparse(one.value) for one in self.before if isinstance(one, ast.Assign) and names & _stored(one)]
        if wanted != ast.unparse(value) or any(call in text for text in (*names, *given) for call in _CASTS):
            raise UnclearError("operands of different types")

    def _check(self) -> None:
        """Raises UnclearError if a removed statement, or the order of the remaining ones, matters elsewhere."""
        scope = self.source.scope(self.last)
        used = [node for node in ast.walk(scope) if isinstance(node, ast.Name) and node.id in self.names]
        used = [node for node in used if node not in self.dropped]
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


def _cast(node: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """For x.to(y.dtype), x.to(y) or x.type_as(y): x and y."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and len(node.args) == 1):
        return None
    if node.keywords or node.func.attr not in ("to", "type_as"):
        return None
    [like] = node.args
    return node.func.value, like.value if isinstance(like, ast.Attribute) and like.attr == "dtype" else like


def _above_diagonal(source: PythonSource, node: ast.expr) -> ast.Call | None:
    """The call of torch.ones in torch.ones(..., dtype=torch.bool).triu(1)."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "triu"):
        return None
    arguments = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "diagonal")]
    if source.dotted(node.func) != "torch.triu":
        arguments.insert(0, node.func.value)
    if len(arguments) != 2 or len(node.args) + len(node.keywords) > 2 or _literal(arguments[1]) != 1:
        return None
    ones = arguments[0]
    if not (isinstance(ones, ast.Call) and source.dotted(ones.func) == "torch.ones"):
        return None
    boolean = any(keyword.arg == "dtype" and source.dotted(keyword.value) == "torch.bool" for keyword in ones.keywords)
    return ones if boolean else None


def _square(ones: ast.Call) -> bool:
    sizes = ones.args[0].elts if len(ones.args) == 1 and isinstance(ones.args[0], (ast.Tuple, ast.List)) else ones.args
    return len(sizes) == 2 and ast.unparse(sizes[0]) == ast.unparse(sizes[1])


def _shape_of(ones: ast.Call, scores: ast.expr) -> bool:
    return len(ones.args) == 1 and ast.unparse(ones.args[0]) == f"{ast.unparse(scores)}.shape[-2:]"


def _softmax(source: PythonSource, node: ast.expr, *, upcast: bool) -> ast.expr:
    """The input of softmax(..., dim=-1). `upcast`: it may be computed in FP32."""
    if not isinstance(node, ast.Call):
        raise UnclearError("no softmax")
    arguments = list(node.args)
    if source.dotted(node.func) not in _SOFTMAX:
        if not (isinstance(node.func, ast.Attribute) and node.func.attr == "softmax"):
            raise UnclearError("no softmax")
        arguments.insert(0, node.func.value)
    given = {keyword.arg: keyword.value for keyword in node.keywords}
    dtype = given.pop("dtype", None)
    if dtype is not None and not (upcast and source.dotted(dtype) in _FP32):
        raise UnclearError("another type")
    arguments += [given.pop("dim")] if "dim" in given else []
    if len(arguments) != 2 or given or _literal(arguments[1]) != -1:
        raise UnclearError("another softmax")
    scores = arguments[0]
    if (
        isinstance(scores, ast.Call)
        and isinstance(scores.func, ast.Attribute)
        and scores.func.attr == "float"
        and upcast
    ):
        return scores.func.value
    return scores


def _untransposed(node: ast.expr) -> ast.expr:
    """The key in key.transpose(-2, -1), key.mT and similar."""
    if isinstance(node, ast.Attribute) and node.attr == "mT":
        return node.value
    called = node.func if isinstance(node, ast.Call) else None
    if isinstance(node, ast.Call) and isinstance(called, ast.Attribute) and called.attr == "transpose":
        if {_literal(argument) for argument in node.args} not in ({-1, -2}, {2, 3}):
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
