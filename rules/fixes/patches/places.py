"""Finds the source statements at a finding's location."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from traceopt.result.finding import Finding, Location
from traceopt.rules.fixes.patches.source import Function, PythonSource

# Frames without a def in the source.
_UNNAMED = ("", "<lambda>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
_INNER = (ast.stmt, ast.excepthandler, ast.match_case)


def statements_at(source: PythonSource, place: Location) -> list[ast.stmt]:
    """The statements that a location may refer to, in order; several if the trace does not know the exact line.

    A trace without call lines names the first line of the function; then it is all statements of that function. Empty
    if the location has another function: the file has changed since the recording.
    """
    name = (place.function or "").rpartition(".")[2]
    scopes = [one for one in (source.tree, *source.functions) if name in (*_UNNAMED, _name(one))]
    whole = [one for one in scopes if name == _name(one) and _first_line(one) == place.line and place.last_line is None]
    nodes = [node for scope in whole or scopes for node in source.nodes_of(scope)]
    found = [node for node in nodes if isinstance(node, ast.stmt) and not isinstance(node, (*Function, ast.ClassDef))]
    return sorted((one for one in found if whole or _touches(one, place)), key=lambda one: (one.lineno, one.col_offset))


def statements_of(source: PythonSource, finding: Finding) -> list[ast.stmt]:
    """The statements at the finding's first location."""
    return statements_at(source, finding.locations[0])


def own_nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """A statement's nodes, without those of nested statements."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop(0)
        yield node
        waiting += [child for child in ast.iter_child_nodes(node) if not isinstance(child, _INNER)]


def _touches(statement: ast.stmt, place: Location) -> bool:
    """Whether the statement, or the head of a compound one, is on a line of the location."""
    if place.line is None or statement.lineno > (place.last_line or place.line):
        return False
    last = statement.end_lineno or 0
    if any(isinstance(child, _INNER) for child in ast.iter_child_nodes(statement)):
        head = [node.end_lineno or 0 for node in own_nodes(statement) if isinstance(node, ast.expr)]
        last = max([statement.lineno, *head])
    return last >= place.line


def _name(scope: ast.AST) -> str:
    return getattr(scope, "name", "<module>")


def _first_line(scope: ast.AST) -> int:
    """As in the code object: a function starts at its first decorator."""
    if isinstance(scope, Function):
        return min([scope.lineno, *(decorator.lineno for decorator in scope.decorator_list)])
    return 1
