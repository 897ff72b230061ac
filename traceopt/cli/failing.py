"""How the program fails: with one line on stderr, wrapped on a terminal. A traceback comes only with --debug."""

from __future__ import annotations

import shutil
import sys
import textwrap
from contextlib import suppress
from typing import Any

import click

from traceopt.cli.shared.help import HelpContext, write_commands, write_examples
from traceopt.errors import TraceoptError, error_text, one_line

EXIT_ERROR = 2
EXIT_INTERRUPTED = 130


class Cli(click.Group):
    """A command group that turns every error into one line and an exit code."""

    context_class = HelpContext

    def format_help_text(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(context, formatter)
        write_examples(self, formatter)

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        write_commands(self, formatter)

    def main(self, *args: Any, **options: Any) -> Any:
        state = {"debug": False}
        try:
            code = super().main(*args, **options | {"standalone_mode": False, "obj": state})
        except click.Abort:
            code = _fail("interrupted", EXIT_INTERRUPTED)
        except click.UsageError as error:
            command = error.ctx.command_path if error.ctx else "traceopt"
            code = _fail(f"error: {one_line(error.format_message()).rstrip('.')}; see '{command} --help'")
        except Exception as error:
            code = _fail(fault(error, debug=state["debug"]))
        sys.exit(code)


def fault(error: Exception, *, debug: bool) -> str:
    """What went wrong, in one line. With `debug`, the traceback is printed first."""
    if debug:
        import traceback

        traceback.print_exception(error)
    if isinstance(error, TraceoptError):
        return f"error: {error}"
    if isinstance(error, MemoryError):
        return "error: not enough memory: pass fewer or smaller traces"
    return one_line(f"internal error: {error_text(error)}") + ("" if debug else " (run with --debug for the traceback)")


def _fail(message: str, code: int = EXIT_ERROR) -> int:
    with suppress(OSError):  # stderr is closed: only the exit code is left
        click.echo(_wrapped(f"traceopt: {message}") if sys.stderr.isatty() else f"traceopt: {message}", err=True)
    return code


def _wrapped(line: str) -> str:
    """A line for the terminal's width. Paths are not broken."""
    width = max(40, shutil.get_terminal_size().columns)
    return textwrap.fill(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
