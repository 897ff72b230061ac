#!/usr/bin/env python3
"""Frames per second of the report's timeline while it zooms and pans over many spans, in headless Chromium.

python -m benchmarks.timeline_frames [--spans 100000] [--frames 200]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fixtures.generate import generate
from traceopt.api import analyze
from traceopt.reports.html.page import render_html
from traceopt.result.document import Result
from traceopt.result.packing import pack_columns
from traceopt.result.rows import COLUMNS, STREAM_COLUMNS, Lane, Span, SpanLane, SpanTable, StepWindow, Timeline

CHROMIUM = "/usr/bin/chromium"
STEP_MS = 400.0
LEVELS = 6  # of nested events on each thread
THREADS, STREAMS = 2, 2
NAMES = 300

# Each frame presses the next key: in, right, out, left, so that the view shows everything from the whole step down.
FRAMES = """frames => new Promise(done => {
    const canvas = document.getElementById("span-canvas"), times = [], keys = "wwwwwwwwddddddssssssssaaaaaa";
    function frame(now) {
        times.push(now);
        if (times.length > frames) {
            done(times);
            return;
        }
        canvas.dispatchEvent(new KeyboardEvent("keydown", {key: keys[times.length % keys.length]}));
        requestAnimationFrame(frame);
    }
    canvas.dispatchEvent(new KeyboardEvent("keydown", {key: "Home"}));
    requestAnimationFrame(frame);
})"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spans", type=int, default=100_000)
    parser.add_argument("--frames", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "report.html")
        page.write_text(render_html(report(options.spans, Path(folder))), encoding="utf-8")
        times = frame_times(page, options.frames)
        size = page.stat().st_size
    gaps = np.diff(times)
    print(f"{options.spans:,} spans in one step, {size / 1e6:.2f} MB: {1_000 / gaps.mean():.0f} frames per second;")
    print(f"the median frame takes {np.median(gaps):.1f} ms, the slowest of 20 takes {np.percentile(gaps, 95):.1f} ms")


def report(spans: int, folder: Path) -> Result:
    """The report of a small generated trace, with this many spans in its step."""
    trace = folder / "trace.json"
    trace.write_bytes(orjson.dumps(generate("healthy").document))
    result = analyze(str(trace))
    still = Lane("gpu", "GPU compute", "stream 0", [Span(0.0, STEP_MS * 1_000, "step", "compute")], 1)
    timeline = Timeline("ProfilerStep#1", STEP_MS * 1_000, [still], [], table(spans))
    return replace(result, timeline=timeline, step=replace(result.step, series=None))


def table(spans: int) -> SpanTable:
    """A third of the spans on streams; the others are nested events of threads."""
    chance = np.random.default_rng(1)
    on_streams = spans // 3
    per_stream = [on_streams // STREAMS] * STREAMS
    per_thread = [(spans - sum(per_stream)) // THREADS] * THREADS
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for count, levels in [*((count, LEVELS) for count in per_thread), *((count, 1) for count in per_stream)]:
        start, duration = nested(count, levels)
        columns["start"].append(np.diff(start, prepend=0))
        columns["duration"].append(duration)
        columns["name"].append(chance.integers(0, NAMES, count))
        columns["category"].append(chance.integers(0, 2, count) + (2 if levels == 1 else 0))
        columns["place"].append(np.zeros(count, np.int64))
        columns["detail"].append(np.zeros(count, np.int64))
    none = np.zeros(sum(per_stream), np.int64)
    threads = [SpanLane("thread", "CPU thread", f"thread {n}", count, 0) for n, count in enumerate(per_thread)]
    streams = [SpanLane("stream", "GPU compute", f"stream {n}", count, 0) for n, count in enumerate(per_stream)]
    return SpanTable(
        steps=[StepWindow(0, "ProfilerStep#1", 0.0, STEP_MS * 1_000)],
        lanes=[*threads, *streams],
        names=[f"operator_{number}" for number in range(NAMES)],
        labels=[""] * NAMES,
        categories=["cpu", "runtime", "compute", "copy"],
        places=[],
        details=[],
        stalls=[],
        columns=pack_columns([*(np.concatenate(columns[name]) for name in COLUMNS), *([none] * len(STREAM_COLUMNS))]),
    )


def nested(count: int, levels: int) -> tuple[Any, Any]:
    """Start and duration, ns, of spans side by side in groups: each group is nested `levels` deep."""
    groups = -(-count // levels)
    width = STEP_MS * 1e6 / groups
    index = np.arange(count)
    group, level = index // levels, index % levels
    start = group * width + level * 0.05 * width
    return start.astype(np.int64), (width * (0.9 - 0.1 * level)).astype(np.int64)


def frame_times(page: Path, frames: int) -> list[float]:
    """When each frame began, ms."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1280, "height": 900})
        tab.goto(f"file://{page}")
        tab.locator("#timeline-box").scroll_into_view_if_needed()
        tab.wait_for_selector("#span-canvas[data-ready]")
        times: list[float] = tab.evaluate(FRAMES, frames)
        browser.close()
    return times


if __name__ == "__main__":
    main()
