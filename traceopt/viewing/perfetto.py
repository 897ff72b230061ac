"""Serves one trace on this machine's loopback address, for the Perfetto UI in the user's browser.

The UI fetches the file that its link names (`#!/?url=`). Its content security policy allows port 9001 of 127.0.0.1 and
no other, so the port is fixed: https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui
"""

from __future__ import annotations

import errno
import shutil
import sys
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from traceopt.analyzer.reading.sources import TraceSource
from traceopt.errors import InputError

HOST, PORT = "127.0.0.1", 9001
UI = "https://ui.perfetto.dev"
PATH = "/trace.json"
LINK = f"{UI}/#!/?url=http://{HOST}:{PORT}{PATH}"


class TraceServer(ThreadingHTTPServer):
    """Serves `source` at PATH and nothing else. Raises InputError if the port is in use."""

    daemon_threads = True
    allow_reuse_address = sys.platform != "win32"  # there, it would share the port with another program

    def __init__(self, source: TraceSource, port: int = PORT) -> None:
        self.source = source
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            raise InputError(
                f"port {port} is in use, and {UI} can read from no other. Stop the program that uses it (another "
                f"traceopt view, or trace_processor), or open {source.label} in the page by hand"
            ) from None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that closes the connection is no error."""


class _Handler(BaseHTTPRequestHandler):
    server: TraceServer

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_OPTIONS(self) -> None:
        """Chromium asks before a public page reads from the local network."""
        self.send_response(HTTPStatus.NO_CONTENT)
        self.send_header("Access-Control-Allow-Methods", "GET, HEAD")
        self.send_header("Access-Control-Allow-Private-Network", "true")
        self.end_headers()

    def _answer(self, *, body: bool) -> None:
        # Another site that a name server points to this address sends its own name.
        if self.path != PATH or self.headers.get("Host") != f"{HOST}:{self.server.server_port}":
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        with self.server.source.open() as trace:
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "application/octet-stream")
            self.end_headers()
            if body:
                shutil.copyfileobj(trace, self.wfile, 1 << 20)

    def end_headers(self) -> None:
        self.send_header("Access-Control-Allow-Origin", UI)
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        super().end_headers()

    def log_message(self, *_: Any) -> None:
        """The user waits for a page, not for a log."""


def view(source: TraceSource, tell: Callable[[str], None], *, browser: bool = True) -> None:
    """Serves the trace until the user interrupts it, and opens the browser. Raises InputError if it cannot be read."""
    source.open().close()
    with TraceServer(source) as server:
        if not (browser and _opened(LINK)):
            tell("No browser was opened. Open this link in a browser on this machine:")
        tell(LINK)
        tell(f"Serving {source.label} on {HOST} only; the trace stays on this machine. Ctrl+C ends it.")
        with suppress(KeyboardInterrupt):
            server.serve_forever()


def _opened(link: str) -> bool:
    try:
        return webbrowser.open(link)
    except webbrowser.Error:
        return False
