"""Clients of the MCP server, in the same process."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from mcp import Client
from mcp_types import CallToolResult, TextContent
from mcp_types import Tool as DeclaredTool

from traceopt.api import analyze
from traceopt.assistants.roots import Roots
from traceopt.assistants.server import build_server
from traceopt.assistants.tools import Tools
from traceopt.config import Config
from traceopt.result.document import Result

T = TypeVar("T")


def awaited(coroutine: Coroutine[Any, Any, T]) -> T:
    """Its result, from a thread of its own: Playwright keeps an event loop running in the thread of the tests."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


class Server:
    """A server with its roots. `analyses` counts how often it analyzed traces."""

    def __init__(self, *folders: Path, allow_run: bool = False) -> None:
        self.analyses = 0
        self._server = build_server(Tools(Roots(folders), Config(), self._analyze), allow_run=allow_run)

    def _analyze(self, paths: Sequence[str], run: str | None) -> Result:
        self.analyses += 1
        return analyze(paths, run=run)

    def tools(self) -> list[DeclaredTool]:
        async def listed() -> list[DeclaredTool]:
            async with Client(self._server) as client:
                return (await client.list_tools()).tools

        return awaited(listed())

    def call(self, tool: str, *, mode: str = "auto", **arguments: Any) -> CallToolResult:
        """The client checks structured content against the tool's output schema. `mode`: how it connects."""

        async def called() -> CallToolResult:
            async with Client(self._server, mode=mode) as client:
                return await client.call_tool(tool, arguments)

        return awaited(called())

    def answer(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result = self.call(tool, **arguments)
        assert not result.is_error, text_of(result)
        assert result.structured_content is not None
        return result.structured_content

    def error(self, tool: str, **arguments: Any) -> str:
        result = self.call(tool, **arguments)
        assert result.is_error
        return text_of(result)


def text_of(result: CallToolResult) -> str:
    [content] = result.content
    assert isinstance(content, TextContent)
    return content.text
