"""RH001 and RH002: planted in the samples of a GPU, and the same samples without the fault."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from support.gpu_health import sampled, source

from traceopt.analyzer.companions.gpu_samples import samples
from traceopt.analyzer.reading.sources import TraceSource
from traceopt.api import analyze
from traceopt.errors import InputError
from traceopt.reports.html.page import render_html
from traceopt.reports.words.companions.sections import companion_lines


def test_samples_alone_are_a_report(tmp_path: Path) -> None:
    sampled(tmp_path, power_w=612, reasons=0)
    result = analyze(str(tmp_path))
    assert result.gpu_samples is not None
    said = "GPU 0 (H100), busy in 60 of 60 samples: 1,900 of 2,000 MHz, 612 of 700 W, at most 60 °C."
    assert companion_lines(result) == [said]
    assert said in render_html(result)


@pytest.mark.parametrize("first", ['{"traceopt_gpu_samples": 9}', "[", "[" * 9999, ""])
def test_a_damaged_file_is_one_clear_line(tmp_path: Path, first: str) -> None:
    with pytest.raises(InputError, match="can read"):
        samples.read_gpu_samples([source(tmp_path, first, "{}")], [])


def test_odd_samples_are_left_out(tmp_path: Path) -> None:
    warnings: list[str] = []
    odd = [
        "{",
        '{"s": NaN}',
        '{"s": 1, "gpus": [3, {"index": -1}, {"index": 0, "processes": [[1], "x"], "sm_mhz": "9"}]}',
    ]
    known = samples.read_gpu_samples([source(tmp_path, '{"traceopt_gpu_samples": 1}', *odd)], warnings)
    assert len(known.gpus) == 1
    assert known.gpus[0].samples[0].sm_mhz is None
    assert warnings == ["host.gpu_samples.jsonl: 2 samples cannot be read"]


HOSTILE_SAMPLES: dict[str, list[str]] = {
    "deep": ['{"s": 1, "gpus": ' + "[" * 50_000],
    "huge numbers": ['{"s": 1e400, "gpus": [{"index": 0}]}', '{"s": 1, "gpus": [{"index": 1e30, "sm_mhz": -5}]}'],
    "many gpus": ['{"s": 1, "gpus": [' + ", ".join(f'{{"index": {i}}}' for i in range(5_000)) + "]}"],
    "many processes": ['{"s": 1, "gpus": [{"index": 0, "processes": [' + ", ".join(["[1, 2, false]"] * 5_000) + "]}]}"],
    "wrong types": ['{"s": true, "gpus": {"index": 0}}', '[{"s": 1}]', '"s"', "null", '{"s": "1", "gpus": "x"}'],
    "no text": ["\\u0000", "\x1b[31m<script>"],
    "a long line": ['{"s": 1, "x": "' + "y" * samples.MOST_LINE + '", "gpus": [{"index": 0}]}'],
}


@pytest.mark.parametrize("trick", sorted(HOSTILE_SAMPLES))
def test_hostile_samples_are_left_out(trick: str, tmp_path: Path) -> None:
    head = (
        '{"traceopt_gpu_samples": 1, "gpus": [{"index": 0, "name": 3}, [], {"index": 0, "name": "'
        + "n" * 5_000
        + '"}]}'
    )
    known = samples.read_gpu_samples([source(tmp_path, head, *HOSTILE_SAMPLES[trick])], [])
    assert len(known.gpus) <= samples.MOST_GPUS
    assert all(len(one.others) <= samples.MOST_GPUS for gpu in known.gpus for one in gpu.samples)
    assert all(len(gpu.name) <= 1_000 for gpu in known.gpus)


def test_samples_with_random_damage_end_in_samples_or_one_line(tmp_path: Path) -> None:
    row = (
        '{"s": 1.5, "gpus": [{"index": 0, "sm_mhz": 1200, "reasons": 4, "power_w": 7e2, "processes": [[7, 8, true]]}]}'
    )
    text = "\n".join(
        ['{"traceopt_gpu_samples": 1, "host": "h", "gpus": [{"index": 0, "name": "x"}]}', *[row] * 20]
    ).encode()
    random = np.random.default_rng(17)
    path = tmp_path / "host.gpu_samples.jsonl"
    for _ in range(300):
        damaged = bytearray(text)
        for at in random.integers(0, len(text), 5).tolist():
            damaged[at] = int(random.integers(256))
        path.write_bytes(damaged)
        with suppress(InputError):
            samples.read_gpu_samples([TraceSource(str(path), None, path.name)], [])


def test_a_file_of_samples_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "MOST_BYTES", 100)
    with pytest.raises(InputError, match="too large for samples of a GPU"):
        samples.read_gpu_samples([source(tmp_path, '{"traceopt_gpu_samples": 1}', *['{"s": 1}'] * 50)], [])
