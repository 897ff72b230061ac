"""Edits of source text: call arguments, statements moved into a block, new lines; everything else stays unchanged."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from traceopt.rules.fixes.patches.source import PythonSource, UnclearError

_REST_OF_LINE = re.compile(r"[ \t]*(#[^\n]*)?\r?(\n|\Z)")


class TextEdit(Struct, frozen=True, order=True):
    """Replaces the characters from `start` to `end` with `text`; an insertion if the two are equal."""

    start: int
    end: int
    text: str


def applied(text: str, edits: Iterable[TextEdit]) -> str:
    """The text after the edits. Equal edits apply once; insertions at one position keep their order.

    Raises UnclearError if two edits touch the same characters.
    """
    out, at = [], 0
    for edit in sorted(dict.fromkeys(edits), key=lambda edit: (edit.start, edit.end)):
        if edit.start < at:
            raise UnclearError("two edits of the same characters")
        out += [text[at : edit.start], edit.text]
        at = edit.end
    return "".join([*out, text[at:]])


def argument(call: ast.Call, name: str) -> ast.expr | None:
    """The value that a call passes for this keyword."""
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def set_keywords(source: PythonSource, call: ast.Call, wanted: dict[str, str]) -> list[TextEdit]:
    """Sets these keyword arguments of a call: replaces existing ones, and appends the others.

    Raises UnclearError if an argument may be hidden in `*args` or `**kwargs`.
    """
    given = {keyword.arg: keyword for keyword in call.keywords}
    new = {name: value for name, value in wanted.items() if name not in given}
    if new and (None in given or any(isinstance(one, ast.Starred) for one in call.args)):
        raise UnclearError("arguments hidden in * or **")
    edits = [
        TextEdit(source.start(given[name].value), source.end(given[name].value), value)
        for name, value in wanted.items()
        if name in given
    ]
    return edits + (_appended(source, call, [f"{name}={value}" for name, value in new.items()]) if new else [])


def _appended(source: PythonSource, call: ast.Call, arguments: list[str]) -> list[TextEdit]:
    """In the style of the call: after the last argument, or on separate lines if that one is on its own line."""
    *_, before, closing = source.tokens(source.start(call), source.end(call))
    if closing.text != ")":
        raise UnclearError("a call without an end")
    if before.text == "(":
        return [TextEdit(before.end, before.end, ", ".join(arguments))]
    given: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    if isinstance(given[0], ast.GeneratorExp) and len(given) == 1:
        raise UnclearError("a generator needs parentheses before another argument")
    last = max(map(source.start, given))
    closed = before.text == ","
    line = source.line_of(before.end)
    begins_line = not source.text[source.line_start(source.line_of(last)) : last].strip(" \t")
    own_line = begins_line and source.line_of(closing.start) > line
    if not own_line:
        return [TextEdit(before.end, before.end, f" {one}," if closed else f", {one}") for one in arguments]
    below = source.line_start(line + 1)
    indent = source.indent(source.line_of(last))
    rows = [TextEdit(below, below, f"{indent}{one},{source.eol}") for one in arguments]
    return rows if closed else [TextEdit(before.end, before.end, ","), *rows]


def whole_lines(source: PythonSource, statements: Sequence[ast.stmt]) -> tuple[int, int]:
    """First and last line of consecutive statements. Raises UnclearError if they share a line with others."""
    first, last = statements[0], statements[-1]
    if source.text[source.line_start(first.lineno) : source.start(first)].strip(" \t"):
        raise UnclearError("two statements on a line")
    if not _REST_OF_LINE.match(source.text, source.end(last)):
        raise UnclearError("two statements on a line")
    return first.lineno, last.end_lineno or last.lineno


def put_inside(source: PythonSource, statements: Sequence[ast.stmt], head: str) -> list[TextEdit]:
    """Moves consecutive statements into a new block under `head`, including comments and blank lines in between."""
    first, last = whole_lines(source, statements)
    if source.strings_over_lines(first, last):
        raise UnclearError("a multi-line string would change")
    indent = source.indent(first)
    unit = _indent_unit(source, statements[0])
    edits = [TextEdit(source.line_start(first), source.line_start(first), f"{indent}{head}{source.eol}")]
    for line in range(first, last + 1):
        text = source.lines[line - 1]
        if text.strip():
            at = source.line_start(line) + (len(indent) if text.startswith(indent) else 0)
            edits.append(TextEdit(at, at, unit))
    return edits


def _indent_unit(source: PythonSource, statement: ast.stmt) -> str:
    """The file's indentation unit: the one used here, else the first in the file."""
    outer = next((ancestor for ancestor in source.ancestors(statement) if isinstance(ancestor, ast.stmt)), None)
    inner = source.indent(statement.lineno)
    if outer is not None and inner.startswith(source.indent(outer.lineno)):
        return inner.removeprefix(source.indent(outer.lineno))
    blocks = (body[0] for one in source.tree.body if isinstance(body := getattr(one, "body", None), list))
    return next((source.indent(block.lineno) for block in blocks if source.indent(block.lineno)), "    ")


def removed(source: PythonSource, statement: ast.stmt) -> list[TextEdit]:
    """Removes a statement with its lines. Raises UnclearError for the only statement of a block."""
    if len(source.block(statement)) == 1:
        raise UnclearError("the block would be empty")
    first, last = whole_lines(source, [statement])
    return [TextEdit(source.line_start(first), source.line_start(last + 1), "")]


def after_imports(source: PythonSource, module: str, statements: Iterable[str]) -> list[TextEdit]:
    """Adds statements that begin with the name of an imported module, below the imports at the top of the file."""
    head: list[ast.stmt] = []
    for statement in source.tree.body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            head.append(statement)
        elif head and not isinstance(statement, (ast.Try, ast.Expr, ast.Assign)):
            break
    name = source.module(module, head)
    _, last = whole_lines(source, head[-1:])
    at, eol = source.line_start(last + 1), source.eol
    ended = source.lines[last - 1].endswith("\n")
    code = eol.join(name + statement.removeprefix(module) for statement in statements)
    return [TextEdit(at, at, f"{eol}{code}{eol}" if ended else f"{eol}{eol}{code}")]
