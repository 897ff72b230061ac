"""Patches for arguments of the DataLoader that a loop reads from: workers, pinned memory, batches taken at once."""

from __future__ import annotations

import ast
import multiprocessing
from collections.abc import Iterator, Mapping

from traceopt.result.edits import SetArguments
from traceopt.result.finding import Finding
from traceopt.rules.fixes.patches.origins import Wanted, constructed_at, constructor
from traceopt.rules.fixes.patches.places import own_nodes, statements_at, statements_of
from traceopt.rules.fixes.patches.source import (
    Function,
    GivenElsewhereError,
    PythonSource,
    UnclearError,
    constant,
    only,
)
from traceopt.rules.fixes.patches.text_edits import TextEdit, argument, set_keywords

_LOADERS = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
UNKNOWN = float("inf")  # a number known only at run time; larger than any advice, so it is not changed
_OF_PROCESSES = ("timeout", "multiprocessing_context")
_WITHOUT_WORKERS = {"prefetch_factor": "None", "persistent_workers": "False"}  # all that DataLoader accepts then
_CHOOSE_ITEMS = ("sampler", "batch_sampler", "collate_fn", "generator")
_OF_BATCHES = ("dataset", "batch_size", "shuffle", "drop_last")
_WORKERS_POSITION, _PIN_POSITION = 5, 7  # among the positional arguments


def arguments(source: PythonSource, finding: Finding) -> list[TextEdit]:
    """The arguments of the fix: more workers, workers that live as long as the loader, or none."""
    wanted = only([edit.arguments for edit in finding.fix.edits if isinstance(edit, SetArguments)])
    if any(not wanted.get(name, "0").isdecimal() for name in ("num_workers", "prefetch_factor")):
        raise UnclearError("the number depends on the one of the script")
    if wanted.get("num_workers") == "0":
        return _no_workers(source, finding)
    if wanted.keys() == {"persistent_workers"}:
        return _persistent_workers(source, finding)
    return _more_workers(source, finding, wanted)


def _more_workers(source: PythonSource, finding: Finding, wanted: Mapping[str, str]) -> list[TextEdit]:
    count, prefetch = int(wanted.get("num_workers", 0)), int(wanted.get("prefetch_factor", 0))

    def changes(call: ast.Call) -> bool:
        given = _number(_workers(call))
        return given < count if count else given > 0 and _number(argument(call, "prefetch_factor")) < prefetch

    call = _loader(source, finding, lambda call: changes(call) or (bool(count) and _number(_workers(call)) == UNKNOWN))
    given = _workers(call)
    if count and given is not None and _number(given) == UNKNOWN:
        raise GivenElsewhereError(given.lineno, "num_workers", source.slice(given), str(count))
    if _number(given) == 0:
        if source.mentions("IterableDataset"):
            raise UnclearError("each worker would read all the data")
        if _runs_when_imported(source) and multiprocessing.get_all_start_methods()[0] != "fork":
            raise UnclearError("each worker would run the script")
    keywords = {"num_workers": str(count)} if count else {}
    if "persistent_workers" in wanted and constant(argument(call, "persistent_workers")) is not True:
        keywords["persistent_workers"] = "True"
    if _number(argument(call, "prefetch_factor")) < prefetch:
        keywords["prefetch_factor"] = str(prefetch)
    if "pin_memory" in wanted:
        if not _unpinned(call):
            raise UnclearError("pin_memory is set elsewhere")
        keywords["pin_memory"] = "True"
    return set_keywords(source, call, keywords)


def _no_workers(source: PythonSource, finding: Finding) -> list[TextEdit]:
    def changes(call: ast.Call) -> bool:
        return argument(call, "num_workers") is not None

    call = _loader(source, finding, changes)
    if any(argument(call, name) is not None for name in _OF_PROCESSES):
        raise UnclearError("arguments that DataLoader rejects without workers")
    unset = {name: value for name, value in _WITHOUT_WORKERS.items() if argument(call, name) is not None}
    return set_keywords(source, call, {"num_workers": "0"} | unset)


def _persistent_workers(source: PythonSource, finding: Finding) -> list[TextEdit]:
    def changes(call: ast.Call) -> bool:
        return _workers(call) is not None and constant(argument(call, "persistent_workers")) in (None, False)

    call = _loader(source, finding, changes)
    if source.loops(source.statement(call)):
        raise UnclearError("each round of the loop makes a new loader, with new workers")
    count = _workers(call)
    if 0 < _number(count) < UNKNOWN:
        return set_keywords(source, call, {"persistent_workers": "True"})
    if isinstance(count, (ast.Name, ast.Attribute)):  # without workers, DataLoader rejects the argument
        return set_keywords(source, call, {"persistent_workers": f"{source.slice(count)} > 0"})
    raise UnclearError("there may be no workers")


def batch_sampler(source: PythonSource, finding: Finding) -> list[TextEdit]:
    """A sampler of whole batches, and no batching by the loader: for a TensorDataset, the same batches."""

    def changes(call: ast.Call) -> bool:
        return len(call.args) <= 3 and all(argument(call, name) is None for name in _CHOOSE_ITEMS)

    call = _loader(source, finding, changes)
    if source.mentions(".batch_size", ".batch_sampler", "IterableDataset"):
        raise UnclearError("the loader has no batch size then")
    given = dict(zip(("dataset", "batch_size", "shuffle"), call.args, strict=False))
    given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
    dataset, size, shuffle = given.get("dataset"), given.get("batch_size"), constant(given.get("shuffle"))
    if len(given) < len(call.args) + len(call.keywords) or not isinstance(dataset, (ast.Name, ast.Attribute)):
        raise UnclearError("arguments hidden in **, or a data set without a name")
    if size is None or shuffle not in (None, False, True):
        raise UnclearError("the batch size or the order is set elsewhere")
    utils, name = f"{source.module('torch')}.utils.data", source.slice(dataset)
    order = f"{utils}.{'RandomSampler' if shuffle else 'SequentialSampler'}({name})"
    drop_last = source.slice(given["drop_last"]) if "drop_last" in given else "False"
    sampler = f"sampler={utils}.BatchSampler({order}, {source.slice(size)}, drop_last={drop_last})"
    others = [f"{key}={source.slice(value)}" for key, value in given.items() if key not in _OF_BATCHES]
    arguments_text = ", ".join([name, sampler, "batch_size=None", *others])
    return [TextEdit(source.start(call), source.end(call), f"{source.slice(call.func)}({arguments_text})")]


def pinned_copies(source: PythonSource, finding: Finding) -> list[TextEdit]:
    """Pinned batches and non-blocking copies of them; one without the other saves nothing."""
    edits: list[TextEdit] = []
    batches: list[ast.expr] = []
    for place in finding.locations:
        statements = statements_at(source, place)
        statements = [statement for statement in statements if source.loops(statement)] or statements
        copies = [copy for statement in statements for copy in _copies(statement)]
        if not copies:
            raise UnclearError("no copy of a batch")
        for call, batch in copies:
            edits += _non_blocking(source, call)
            batches.append(batch)

    loader = constructor(source, batches, lambda call: _is_loader(source, call), _unpinned)
    return edits + set_keywords(source, loader, {"pin_memory": "True"})


def _copies(statement: ast.stmt) -> Iterator[tuple[ast.Call, ast.expr]]:
    """Calls of .to() and .cuda(), with the expression that they copy."""
    for node in own_nodes(statement):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("to", "cuda"):
            yield node, node.func.value


def _non_blocking(source: PythonSource, call: ast.Call) -> list[TextEdit]:
    given = constant(argument(call, "non_blocking"))
    if given is True:
        return []
    if given not in (None, False) or any(isinstance(constant(value), bool) for value in call.args):
        raise UnclearError("non_blocking is set elsewhere")
    return set_keywords(source, call, {"non_blocking": "True"})


def _loader(source: PythonSource, finding: Finding, changes: Wanted) -> ast.Call:
    """The DataLoader that the fix changes: the one constructed at the finding's location, else the one of its loop."""

    def wanted(call: ast.Call) -> bool:
        return _is_loader(source, call)

    built = constructed_at(source, finding.locations[0], wanted)
    if len(built) == 1:
        return only([call for call in built if changes(call)])
    return constructor(source, _iterated(source, finding), wanted, changes)


def _iterated(source: PythonSource, finding: Finding) -> list[ast.expr]:
    """What the loops and next() calls at the finding's location read from. Raises UnclearError if there are none."""
    values: list[ast.expr] = []
    for statement in statements_of(source, finding):
        for node in own_nodes(statement):
            if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
                values.append(node.iter)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "next":
                values += node.args[:1]
    if not values:
        raise UnclearError("no loop")
    return values


def _is_loader(source: PythonSource, call: ast.Call) -> bool:
    return source.dotted(call.func) in _LOADERS


def _workers(call: ast.Call) -> ast.expr | None:
    return call.args[_WORKERS_POSITION] if len(call.args) > _WORKERS_POSITION else argument(call, "num_workers")


def _number(value: ast.expr | None) -> float:
    """An integer literal in the source; 0 if no value is given, UNKNOWN for any other expression."""
    number = constant(value)
    return number if type(number) is int else 0 if number is None else UNKNOWN


def _unpinned(call: ast.Call) -> bool:
    """Whether the call leaves pin_memory off, or sets it to False with a keyword."""
    return len(call.args) <= _PIN_POSITION and constant(argument(call, "pin_memory")) in (None, False)


def _runs_when_imported(source: PythonSource) -> bool:
    """Whether the file trains without `if __name__ == "__main__"`: a worker that is not forked would train as well."""
    functions = {node.name for node in source.tree.body if isinstance(node, Function)}
    return any(
        isinstance(statement, (ast.For, ast.While))
        or (
            isinstance(statement, ast.Expr)
            and isinstance(statement.value, ast.Call)
            and isinstance(statement.value.func, ast.Name)
            and statement.value.func.id in functions
        )
        for statement in source.tree.body
    )
