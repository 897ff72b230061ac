"""The options of `traceopt run` for a recording that waits for something."""

from __future__ import annotations

import re
from typing import Any

import click

from traceopt.cli.shared.options import options

WHEN = re.compile(r"step\s*>\s*(?P<number>\d+(?:\.\d+)?)\s*(?:(?P<of>\*\s*median)|(?P<unit>ms|s))")
AT = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>s|m|min|h)")
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600}
_US = {"ms": 1e3, "s": 1e6}


def _when(_: click.Context, __: click.Parameter, text: str | None) -> tuple[float | None, float | None]:
    """The factor of the median, and the time in us."""
    if text is None:
        return None, None
    found = WHEN.fullmatch(text.strip())
    if found is None or not (number := float(found["number"])):
        raise click.BadParameter(f'{text}: expected "step > 1.3 * median" or "step > 250ms"')
    return (number, None) if found["of"] else (None, number * _US[found["unit"]])


def _at(_: click.Context, __: click.Parameter, text: str | None) -> float | None:
    """Seconds."""
    if text is None:
        return None
    found = AT.fullmatch(text.strip())
    if found is None:
        raise click.BadParameter(f"{text}: expected a time such as 90s, 30m or 2h")
    return float(found["number"]) * _SECONDS[found["unit"]]


trigger_options = options(
    click.option(
        "--record-when",
        callback=_when,
        metavar="CONDITION",
        help='Record when steps become slow: "step > 1.3 * median", "step > 250ms".',
    ),
    click.option("--record-at", callback=_at, metavar="TIME", help="Record after this time: 90s, 30m, 2h."),
    click.option("--record-on-request", is_flag=True, help="Record at each traceopt record PID, or kill -USR2 PID."),
)


def trigger_of(record_when: tuple[float | None, float | None], record_at: float | None, record_on_request: bool) -> Any:
    """The Trigger of the options; None without any."""
    from traceopt.capture.settings import Trigger

    trigger = Trigger(*record_when, record_at, record_on_request)
    return trigger if trigger != Trigger() else None
