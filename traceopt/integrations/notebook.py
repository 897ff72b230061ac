"""`%load_ext traceopt` and `%%traceopt`: records the loop of a notebook cell, and shows the result below it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic_arguments import MagicArgumentParser

from traceopt.analysis import Analysis
from traceopt.api import analyze
from traceopt.capture.settings import PRESETS
from traceopt.profiling import profile

LOGDIR = "traceopt-logs"


def load_ipython_extension(shell: Any) -> None:
    """Called by `%load_ext traceopt`."""
    parser = MagicArgumentParser(
        prog="%%traceopt", description="Records the loop of this cell, and shows what limits its speed.", add_help=False
    )
    parser.add_argument("--preset", choices=list(PRESETS), default="standard", help="how many steps to record")
    parser.add_argument("--logdir", help=f"folder for the traces; by default a new one in {LOGDIR}")
    parser.add_argument("--steps", metavar="NAME", help="do not detect steps: the cell calls NAME.step() after each")
    parser.add_argument("--html", metavar="FILE", help="also write the HTML report")

    def traceopt(line: str, cell: str) -> Analysis | None:
        return _profiled(shell, parser.parse_argstring(line), cell)

    traceopt.__doc__ = parser.format_help()
    shell.register_magic_function(traceopt, magic_kind="cell", magic_name="traceopt")


def _profiled(shell: Any, options: Any, cell: str) -> Analysis | None:
    """None if no step was recorded; `profile` has warned then. An exception of the cell is raised as it is."""
    if options.steps is not None and not options.steps.isidentifier():
        raise UsageError(f"%%traceopt --steps {options.steps}: expected a name of Python")
    code = _compiled(shell, cell)
    folder = Path(options.logdir or Path(LOGDIR) / f"notebook-{time.strftime('%Y%m%d-%H%M%S')}")
    with profile(folder, options.preset) as recording:
        if options.steps is None:
            with recording.detecting_steps():
                exec(code, shell.user_ns)  # noqa: S102 - the cell is the user's
        else:
            shell.user_ns[options.steps] = recording
            exec(code, shell.user_ns)  # noqa: S102
    if not recording.traces:
        return None
    result = analyze([str(path) for path in recording.traces])
    if options.html is not None:
        Path(options.html).write_text(result.to_html(), encoding="utf-8")
    return result


def _compiled(shell: Any, cell: str) -> Any:
    """The code of the cell under the file name that IPython gives it, so that tracebacks and stacks show its lines.

    The empty first line stands for the line of the magic, so line numbers agree with the cell.
    """
    source = "\n" + shell.transform_cell(cell)
    number = len(shell.user_ns["In"]) - 1  # of this cell
    name = shell.compile.cache(source, number, raw_code=source)
    return shell.compile(source, name, "exec")
