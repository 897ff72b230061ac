"""Finds the constructor call behind a value, such as the loader that a loop iterates or the optimizer that steps."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence

from traceopt.result.finding import Location
from traceopt.rules.fixes.patches.places import own_nodes, statements_at
from traceopt.rules.fixes.patches.source import Function, PythonSource, only

Wanted = Callable[[ast.Call], bool]
Value = tuple[ast.expr, int | None]  # an expression, and the index if only one element of a tuple is meant


def constructed_at(source: PythonSource, place: Location, wanted: Wanted) -> list[ast.Call]:
    """The `wanted` calls in the statement at a location; empty if the location may be several statements."""
    statements = statements_at(source, place)
    nodes = own_nodes(statements[0]) if len(statements) == 1 else ()
    return [node for node in nodes if isinstance(node, ast.Call) and wanted(node)]


def constructor(source: PythonSource, values: Sequence[ast.expr], wanted: Wanted, changes: Wanted) -> ast.Call:
    """The one `wanted` call behind these values that the fix `changes`.

    If the values come from outside the file (a parameter, an attribute), the only such call in the file. Raises
    UnclearError if there is none or more than one.
    """
    search = _Search(source, wanted)
    calls = [call for value in values for call in search.calls((value, None))]
    if not calls and search.left_the_file:
        calls = [call for call in source.calls if wanted(call)]
    return only([call for call in calls if changes(call)])


class _Search:
    """Follows names, attributes, parameters and local functions backwards, each once.

    Functions not defined in the file are assumed to pass on their arguments: enumerate(loader), batch.items(),
    fabric.setup(loader).
    """

    def __init__(self, source: PythonSource, wanted: Wanted) -> None:
        self.source, self.wanted = source, wanted
        self.seen: set[Value] = set()
        self.left_the_file = False

    def calls(self, value: Value) -> Iterator[ast.Call]:
        if value in self.seen:
            return
        self.seen.add(value)
        node, _ = value
        if isinstance(node, ast.Call) and self.wanted(node):
            yield node
            return
        for origin in self._origins(*value):
            yield from self.calls(origin)

    def _origins(self, node: ast.expr, item: int | None) -> Iterator[Value]:
        if isinstance(node, ast.Call):
            yield from self._returned(node, item)
            passed_on = [*node.args, *(keyword.value for keyword in node.keywords)]
            if isinstance(node.func, ast.Attribute):
                passed_on.append(node.func.value)
            yield from ((value, None) for value in passed_on)
        elif isinstance(node, (ast.Name, ast.Attribute)):
            yield from self._bound(node)
        elif isinstance(node, (ast.Tuple, ast.List)) and item is not None and item < len(node.elts):
            yield node.elts[item], None
        elif isinstance(node, (ast.Subscript, ast.Starred, ast.Await, ast.NamedExpr)):
            yield node.value, None
        elif isinstance(node, ast.IfExp):
            yield from ((node.body, item), (node.orelse, item))
        elif isinstance(node, (ast.Tuple, ast.List, ast.Dict, ast.BoolOp)):
            yield from ((child, None) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))

    def _returned(self, call: ast.Call, item: int | None) -> Iterator[Value]:
        """What the functions of this file that the call may refer to return."""
        for function in self._functions(call.func):
            for node in self.source.nodes_of(function):
                if isinstance(node, ast.Return) and node.value is not None:
                    yield node.value, item

    def _functions(self, called: ast.expr) -> Sequence[ast.AST]:
        name = called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else None
        return [function for function in self.source.functions if function.name == name]

    def _bound(self, name: ast.Name | ast.Attribute) -> Iterator[Value]:
        """Values bound to a name in the nearest scope that binds it, or to an attribute anywhere in the file."""
        if isinstance(name, ast.Attribute):
            given = list(_given(self.source.nodes, name))
            self.left_the_file |= not given and self.source.dotted(name) is None
            yield from given
            return
        for scope in (
            ancestor for ancestor in self.source.ancestors(name) if isinstance(ancestor, (*Function, ast.Module))
        ):
            given = list(_given(self.source.nodes_of(scope), name))
            if isinstance(scope, Function) and name.id in _parameters(scope):
                passed = [(value, None) for value in _passed(self.source, scope, name.id)]
                self.left_the_file |= not passed
                given += passed
            if given:
                yield from given
                return


def _given(nodes: Sequence[ast.AST], name: ast.Name | ast.Attribute) -> Iterator[Value]:
    """Values that assignments, loops and `with` bind to a name, with the element index if a tuple is unpacked."""
    for node in nodes:
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            targets, value = [node.target], node.value
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            if any(_same(target, name) for target in ast.walk(node.target)):
                yield node.iter, None
            continue
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            targets, value = [node.optional_vars], node.context_expr
        else:
            continue
        for target in targets:
            if _same(target, name):
                yield value, None
            elif isinstance(target, (ast.Tuple, ast.List)):
                yield from ((value, item) for item, element in enumerate(target.elts) if _same(element, name))


def _same(target: ast.AST, name: ast.Name | ast.Attribute) -> bool:
    if isinstance(target, ast.Name) and isinstance(name, ast.Name):
        return target.id == name.id
    return isinstance(target, ast.Attribute) and isinstance(name, ast.Attribute) and target.attr == name.attr


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    return [parameter.arg for parameter in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]


def _passed(
    source: PythonSource, function: ast.FunctionDef | ast.AsyncFunctionDef, parameter: str
) -> Iterator[ast.expr]:
    """What calls of a function in this file pass for a parameter."""
    names = _parameters(function)
    for call in source.calls:
        called = call.func
        if isinstance(called, ast.Attribute) and called.attr == function.name:
            place = names.index(parameter) - (names[0] == "self")
        elif isinstance(called, ast.Name) and called.id == function.name:
            place = names.index(parameter)
        else:
            continue
        yield from (keyword.value for keyword in call.keywords if keyword.arg == parameter)
        if 0 <= place < len(call.args) and not any(isinstance(argument, ast.Starred) for argument in call.args):
            yield call.args[place]
