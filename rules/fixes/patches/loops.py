"""Patches for statements of the training loop that wait or log: run them every N steps, or remove them."""

from __future__ import annotations

import ast

from traceopt.result.finding import Finding
from traceopt.rules.fixes.patches.places import statements_of
from traceopt.rules.fixes.patches.source import PythonSource, UnclearError, only
from traceopt.rules.fixes.patches.text_edits import TextEdit, put_inside, removed

_LOGGERS = ("print", "logging.", "wandb.log", "mlflow.log", "tqdm.", "sys.stdout.write", "sys.stderr.write")
_LOG_METHODS = (
    *("debug", "info", "warning", "log", "log_metrics", "log_metric", "log_dict"),
    *("add_scalar", "add_scalars", "add_histogram", "add_image", "add_text"),
    *("set_postfix", "set_postfix_str", "set_description", "set_description_str"),
)
# Calls without side effects, which may be skipped.
_READING = frozenset(
    """
    abs cpu detach enumerate exp float format get_last_lr int isfinite isnan item items join keys len max
    max_memory_allocated mean memory_allocated min named_parameters norm numel numpy parameters perf_counter range
    round size sorted sqrt std str strftime sum time tolist values var zip
    """.split()  # noqa: SIM905
)


def log_at_interval(source: PythonSource, finding: Finding) -> list[TextEdit]:
    """Runs statements that only print or log every N steps of the enclosing loop.

    If they are in a function that only logs, it is called every N steps.
    """
    statements, steps = statements_of(source, finding), finding.fix.settings["log.every"]
    call = _call_of_logger(source, source.scope(statements[0]))
    if call is not None:
        return _at_interval(source, [call], steps)
    runs = [run for statement in statements if (run := _logging_run(source, statement))]
    return _at_interval(source, only(runs), steps)


def collect_at_interval(source: PythonSource, finding: Finding) -> list[TextEdit]:
    """Runs an explicit collection every N steps."""
    return _at_interval(source, [_call_of(source, finding, "gc.collect")], finding.fix.settings["gc.collect.every"])


def no_synchronize(source: PythonSource, finding: Finding) -> list[TextEdit]:
    """Removes the statement, and an `if` that contains nothing else."""
    statement: ast.stmt = _call_of(source, finding, "torch.cuda.synchronize")
    for outer in source.ancestors(statement):
        if not (isinstance(outer, ast.If) and outer.body == [statement] and not outer.orelse):
            break
        if not _only_reads(source, outer.test):
            break
        statement = outer
    return removed(source, statement)


def _call_of(source: PythonSource, finding: Finding, function: str) -> ast.stmt:
    """The only statement at the finding's location that just calls this function."""
    return only(
        [
            statement
            for statement in statements_of(source, finding)
            if isinstance(statement, ast.Expr)
            and isinstance(statement.value, ast.Call)
            and source.dotted(statement.value.func) == function
        ]
    )


def _at_interval(source: PythonSource, statements: list[ast.stmt], steps: str) -> list[TextEdit]:
    loop = next(iter(source.loops(statements[0])), None)
    if not isinstance(loop, ast.For) or not _trains(source, loop):
        raise UnclearError("not the training loop")
    index = _index(source, loop)
    if any(_stores(node, index) for statement in loop.body for node in ast.walk(statement)):
        raise UnclearError("the loop changes its index")
    for outer in source.ancestors(statements[0]):
        if outer is loop:
            break
        if isinstance(outer, ast.If) and _is_interval(outer.test):
            raise UnclearError("the statement already runs at an interval")
    return put_inside(source, statements, f"if {index} % {steps} == 0:")


def _is_interval(test: ast.expr) -> bool:
    """Whether a condition holds in some steps only. In `debug or step % 50 == 0` the first part may always hold."""
    if isinstance(test, ast.BoolOp):
        parts = map(_is_interval, test.values)
        return all(parts) if isinstance(test.op, ast.Or) else any(parts)
    return any(isinstance(node, ast.Mod) for node in ast.walk(test))


def _trains(source: PythonSource, loop: ast.For) -> bool:
    """Whether each iteration calls step(): in the loop, or in a function of this file that the loop calls."""
    called = [node.func for node in ast.walk(loop) if isinstance(node, ast.Call)]
    names = {function.id for function in called if isinstance(function, ast.Name)}
    names |= {function.attr for function in called if isinstance(function, ast.Attribute)}
    bodies = [function for function in source.functions if function.name in names]
    return any(_steps(node) for body in (loop, *bodies) for node in ast.walk(body))


def _steps(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "step"


def _index(source: PythonSource, loop: ast.For) -> str:
    """The loop variable that counts iterations: `step` in `for step, batch in enumerate(...)` or `in range(...)`."""
    iterated, target = loop.iter, loop.target
    if isinstance(iterated, ast.Call) and (source.dotted(iterated.func) or "").startswith("tqdm.") and iterated.args:
        iterated = iterated.args[0]
    counter = iterated.func.id if isinstance(iterated, ast.Call) and isinstance(iterated.func, ast.Name) else ""
    if counter == "enumerate" and isinstance(target, ast.Tuple):
        target = target.elts[0]
    elif counter != "range":
        raise UnclearError("no index")
    if not isinstance(target, ast.Name) or target.id == "_":
        raise UnclearError("no index")
    return target.id


def _stores(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)


def _call_of_logger(source: PythonSource, function: ast.AST) -> ast.stmt | None:
    """The statement that calls a function of this file which only logs. None if it does more, or is used elsewhere."""
    if not isinstance(function, ast.FunctionDef) or function.decorator_list or not _only_logs(source, function.body):
        return None
    uses = [
        node
        for node in source.nodes
        if (isinstance(node, ast.Name) and node.id == function.name)
        or (isinstance(node, ast.Attribute) and node.attr == function.name)
    ]
    calls = [call for call in source.calls if call.func in uses]
    statement = source.statement(calls[0]) if len(uses) == len(calls) == 1 else None
    if not isinstance(statement, ast.Expr) or statement.value is not calls[0]:
        return None
    return statement if _reads_arguments(source, calls[0]) and source.scope(statement) is not function else None


def _only_logs(source: PythonSource, body: list[ast.stmt]) -> bool:
    """Whether statements of a function only log, and compute what they log in local variables."""
    for statement in body:
        if isinstance(statement, ast.For):
            well = not statement.orelse and _only_reads(source, statement.iter) and _only_logs(source, statement.body)
        elif isinstance(statement, ast.If):
            well = _only_reads(source, statement.test) and _only_logs(source, [*statement.body, *statement.orelse])
        elif isinstance(statement, ast.Assign):
            well = all(isinstance(target, ast.Name) for target in statement.targets) and _only_reads(
                source, statement.value
            )
        elif isinstance(statement, ast.AugAssign):
            well = isinstance(statement.target, ast.Name) and _only_reads(source, statement.value)
        elif isinstance(statement, ast.Return):
            well = statement.value is None
        else:
            docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            well = docstring or isinstance(statement, (ast.Pass, ast.Continue)) or _logs(source, statement)
        if not well:
            return False
    return True


def _logging_run(source: PythonSource, statement: ast.stmt) -> list[ast.stmt]:
    """A statement that only logs; or one that reads a value, with the log statements right below it; or nothing."""
    if _logs(source, statement):
        return [statement]
    target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
    if not (
        isinstance(target, ast.Name) and isinstance(statement, ast.Assign) and _only_reads(source, statement.value)
    ):
        return []
    block = source.block(statement)
    run: list[ast.stmt] = [statement]
    for below in block[block.index(statement) + 1 :]:
        if not _logs(source, below):
            break
        run.append(below)
    inside = {node for statement in run for node in ast.walk(statement)}
    uses = [node for node in ast.walk(source.scope(statement)) if isinstance(node, ast.Name) and node.id == target.id]
    return run if len(run) > 1 and inside.issuperset(uses) else []


def _logs(source: PythonSource, statement: ast.stmt) -> bool:
    if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)):
        return False
    call = statement.value
    name = source.dotted(call.func) or (call.func.id if isinstance(call.func, ast.Name) else "")
    known = name.startswith(_LOGGERS) or (isinstance(call.func, ast.Attribute) and call.func.attr in _LOG_METHODS)
    return known and _reads_arguments(source, call)


def _reads_arguments(source: PythonSource, call: ast.Call) -> bool:
    return all(_only_reads(source, value) for value in [*call.args, *(keyword.value for keyword in call.keywords)])


def _only_reads(source: PythonSource, value: ast.expr) -> bool:
    """Whether evaluating a value has no side effects."""
    for node in ast.walk(value):
        if isinstance(node, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)):
            return False
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name not in _READING and source.dotted(node.func) != "torch.cuda.is_available":
                return False
    return True
