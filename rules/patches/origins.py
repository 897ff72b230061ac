"""Which call made a value: from the loader that a loop iterates, or the optimizer that steps, to its constructor."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from traceopt.rules.patches.source import Function, Source, only

Wanted = Callable[[ast.Call], bool]


def constructor(source: Source, values: list[ast.expr], wanted: Wanted, changes: Wanted) -> ast.Call:
    """The one call of the `wanted` kind behind these values that the fix `changes`.

    Where nothing leads from the values to such a call, the only one in the file. Raises UnclearError for none and for
    several.
    """
    search = _Search(source, wanted)
    behind = [call for value in values for call in search.calls(value)]
    calls = behind or [call for call in source.calls() if wanted(call)]
    return only([call for call in calls if changes(call)])


class _Search:
    """Follows names, attributes, parameters and local functions backwards, each node once.

    Calls of what is not defined in the file hand their arguments on: enumerate(loader), tqdm(loader), prepare(loader).
    """

    def __init__(self, source: Source, wanted: Wanted) -> None:
        self.source, self.wanted = source, wanted
        self.seen: set[tuple[ast.AST, int | None]] = set()

    def calls(self, value: ast.AST, item: int | None = None) -> Iterator[ast.Call]:
        """`item`: only that element, where the value is a tuple."""
        if (value, item) in self.seen:
            return
        self.seen.add((value, item))
        if isinstance(value, ast.Call):
            if self.wanted(value):
                yield value
                return
            for function in self._functions(value.func):
                yield from self._returned(function, item)
            for argument in [*value.args, *(keyword.value for keyword in value.keywords)]:
                yield from self.calls(argument)
        elif isinstance(value, (ast.Name, ast.Attribute)):
            yield from self._bound(value)
        elif isinstance(value, (ast.Tuple, ast.List)) and item is not None and item < len(value.elts):
            yield from self.calls(value.elts[item])
        elif isinstance(value, ast.Subscript):
            yield from self.calls(value.value)
        elif isinstance(value, ast.IfExp):
            yield from self.calls(value.body)
            yield from self.calls(value.orelse)
        elif isinstance(value, (ast.Tuple, ast.List, ast.Dict, ast.Starred, ast.Await, ast.NamedExpr, ast.BoolOp)):
            for child in ast.iter_child_nodes(value):
                yield from self.calls(child)

    def _bound(self, name: ast.Name | ast.Attribute) -> Iterator[ast.Call]:
        for item, value in _assigned(self.source, name):
            yield from self.calls(value, item)
        if isinstance(name, ast.Name):
            function = _function_of_parameter(self.source, name)
            if function is not None:
                for value in _passed(self.source, function, name.id):
                    yield from self.calls(value)

    def _functions(self, called: ast.expr) -> Iterator[ast.AST]:
        name = called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else None
        return (node for node in self.source.nodes if isinstance(node, Function) and node.name == name)

    def _returned(self, function: ast.AST, item: int | None) -> Iterator[ast.Call]:
        for node in ast.walk(function):
            if isinstance(node, ast.Return) and node.value is not None and self.source.scope(node) is function:
                yield from self.calls(node.value, item)


def _assigned(source: Source, name: ast.Name | ast.Attribute) -> Iterator[tuple[int | None, ast.expr]]:
    """Values that are assigned to a name of the nearest scope that does so, or to an attribute anywhere in the file.

    With the element's number where a tuple is unpacked.
    """
    if isinstance(name, ast.Attribute):
        yield from _assignments(source.nodes, name)
        return
    for scope in (source.scope(name), *source.ancestors(source.scope(name))):
        if isinstance(scope, (*Function, ast.Module)):
            own = [node for node in ast.walk(scope) if source.scope(node) is scope]
            found = list(_assignments(own, name))
            yield from found
            if found or _has_parameter(scope, name.id):
                return


def _assignments(nodes: list[ast.AST], name: ast.Name | ast.Attribute) -> Iterator[tuple[int | None, ast.expr]]:
    for node in nodes:
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)):
            targets = [node.target]
        else:
            continue
        if node.value is None:
            continue
        for target in targets:
            if _same(target, name):
                yield None, node.value
            elif isinstance(target, (ast.Tuple, ast.List)):
                for item, element in enumerate(target.elts):
                    if _same(element, name):
                        yield item, node.value


def _same(target: ast.expr, name: ast.Name | ast.Attribute) -> bool:
    if isinstance(target, ast.Name) and isinstance(name, ast.Name):
        return target.id == name.id
    return isinstance(target, ast.Attribute) and isinstance(name, ast.Attribute) and target.attr == name.attr


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    return [one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]


def _has_parameter(scope: ast.AST, name: str) -> bool:
    return isinstance(scope, Function) and name in _parameters(scope)


def _function_of_parameter(source: Source, name: ast.Name) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    scope = source.scope(name)
    return scope if isinstance(scope, Function) and name.id in _parameters(scope) else None


def _passed(source: Source, function: ast.FunctionDef | ast.AsyncFunctionDef, parameter: str) -> Iterator[ast.expr]:
    """What calls of a function in this file pass as a parameter."""
    names = _parameters(function)
    position = names.index(parameter)
    for call in source.calls():
        called = call.func
        if isinstance(called, ast.Attribute) and called.attr == function.name and names[:1] == ["self"]:
            place = position - 1
        elif isinstance(called, ast.Name) and called.id == function.name:
            place = position
        else:
            continue
        yield from (one.value for one in call.keywords if one.arg == parameter)
        if 0 <= place < len(call.args) and not any(isinstance(one, ast.Starred) for one in call.args):
            yield call.args[place]
