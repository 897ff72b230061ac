"""`traceopt.rules` is all that a rule imports, and rules read facts instead of grouping arrays."""

from __future__ import annotations

import ast
import importlib
import inspect
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

import traceopt.analyzer.arrays.grouping as grouping
import traceopt.rules as face

RULES = Path(inspect.getfile(face)).parent
CATALOGUE = sorted(path for path in (RULES / "catalogue").glob("*.py") if path.stem != "__init__")
GROUPING_CALLS = {
    *("np.bincount", "np.unique", "np.argsort", "np.searchsorted", "np.lexsort", "np.isin"),
    *("np.add.at", "np.maximum.at", "np.minimum.at", "np.digitize", "np.split"),
}
GROUPING_HELPERS = {name for name, _ in inspect.getmembers(grouping, inspect.isfunction)}


def imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Module and name of each `from module import name`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)


def around_the_face(tree: ast.AST) -> list[str]:
    """Names that the face offers and that a module imports from somewhere else."""
    return [
        f"{module}.{name}"
        for module, name in imports(tree)
        if module.startswith("traceopt.")
        and module != "traceopt.rules"
        and name in face.__all__
        and getattr(importlib.import_module(module), name) is getattr(face, name)
    ]


def grouped(tree: ast.AST) -> list[str]:
    """Calls that group arrays, and imports of the helpers that do."""
    calls = [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    helpers = [name for module, name in imports(tree) if module == grouping.__name__ and name in GROUPING_HELPERS]
    return [call for call in calls if call in GROUPING_CALLS] + helpers


def commented_names() -> set[str]:
    """The names in `__all__` with a comment on their line."""
    tokens = list(tokenize.generate_tokens(io.StringIO((RULES / "__init__.py").read_text()).readline))
    commented = {token.start[0] for token in tokens if token.type == tokenize.COMMENT}
    strings = (token for token in tokens if token.type == tokenize.STRING and token.start[0] in commented)
    return {ast.literal_eval(token.string) for token in strings}


def test_every_name_exists_once() -> None:
    assert [name for name in face.__all__ if not hasattr(face, name)] == []
    assert len(face.__all__) == len(set(face.__all__))


def test_every_name_is_explained() -> None:
    """Classes and functions of ours by their docstring, constants and types by a comment in `__all__`."""
    offered = {name: getattr(face, name) for name in face.__all__}
    described = {
        name for name, one in offered.items() if (inspect.isclass(one) or inspect.isfunction(one)) and one.__doc__
    }
    assert set(offered) - described - commented_names() == set()


def parsed(path: Path) -> ast.AST:
    return ast.parse(path.read_text(encoding="utf-8"))


def test_rules_import_from_the_face() -> None:
    assert [(path.stem, name) for path in CATALOGUE for name in around_the_face(parsed(path))] == []


def test_rules_read_facts_and_group_nothing() -> None:
    files = [*CATALOGUE, *(RULES / "bases").glob("*.py")]
    assert [(path.stem, call) for path in files for call in grouped(parsed(path))] == []


def test_the_checks_see_what_they_look_for() -> None:
    tree = ast.parse(
        "from traceopt.rules.rule import Rule\n"
        "from traceopt.rules.savings.work.merged_gemms import merged\n"
        "from traceopt.analyzer.arrays.grouping import distinct_values\n"
        "np.add.at(total, np.unique(codes), 1)\n"
        "text.split()\n"
    )
    assert around_the_face(tree) == ["traceopt.rules.rule.Rule"]
    assert grouped(tree) == ["np.add.at", "np.unique", "distinct_values"]
