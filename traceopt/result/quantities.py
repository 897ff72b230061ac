"""Quantities as text: one spelling for sentences, tables and figures."""

from __future__ import annotations


def ms(ns: float) -> str:
    """ "12.3 ms" for a sentence; below a tenth of a millisecond in microseconds."""
    return f"{ns / 1e6:,.1f} ms" if ns >= 1e5 else f"{ns / 1e3:,.0f} µs"


def times(count: float) -> str:
    """How often in a step, for a sentence."""
    if 0.95 <= count <= 1.05:
        return "once a step"
    return f"{count:,.0f} times a step" if count >= 10 else f"{count:,.2g} times a step"


def percent(share: float) -> str:
    """ "34%"; below ten per cent with one decimal."""
    return f"{share:.0%}" if share >= 0.0995 else f"{share:.1%}"


def peak_caveat(source: str | None, verified: bool | None) -> str:
    """What a sentence that uses a peak adds: "peak unverified", "peak from your settings", or nothing."""
    if verified is False:
        return "peak unverified"
    return f"peak from {source}" if source and verified is None else ""
