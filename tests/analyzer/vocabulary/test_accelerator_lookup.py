"""The peak table answers for names seen in traces, stays silent on unknown ones, takes corrections."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from traceopt.analyzer.vocabulary.accelerator import accelerators
from traceopt.analyzer.vocabulary.accelerator_lookup import find
from traceopt.analyzer.vocabulary.architectures import (
    GIB,
    Architecture,
    architecture,
    architecture_named,
    geforce_ratio,
    needed_multiple,
)
from traceopt.result.words.vendors import AMD, NVIDIA, OTHER

# Names of real traces (shared/traces) and drivers: name, capability, memory bytes;
# then row, FP16 peak, bandwidth.
KNOWN = [
    ("Tesla V100-SXM2-32GB", "7.0", 34079637504, "V100 SXM2", 125, 900),
    ("Tesla V100-DGXS-32GB", "7.0", 34087305216, "V100 SXM2", 125, 900),
    ("Tesla V100-PCIE-16GB", "7.0", None, "V100 PCIe", 112, 900),
    ("Tesla T4", "7.5", 15828320256, "T4", 65, 320),
    ("NVIDIA A100-PG509-200", "8.0", 42297524224, "A100 SXM 40GB", 312, 1555),
    ("NVIDIA A100-SXM4-80GB", "8.0", 84990623744, "A100 SXM 80GB", 312, 2039),
    ("NVIDIA A100-SXM4-40GB", "8.0", 42405855232, "A100 SXM 40GB", 312, 1555),
    ("NVIDIA A100 80GB PCIe", "8.0", None, "A100 80GB PCIe", 312, 1935),
    ("NVIDIA A100-PCIE-40GB", "8.0", None, "A100 40GB PCIe", 312, 1555),
    ("NVIDIA A10G", "8.6", None, "A10G", 70, 600),
    ("NVIDIA A10", "8.6", None, "A10", 125, 600),
    ("NVIDIA GeForce RTX 3090", "8.6", None, "RTX 3090", 71.2, 936),
    ("NVIDIA GeForce RTX 4090", "8.9", None, "RTX 4090", 165.2, 1008),
    ("NVIDIA L4", "8.9", None, "L4", 121, 300),
    ("NVIDIA L40S", "8.9", None, "L40S", 362, 864),
    ("NVIDIA H100 80GB HBM3", "9.0", 85018279936, "H100 SXM", 989.4, 3350),
    ("NVIDIA H100 PCIe", "9.0", 85100000000, "H100 PCIe", 756, 2000),
    ("NVIDIA GH200 480GB", "9.0", 102005473280, "GH200 96GB", 989.4, 4000),
    ("NVIDIA H200", "9.0", 150110011392, "H200 SXM", 989.4, 4800),
    ("NVIDIA H200 NVL", "9.0", None, "H200 NVL", 835.5, 4800),
    ("NVIDIA H20", "9.0", 96 * GIB, "H20", 148, 4000),
    ("NVIDIA H20-3e", "9.0", 140 * GIB, "H20-3e", 148, 4800),
    ("NVIDIA H800", "9.0", 80 * GIB, "H800 SXM", 989.4, 3350),
    ("NVIDIA H800 PCIe", "9.0", 80 * GIB, "H800 PCIe", 756, 2000),
    ("NVIDIA A800-SXM4-80GB", "8.0", 79 * GIB, "A800 SXM 80GB", 312, 2039),
    ("NVIDIA A800 80GB PCIe", "8.0", 79 * GIB, "A800 80GB PCIe", 312, 1935),
    ("NVIDIA A800 40GB Active", "8.0", 39 * GIB, "A800 40GB Active", 311.9, 1555.2),
    ("Tesla V100-FHHL-16GB", "7.0", None, "V100 FHHL", 105, 830),
    ("NVIDIA L20", "8.9", None, "L20", 119.5, 864),
    ("NVIDIA GeForce RTX 5090", "12.0", None, "RTX 5090", 209.5, 1792),
    ("NVIDIA GeForce RTX 5080", "12.0", None, "RTX 5080", 112.6, 960),
    ("NVIDIA GeForce RTX 5070 Ti", "12.0", None, "RTX 5070 Ti", 87.9, 896),
    (
        "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
        "12.0",
        None,
        "RTX PRO 6000 Blackwell Workstation",
        503.8,
        1792,
    ),
    ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "12.0", None, "RTX PRO 6000 Blackwell Server", 500, 1597),
    (
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        "12.0",
        None,
        "RTX PRO 6000 Blackwell Max-Q",
        438.9,
        1792,
    ),
    ("NVIDIA B100", "10.0", None, "B100", 1750, 8000),
    ("NVIDIA B200", "10.0", None, "B200", 2250, 7700),
    ("NVIDIA B300 SXM6 AC", "10.3", None, "B300", 2250, 8000),
    ("NVIDIA GB10", "12.1", None, "GB10", None, 273),
    ("NVIDIA Thor", "11.0", 123 * GIB, "Jetson T5000 (Thor)", 258.5, 273),
    ("NVIDIA GB200", "10.0", None, "GB200", 2500, 8000),
    ("AMD Instinct MI210", "9.0", 68702699520, "MI210", 181, 1638.4),
    ("AMD Instinct MI250X", "9.0", 68702699520, "MI250X die", 191.5, 1638.4),
    ("AMD Instinct MI300X", "9.4", 206141652992, "MI300X", 1307.4, 5300),
    ("AMD Instinct MI300X VF", "9.4", 205571227648, "MI300X", 1307.4, 5300),
    ("AMD Instinct MI355X", "9.5", None, "MI355X", 2516.6, 8000),
    ("AMD Radeon RX 7900 XTX", "11.0", None, "Radeon RX 7900 XTX", 123, 960),
    ("AMD Radeon PRO W7900", "11.0", None, "Radeon PRO W7900", 123, 864),
    ("AMD Radeon RX 9070 XT", "12.0", None, "Radeon RX 9070 XT", 195, 640),
    ("AMD Radeon AI PRO R9700", "12.0", None, "Radeon AI PRO R9700", 191, 640),
]


@pytest.mark.parametrize(("name", "capability", "memory", "row", "fp16", "hbm"), KNOWN, ids=[k[0] for k in KNOWN])
def test_names_seen_in_traces(
    name: str, capability: str, memory: int | None, row: str, fp16: float | None, hbm: float
) -> None:
    found = find(name, capability, memory)
    assert found is not None
    assert (found.name, found.peak("fp16"), found.hbm_gb_per_s) == (row, fp16, hbm)
    without_capability = find(name, None, memory)
    assert without_capability is not None
    assert without_capability.name == row


@pytest.mark.parametrize(
    ("name", "capability", "memory"),
    [
        ("", "9.0", 64 * GIB),
        (None, None, None),
        ("", "9.4", 206141652992),  # vllm on MI300X: no name
        ("AMD Radeon Graphics", "9.0", 68702699520),  # an MI250 in the HTA trace, but nothing says so
        ("ARTEMIS", None, None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "9.0", 10 * GIB),
        ("NVIDIA A10-24Q", "8.6", None),  # vGPU
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "8.9", None),
        ("NVIDIA GeForce RTX 5080 Laptop GPU", "12.0", None),
        ("NVIDIA GeForce RTX 5070 Ti Laptop GPU", "12.0", None),
        ("NVIDIA GeForce RTX 2080 Ti with Max-Q Design", "7.5", None),
        ("NVIDIA GeForce RTX 5090 D", "12.0", None),
        ("NVIDIA GeForce RTX 4090 D", "8.9", None),
        ("NVIDIA GeForce RTX 5070", "12.0", None),
        ("NVIDIA GeForce RTX 4080 SUPER", "8.9", None),
        ("NVIDIA L2", "8.9", None),
        ("NVIDIA Thor", "11.0", 61 * GIB),  # the T4000
        ("AMD Instinct MI308X", "9.4", None),  # AMD states no rates for it
        ("AMD Radeon RX 7900 XT", "11.0", None),
        ("AMD Radeon RX 9070", "12.0", None),
        ("NVIDIA H200", "8.0", None),  # name and capability disagree
        ("AMD Instinct MI300X", "9.4", 24 * GIB),  # one of eight partitions
        ("NVIDIA A100", "8.0", 40 * GIB),
        ("NVIDIA H2000", None, None),
    ],
)
def test_the_unknown_stays_unknown(name: str | None, capability: str | None, memory: int | None) -> None:
    assert find(name, capability, memory) is None


def test_bandwidth_is_left_out_where_the_name_does_not_tell_the_memory() -> None:
    found = find("NVIDIA A100-PG509-200", "8.0", None)
    assert found is not None
    assert found.hbm_gb_per_s is None
    assert found.peak("bf16") == 312


def test_overrides_correct_and_add_devices() -> None:
    overrides = {"h200": {"bf16": 800, "hbm_gb_per_s": 4300.0}, "Homebrew": {"fp32": 10}}
    corrected = find("NVIDIA H200", "9.0", None, overrides)
    assert corrected is not None
    assert (corrected.peak("bf16"), corrected.peak("fp16"), corrected.hbm_gb_per_s) == (800, 989.4, 4300)
    added = find("Homebrew 9000", None, None, overrides)
    assert added is not None
    assert (added.peak("fp32"), added.peak("bf16"), added.hbm_gb_per_s) == (10, None, None)
    untouched = find("NVIDIA H100 PCIe", "9.0", None, overrides)
    assert untouched is not None
    assert untouched.peak("bf16") == 756


def test_an_override_is_said_to_be_the_users() -> None:
    found = find("NVIDIA H200", "9.0", None, {"H200": {"bf16": 800}})
    assert found is not None
    assert (found.source_of("bf16"), found.is_verified("bf16")) == ("your settings", None)
    assert found.caveat("bf16") == "peak from your settings"
    assert found.source_of("fp16").startswith("NVIDIA H200")
    assert found.is_verified("fp16") is True
    assert found.caveat("fp16", "hbm_gb_per_s") == ""


def test_an_override_is_of_whole_words_and_the_one_named_last_wins() -> None:
    overrides = {"H20": {"bf16": 1}, "NVIDIA H200": {"bf16": 2}, "h200": {"bf16": 3}}
    found = find("NVIDIA H200", None, None, overrides)
    assert found is not None
    assert found.peak("bf16") == 3
    h20 = find("NVIDIA H20", None, None, overrides)
    assert h20 is not None
    assert h20.peak("bf16") == 1
    slice_of_one = "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
    given = find(slice_of_one, "9.0", None, {slice_of_one: {"bf16": 120}})
    assert given is not None
    assert given.figures == {"bf16": 120}


def test_what_is_not_verified_is_said() -> None:
    server = find("NVIDIA RTX PRO 6000 Blackwell Server Edition")
    assert server is not None
    assert (server.caveat("bf16"), server.caveat("hbm_gb_per_s"), server.caveat("int8")) == ("peak unverified", "", "")
    corrected = find("NVIDIA RTX PRO 6000 Blackwell Server Edition", None, None, {"Server Edition": {"bf16": 480}})
    assert corrected is not None
    assert corrected.caveat("bf16") == "peak from your settings"
    assert corrected.caveat("bf16", "fp8") == "peak unverified"


def test_the_table_is_loaded_with_the_first_device() -> None:
    code = """if True:
        from traceopt.analyzer.timeline.device import find_device
        from traceopt.analyzer.vocabulary.accelerator import accelerators
        from traceopt.analyzer.vocabulary.accelerator_lookup import find
        assert find(None) is None and accelerators.cache_info().currsize == 0
        assert find("NVIDIA H200") is not None and accelerators.cache_info().currsize == 1
    """
    subprocess.run([sys.executable, "-c", code], check=True)


def test_architecture_facts() -> None:
    def facts(found: Architecture | None) -> tuple[bool, ...] | None:
        return found and (found.has_tensor_cores, found.has_tf32, found.has_bf16, found.has_fp8)

    assert facts(architecture(NVIDIA, 6, 1)) == (False, False, False, False)
    assert facts(architecture(NVIDIA, 7, 0)) == (True, False, False, False)
    assert facts(architecture(NVIDIA, 7, 5)) == (True, False, False, False)
    assert facts(architecture(NVIDIA, 8, 0)) == (True, True, True, False)
    assert facts(architecture(NVIDIA, 8, 9)) == (True, True, True, True)
    assert facts(architecture(NVIDIA, 10, 0)) == (True, True, True, True)
    assert facts(architecture(NVIDIA, 13, 0)) == (True, True, True, True)
    assert facts(architecture(AMD, 9, 4)) == (True, True, True, True)
    assert architecture(AMD, 9, 0) is None  # gfx900 to gfx90a all say 9.0
    assert architecture(OTHER, 1, 0) is None


@pytest.mark.parametrize(
    ("dtype", "arch", "multiples"),
    [
        ("fp16", "sm_70", (8, 8)),
        ("bf16", "sm_80", (8, 64)),
        ("tf32", "sm_90", (4, 32)),
        ("int8", "sm_80", (16, 128)),
        ("fp8", "sm_100", (16, 128)),
        ("fp64", "sm_80", (2, 16)),
        ("bf16", "gfx942", (8, 8)),
        ("bf16", None, (8, 8)),
    ],
)
def test_needed_multiples(dtype: str, arch: str | None, multiples: tuple[int, int]) -> None:
    assert needed_multiple(dtype, arch) == multiples


def test_needed_multiple_takes_an_architecture() -> None:
    assert needed_multiple("bf16", architecture(NVIDIA, 9, 0)) == (8, 64)


@pytest.mark.parametrize(
    ("name", "arch", "dtype", "ratio"),
    [
        ("NVIDIA GeForce RTX 3060", "sm_86", "tf32", 1.0),
        ("NVIDIA GeForce RTX 3060", "sm_86", "bf16", 2.0),
        ("NVIDIA GeForce RTX 3060", "sm_86", "fp8", None),
        ("NVIDIA RTX A5000", "sm_86", "tf32", None),
        ("NVIDIA GeForce RTX 2080", "sm_75", "fp16", None),
        ("NVIDIA GeForce RTX 3060", "sm_999", "tf32", None),
    ],
)
def test_tensor_cores_of_geforce_cards(name: str, arch: str, dtype: str, ratio: float | None) -> None:
    assert geforce_ratio(name, architecture_named(arch), dtype) == ratio


def test_geforce_rows_agree_with_their_family() -> None:
    rows = [
        row for row in accelerators() if row.arch in ("sm_86", "sm_89", "sm_120") and re.match(r"RTX \d{4}", row.name)
    ]
    assert len(rows) > 3
    for row in rows:
        for dtype in ("tf32", "bf16"):
            known, wide = row.peak(dtype), row.peak("fp32")
            family = geforce_ratio(f"NVIDIA GeForce {row.name}", architecture_named(row.arch), dtype)
            if known and wide and family and not re.search("Ada|PRO", row.name):
                assert known / wide == pytest.approx(family, rel=0.01), row.name
