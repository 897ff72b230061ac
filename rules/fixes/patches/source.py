"""One Python file: its text, its syntax tree, and the mapping between positions in both."""

from __future__ import annotations

import ast
import io
import tokenize
import warnings
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import TypeVar

from msgspec import Struct

T = TypeVar("T")

Function = (ast.FunctionDef, ast.AsyncFunctionDef)
Scope = (*Function, ast.Lambda, ast.Module)
Loop = (ast.For, ast.AsyncFor, ast.While)
_LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


class UnclearError(Exception):
    """The source is too ambiguous to change automatically."""


class GivenElsewhereError(UnclearError):
    """An argument is set to a value that comes from elsewhere, such as the command line: a person has to change it.

    `line` of the argument, its name, and the expression in the source; `wanted`: the value of the fix.
    """

    def __init__(self, line: int, name: str, expression: str, wanted: str) -> None:
        super().__init__(f"{name} is {expression}")
        self.line, self.name, self.expression, self.wanted = line, name, expression, wanted


def only(items: Sequence[T]) -> T:
    """The only item. Raises UnclearError if there is none or more than one."""
    if len(items) != 1:
        raise UnclearError(f"{len(items)} candidates")
    return items[0]


class Token(Struct, frozen=True):
    """A Python token (not layout or a comment), with its position in the text."""

    start: int
    end: int
    kind: str
    text: str


class PythonSource(Struct, frozen=True, dict=True):
    """A file that parses. `path` is its name in a patch: relative, with slashes."""

    path: str
    text: str
    tree: ast.Module

    @classmethod
    def parse(cls, path: str, text: str) -> PythonSource:
        """Raises UnclearError if this Python cannot parse the text, or git counts its lines differently."""
        if text.startswith("\ufeff") or "\r" in text.replace("\r\n", "\n"):
            raise UnclearError("a byte order mark or a single carriage return")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # invalid escapes in the user's strings do not concern us
                return cls(path, text, ast.parse(text))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise UnclearError("not Python") from error

    @cached_property
    def lines(self) -> list[str]:
        """Lines with their line ends. str.splitlines also splits where neither Python nor git does."""
        return list(io.StringIO(self.text, newline="\n"))

    @cached_property
    def _starts(self) -> list[int]:
        return list(accumulate(map(len, self.lines), initial=0))

    @property
    def eol(self) -> str:
        return "\r\n" if self.lines and self.lines[0].endswith("\r\n") else "\n"

    # Positions in the text.

    def line_start(self, line: int) -> int:
        """Offset of a line's start (lines count from 1); after the last line, the end of the text."""
        return self._starts[line - 1]

    def line_of(self, offset: int) -> int:
        return bisect_right(self._starts, offset)

    def start(self, node: ast.expr | ast.stmt | ast.keyword) -> int:
        return self._offset(node.lineno, node.col_offset)

    def end(self, node: ast.expr | ast.stmt | ast.keyword) -> int:
        if node.end_lineno is None or node.end_col_offset is None:
            raise UnclearError("a node without an end")
        return self._offset(node.end_lineno, node.end_col_offset)

    def _offset(self, line: int, column: int) -> int:
        """ast counts columns in bytes of UTF-8."""
        return self._starts[line - 1] + len(self.lines[line - 1].encode()[:column].decode())

    def slice(self, node: ast.expr | ast.stmt) -> str:
        """The node's source text."""
        return self.text[self.start(node) : self.end(node)]

    def indent(self, line: int) -> str:
        text = self.lines[line - 1]
        return text[: len(text) - len(text.lstrip(" \t"))]

    def tokens(self, start: int, end: int) -> list[Token]:
        """Tokens of an expression or of whole statement lines, without comments and layout."""
        lines = list(io.StringIO(self.text[start:end], newline="\n"))
        starts = list(accumulate(map(len, lines), initial=start))
        try:
            return [
                Token(
                    starts[token.start[0] - 1] + token.start[1],
                    starts[token.end[0] - 1] + token.end[1],
                    tokenize.tok_name[token.type],
                    token.string,
                )
                for token in tokenize.generate_tokens(iter([*lines, ""]).__next__)
                if token.type not in _LAYOUT
            ]
        except (SyntaxError, tokenize.TokenError) as error:
            raise UnclearError("not Python") from error

    def strings_over_lines(self, first: int, last: int) -> bool:
        """Whether one of these lines begins inside a string, whose value would change if the line was indented."""
        opened: list[int] = []  # f-strings are several tokens since Python 3.12
        for token in self.tokens(self.line_start(first), self.line_start(last + 1)):
            if token.kind in ("FSTRING_START", "TSTRING_START"):
                opened.append(token.start)
                continue
            begins = opened.pop() if token.kind in ("FSTRING_END", "TSTRING_END") else token.start
            if token.kind in ("STRING", "FSTRING_END", "TSTRING_END") and "\n" in self.text[begins : token.end]:
                return True
        return False

    # Positions in the tree.

    @cached_property
    def _around(self) -> dict[ast.AST, tuple[ast.AST, ast.AST]]:
        """For every node except the module, its parent and its scope."""
        found: dict[ast.AST, tuple[ast.AST, ast.AST]] = {}
        for node in self.nodes:  # parents come before their children
            scope = node if isinstance(node, Scope) else found[node][1]
            found.update((child, (node, scope)) for child in ast.iter_child_nodes(node))
        return found

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """From the parent to the module."""
        while node is not self.tree:
            node = self._around[node][0]
            yield node

    def scope(self, node: ast.AST) -> ast.AST:
        """The innermost function, lambda or module around the node."""
        return self.tree if node is self.tree else self._around[node][1]

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that contains the node, or the node itself."""
        for outer in (node, *self.ancestors(node)):
            if isinstance(outer, ast.stmt):
                return outer
        raise UnclearError("no statement")

    def block(self, statement: ast.stmt) -> list[ast.stmt]:
        """The list of statements that contains this one."""
        for _, value in ast.iter_fields(self._around[statement][0]):
            if isinstance(value, list) and statement in value:
                return value
        raise UnclearError("no block")

    def loops(self, node: ast.AST) -> list[ast.For | ast.AsyncFor | ast.While]:
        """The loops around a node in the same function, innermost first."""
        found = []
        below = node
        for ancestor in self.ancestors(node):
            if isinstance(ancestor, Scope):
                break
            if isinstance(ancestor, Loop) and below in ancestor.body:
                found.append(ancestor)
            below = ancestor
        return found

    def iteration(self, statement: ast.stmt) -> list[ast.stmt]:
        """The body of the innermost loop around a statement, else of its function or module."""
        around = (
            ancestor for ancestor in self.ancestors(statement) if isinstance(ancestor, (*Loop, *Function, ast.Module))
        )
        return next(around, self.tree).body

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def _nodes_by_scope(self) -> dict[ast.AST, list[ast.AST]]:
        found: dict[ast.AST, list[ast.AST]] = {}
        for node, (_, scope) in self._around.items():
            found.setdefault(scope, []).append(node)
        return found

    def nodes_of(self, scope: ast.AST) -> list[ast.AST]:
        """The nodes of a function, lambda or module, without those of nested ones."""
        return self._nodes_by_scope.get(scope, [])

    @cached_property
    def calls(self) -> list[ast.Call]:
        return [node for node in self.nodes if isinstance(node, ast.Call)]

    @cached_property
    def functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        return [node for node in self.nodes if isinstance(node, Function)]

    # Names.

    @cached_property
    def _imported(self) -> dict[str, str | None]:
        """Names that imports bind, with their full names; None if two imports disagree."""
        meaning: dict[str, str | None] = {}
        for node in self.nodes:
            for name, full in _bound_by(node):
                meaning[name] = full if meaning.get(name, full) == full else None
        return meaning

    def dotted(self, node: ast.AST) -> str | None:
        """The full name of an imported object: "torch.utils.data.DataLoader" for `data.DataLoader`."""
        if isinstance(node, ast.Attribute):
            owner = self.dotted(node.value)
            return f"{owner}.{node.attr}" if owner else None
        return self._imported.get(node.id) if isinstance(node, ast.Name) else None

    def module(self, full: str, statements: Sequence[ast.stmt] | None = None) -> str:
        """The name under which these statements (default: all top-level ones) import the module `full`.

        Raises UnclearError if none does.
        """
        for statement in self.tree.body if statements is None else statements:
            for name, meaning in _bound_by(statement):
                if meaning == full and self._imported[name] == full:
                    return name
        raise UnclearError(f"{full} is not imported")

    def mentions(self, *words: str) -> bool:
        return any(word in self.text for word in words)


def constant(value: ast.expr | None) -> object:
    """A literal's value; None for a missing argument, Ellipsis for a value known only at run time."""
    if value is None:
        return None
    return value.value if isinstance(value, ast.Constant) else ...


def _bound_by(node: ast.AST) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            top = alias.name.partition(".")[0]
            yield (alias.asname, alias.name) if alias.asname else (top, top)
    elif isinstance(node, ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            yield alias.asname or alias.name, f"{module}.{alias.name}"
