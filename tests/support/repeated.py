"""A trace several times over: its steps one after the other, as if the same training had gone on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
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
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation")


def repeated(document: Json, times: int) -> Json:
    """The document of a trace with its steps so many times. What the host does before and after them is left out; what
    goes on around them, as the frame of the training loop, ends with each copy.
    """
    events = document["traceEvents"]
    begin, end = _window(events)
    steps = [part for event in events if _is_timed(event) for part in _inside(event, begin, end)]
    device = [event for event in steps if event.get("cat") in _ON_DEVICE]
    device_us = max(map(_end, device)) - min(event["ts"] for event in device) if device else 0.0
    period_us = max(end - begin, device_us)  # host and device are both done with a copy before the next one
    used = _used(steps)
    marks = {number for event in steps for number in _step_numbers(event)}
    count = 1 + max(marks) - min(marks) if marks else 0
    copies = (
        _later(event, n * period_us, {kind: n * many for kind, many in used.items()}, n * count)
        for n in range(times)
        for event in steps
    )
    return {**document, "traceEvents": [*(one for one in events if not _is_timed(one)), *copies]}


def _window(events: Iterable[Json]) -> tuple[float, float]:
    """From the first mark of a step to the end of the last, and of the last call: one that waits for the device keeps
    the host from being ahead. Without marks, from the first event to the last.
    """
    timed = [event for event in events if _is_timed(event)]
    marks = [one for one in timed if list(_step_numbers(one)) and one.get("cat") not in _ON_DEVICE]
    calls = [one for one in timed if one.get("cat") in _CALLS]
    return min(float(event["ts"]) for event in marks or timed), max(map(_end, [*marks, *calls] if marks else timed))


def _is_timed(event: Json) -> bool:
    return event.get("ph") != "M" and "ts" in event


def _end(event: Json) -> float:
    return float(event["ts"]) + float(event.get("dur", 0))


def _inside(event: Json, begin: float, end: float) -> Iterator[Json]:
    """The part of an event in the window of the host; nothing of one that is outside."""
    start, stop = float(event["ts"]), _end(event)
    if event.get("cat") in _ON_DEVICE or event.get("ph") == "f":
        if start >= begin:
            yield {**event, "ts": start}
    elif start < end and stop >= begin:
        start, stop = max(start, begin), min(stop, end)
        yield {**event, "ts": start, "dur": stop - start} if "dur" in event else {**event, "ts": start}


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
