"""The command line without an analysis: a result with nothing in it, a command, its one line of error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from click.testing import CliRunner
from click.testing import Result as Outcome

from traceopt import __version__
from traceopt.cli import cli
from traceopt.result.document import Quality, Result
from traceopt.result.sections.run import Recorded, Run, Tool
from traceopt.result.sections.step import Communication, DataLoader, Efficiency, Gpu, Memory, Step, Sync, TensorCores

RESULT = Result(
    tool=Tool("traceopt", __version__),
    verdict="The GPU is idle.",
    run=Run(["logs"], 1, [0], 0, None, None, Recorded(True, True, True, True), []),
    quality=Quality("good", []),
    step=Step("window", 1, 0, None, [], None, None, None, []),
    breakdown=[],
    gpu=Gpu(None, None, None, None, None, []),
    sync=Sync(None, None, None),
    dataloader=DataLoader(None, None),
    communication=Communication(None, None, None, []),
    copies=[],
    tensor_cores=TensorCores(None, None, None),
    efficiency=Efficiency(None, None, None, None, None, None),
    memory=Memory(None, None, None, [], []),
    kernels=[],
    ops=[],
    gemms=[],
    ranks=[],
    timeline=None,
    findings=[],
    combined=None,
    checks=[],
)


def run(*arguments: str | Path, **options: Any) -> Outcome:
    return CliRunner().invoke(cli, [*map(str, arguments)], prog_name="traceopt", **options)


def one_error(outcome: Outcome) -> str:
    """The message of an outcome that failed as it should: exit code 2, one line on stderr."""
    assert outcome.exit_code == 2
    assert not outcome.stdout
    assert outcome.stderr.count("\n") == 1
    assert outcome.stderr.startswith("traceopt: ")
    return outcome.stderr.rstrip("\n")
