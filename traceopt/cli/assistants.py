"""`traceopt mcp` serves the analysis to coding assistants; `traceopt skill` prints how they use the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from traceopt.cli.shared.help import ExplainedCommand
from traceopt.cli.shared.options import FILE, config_option, debug_option
from traceopt.cli.shared.results import analyzed, configuration
from traceopt.errors import ConfigError
from traceopt.output import emit

if TYPE_CHECKING:
    from traceopt.result.document import Result


@click.command(cls=ExplainedCommand)
@click.option(
    "--root",
    "roots",
    multiple=True,
    type=FILE,
    metavar="DIR",
    help="Folder that may be read; repeat for several.  [default: the current folder]",
)
@click.option("--allow-run", is_flag=True, help="Also offer try_variant and tune, which run scripts of these folders.")
@config_option
@debug_option
@click.pass_context
def mcp(context: click.Context, roots: tuple[Path, ...], allow_run: bool, config_path: Path | None) -> None:
    """Serve the analysis to coding assistants over MCP, on stdin and stdout.

    Needs the extra: pip install 'traceopt-profiler[mcp]'. Tools read files in these folders and write nothing.
    """
    config = configuration(config_path)
    debug = context.obj["debug"]
    try:
        from traceopt.assistants.server import build_server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types", "pydantic"):
            raise
        raise ConfigError("the MCP server needs the package mcp: pip install 'traceopt-profiler[mcp]'") from error
    from traceopt.assistants.roots import Roots
    from traceopt.assistants.tools import Tools

    def analyze(paths: Sequence[str], run: str | None) -> Result:
        return analyzed(paths, (), config, run=run, debug=debug, quiet=True)

    tools = Tools(Roots(roots or (Path.cwd(),)), config, analyze)
    build_server(tools, allow_run=allow_run).run("stdio")


@click.command(cls=ExplainedCommand)
def skill() -> None:
    """Print SKILL.md: how a coding assistant finds and proves a speed-up with traceopt."""
    from importlib.resources import files

    emit(files("traceopt.assistants").joinpath("SKILL.md").read_bytes())
