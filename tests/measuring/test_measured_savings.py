"""Savings with rates that were measured on the device: they follow from them, and the basis says so."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from traceopt.api import analyze
from traceopt.measuring.for_document import comparisons_of, write
from traceopt.result.experiments import Compared, Matmul, MeasuringDevice, Rates
from traceopt.result.finding import Saving
from traceopt.what_if import what_if

TRACES = Path(__file__).resolve().parents[2] / "fixtures" / "traces"
CASES = [
    ("h100/misaligned_vocabulary/plain", "GM001"),
    ("h100/fp32_matmul/plain", "TC001"),
    ("h100/unfused_attention/plain", "AT001"),
]


def saving_of(code: str, *paths: str) -> Saving:
    result = analyze(paths)
    [saving] = [one.saving for one in result.findings if one.code == code]
    assert saving is not None
    return saving


@pytest.mark.parametrize(("name", "code"), CASES)
def test_a_saving_follows_from_the_measured_speedup(tmp_path: Path, name: str, code: str) -> None:
    trace = str(TRACES / name)
    result = analyze(trace)
    asked = comparisons_of(result)
    assert result.run.device is not None
    device = MeasuringDevice(result.run.device.name or "", "2.13.0")
    savings = [saving_of(code, trace)]
    for speedup in (1.25, 2.0):
        file = tmp_path / f"{speedup}.rates.json"
        write(file, Rates(device, tuple(Compared(one, 1e6 * speedup, 1e6, 0.0) for one in asked)))
        savings.append(saving_of(code, trace, str(file)))
    assert savings[1].est_us < savings[2].est_us
    assert "easured on this device" in savings[1].basis
    assert "saves the same" not in savings[2].basis, "nothing is assumed"
    assert savings[1].experiments == savings[0].experiments


def test_rates_of_another_device_are_not_used(tmp_path: Path) -> None:
    trace = str(TRACES / CASES[0][0])
    result = analyze(trace)
    file = tmp_path / "other.rates.json"
    compared = tuple(Compared(one, 9e6, 1e6, 0.0) for one in comparisons_of(result))
    write(file, Rates(MeasuringDevice("Tesla T4", "2.13.0"), compared))
    assert analyze([trace, str(file)]).findings == result.findings


def test_what_if_uses_them_too(tmp_path: Path) -> None:
    name, code = CASES[0]
    for file in (TRACES / name).iterdir():
        shutil.copy(file, tmp_path)
    result = analyze(str(tmp_path))
    assert result.run.device is not None
    device = MeasuringDevice(result.run.device.name or "", "2.13.0")
    compared = tuple(Compared(one, 1.25e6, 1e6, 0.0) for one in comparisons_of(result))
    write(tmp_path / "traceopt.rates.json", Rates(device, compared))
    assert what_if(str(tmp_path), [code]).saving_us == pytest.approx(saving_of(code, str(tmp_path)).est_us, rel=0.001)


@pytest.mark.parametrize("data", [b'{"traceopt_rates"', b'{"traceopt_rates":1,"device":{"type":"device"}}'])
def test_a_damaged_file_is_a_warning(tmp_path: Path, data: bytes) -> None:
    shutil.copy(TRACES / "healthy.json.gz", tmp_path)
    (tmp_path / "traceopt.rates.json").write_bytes(data)
    assert any("traceopt.rates.json" in one for one in analyze(str(tmp_path)).warnings)


def test_what_a_file_asks_for_has_a_limit() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"type":"matmul","m":99999999999999,"n":1,"k":1,"batch":1,"dtype":"fp32"}', type=Matmul)
