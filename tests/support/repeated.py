"""A trace several times over: its last steps one after the other, as if the same training had gone on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

Json = dict[str, Any]

# The arguments that link events, by what they number: in a copy they go on from those of the copy before it.
_LINKS = {
    "correlation": "call",
    "wait_on_cuda_event_record_corr_id": "call",
    "External id": "operator",
    "Python id": "frame",
    "Python parent id": "frame",
    "Sequence number": "gradient",
}
_PLACE = "Ev Idx"  # of an event among all that the profiler recorded, which a part of them does not have
_FLOW = "call"  # what the ids of flows number: most are those of calls
_STEP = re.compile(r"(?<=^ProfilerStep#)\d+$")
_CALLS = ("cuda_runtime", "cuda_driver")
_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
_ON_DEVICE = (*_WORK, "gpu_user_annotation")


def repeated(document: Json, times: int, steps: int) -> Json:
    """The document of a trace with its last marked steps so many times, each with what it launches.

    What the host does outside of them is left out; what goes on around them, as the frame of the training loop, ends
    with each copy. A copy begins when the host is done with the one before it, and when each stream is: where the host
    runs ahead of the device, it waits for it at the end of each copy.
    """
    events = document["traceEvents"]
    timed = [event for event in events if _is_timed(event)]
    marks = sorted((event for event in timed if _is_mark(event)), key=_start)[-steps:]
    begin, end = _start(marks[0]), _end(marks[-1])
    calls = {one["args"].get("correlation"): _start(one) for one in timed if one.get("cat") in _CALLS}
    part = [one for event in timed for one in _inside(event, begin, end, calls)]
    period_us = max(end - begin, *_busy_us(part), 0.0)
    part = [_until(one, begin + period_us) if _is_mark(one) and _end(one) == end else one for one in part]
    used = _used(part)
    numbers = [number for mark in marks for number in _step_numbers(mark)]
    count = 1 + numbers[-1] - numbers[0]
    copies = (
        _later(event, n * period_us, {kind: n * many for kind, many in used.items()}, n * count)
        for n in range(times)
        for event in part
    )
    return {**document, "traceEvents": [*(one for one in events if not _is_timed(one)), *copies]}


def _busy_us(events: Iterable[Json]) -> list[float]:
    """For each stream: how long it takes from its first work to the end of its last, and until the next could begin."""
    work = sorted((event for event in events if event.get("cat") in _WORK), key=lambda one: (_stream(one), _start(one)))
    streams = [list(mine) for _, mine in groupby(work, _stream)]
    return [max(map(_end, mine)) - _start(mine[0]) + 1 for mine in streams]


def _stream(event: Json) -> str:
    return f"{event.get('pid')} {event.get('tid')}"


def _is_timed(event: Json) -> bool:
    return event.get("ph") != "M" and "ts" in event


def _start(event: Json) -> float:
    return float(event["ts"])


def _end(event: Json) -> float:
    return float(event["ts"]) + float(event.get("dur", 0))


def _is_mark(event: Json) -> bool:
    return event.get("cat") not in _ON_DEVICE and "dur" in event and any(_step_numbers(event))


def _inside(event: Json, begin: float, end: float, calls: dict[Any, float]) -> Iterator[Json]:
    """The part of an event in the window of the host; nothing of one that is outside. The device's work is where it was
    launched, as far as that is known.
    """
    start, stop = _start(event), _end(event)
    if event.get("cat") in _WORK or event.get("ph") == "f":
        number = event.get("args", {}).get("correlation", event.get("id"))
        if begin <= calls.get(number, start) < end:
            yield {**event, "ts": start}
    elif event.get("cat") not in _ON_DEVICE and start < end and stop >= begin:
        inside = {**event, "ts": max(start, begin)}
        yield _until(inside, min(stop, end)) if "dur" in event else inside


def _until(event: Json, end: float) -> Json:
    return {**event, "dur": end - event["ts"]}


def _step_numbers(event: Json) -> Iterator[int]:
    found = _STEP.search(str(event.get("name")))
    if found is not None:
        yield int(found[0])


def _used(events: Iterable[Json]) -> dict[str, int]:
    """How many numbers of each kind are used."""
    used = dict.fromkeys(_LINKS.values(), 0)
    for event in events:
        for kind, number in _numbers(event):
            used[kind] = max(used[kind], number + 1)
    return used


def _numbers(event: Json) -> Iterator[tuple[str, int]]:
    if _is_number(event.get("id")):
        yield _FLOW, event["id"]
    for name, value in event.get("args", {}).items():
        if name in _LINKS and _is_number(value):
            yield _LINKS[name], value


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and value >= 0


def _later(event: Json, us: float, used: dict[str, int], steps: int) -> Json:
    """The event of a later copy."""
    later = {**event, "ts": event["ts"] + us}
    if _is_number(event.get("id")):
        later["id"] = event["id"] + used[_FLOW]
    if "args" in event:
        later["args"] = {
            name: value + used[_LINKS[name]] if name in _LINKS and _is_number(value) else value
            for name, value in event["args"].items()
            if name != _PLACE
        }
    if "name" in event:
        later["name"] = _STEP.sub(lambda found: str(int(found[0]) + steps), str(event["name"]))
    return later
