"""Kernel names of real traces get the right kind, Tensor Core use and dtype; hostile names do no harm."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tables import said, table

from fixtures.real_traces import TRACES, expected, load
from traceopt.analyzer.vocabulary.kernels.kernel_labels import short_name
from traceopt.analyzer.vocabulary.kernels.kernel_names import _TABLE, ELIGIBLE_KINDS, FUSIBLE_KINDS, KINDS, classify

CASES = table(Path(__file__).with_name("kernel_names.tsv"))


def as_row(name: str) -> list[str]:
    found = classify(name)
    return [found.kind, *map(said, (found.tensor_core, found.dtype, found.alignment)), name]


def test_known_names() -> None:
    assert [as_row(row[-1]) for row in CASES] == [[*row[:4], row[-1]] for row in CASES]


def test_fused_marks_products_of_fusion() -> None:
    assert classify("triton_poi_fused_add_0").fused
    assert classify("fmha_cutlassF_bf16_aligned_64x64_rf_sm80(P)").fused
    assert classify("void multi_tensor_apply_kernel<M, AdamFunctor<float>, float>(int)").fused
    assert not classify("volta_sgemm_64x64_nt").fused
    assert not classify("void at::native::vectorized_elementwise_kernel<4, FillFunctor<float>>(int)").fused


def test_an_empty_name_is_of_kind_other() -> None:
    assert classify("").kind == "other"
    assert short_name("") == ""


def test_kind_sets_are_kinds() -> None:
    assert ELIGIBLE_KINDS < KINDS
    assert FUSIBLE_KINDS < KINDS
    assert not ELIGIBLE_KINDS & FUSIBLE_KINDS


HOSTILE = [
    "a" * 1_000_000,
    "flash_" * 200_000,
    "triton_red_" + "_" * 1_000_000,
    "fbgemm_gpu::" * 90_000,
    "xmma_gemm" * 110_000,
    "<" * 1_000_000,
    "(" * 500_000 + ")" * 500_000,
    "void f<" + "a<" * 400_000 + ">" * 400_001 + "(int)",
    "Cijk_Alik_Bljk_" + "_S" * 500_000,
    "_ZN" + "9" * 1_000_000,
    "_ZN" + "1a" * 500_000,
    "multi_tensor_apply_kernel" * 40_000,
    "kernel_cutlass_" * 70_000,
    "chunk_quant_" * 90_000,
    "bmm_E2m1_" * 110_000,
    "cutlass3x_gemm_" * 70_000,
    "\x00\ud800\U0001f600" * 300_000,
]


@pytest.mark.parametrize("name", HOSTILE, ids=[ascii(h[:16]) for h in HOSTILE])
def test_hostile_names_of_a_megabyte_take_time_by_their_length(name: str) -> None:
    """(A quadratic pattern takes minutes here.)"""
    assert classify(name).kind in KINDS
    assert len(short_name(name)) <= 100


FRAGMENTS = st.sampled_from([*"<>(){}, ", "::", "void ", "_ZN", "operator()", "at::native::", "elementwise_kernel"])


@given(st.one_of(st.text(), st.lists(st.one_of(FRAGMENTS, st.text(max_size=5))).map("".join)))
def test_any_text_is_classified_and_shortened(name: str) -> None:
    found = classify(name)
    assert found.kind in KINDS
    assert found.tensor_core is None or found.kind in ELIGIBLE_KINDS
    assert len(short_name(name)) <= 100


@pytest.mark.real_traces
@pytest.mark.parametrize(
    ("path", "figures"),
    [
        pytest.param(path, entry["figures"], id=path)
        for path, entry in expected().items()
        if entry["figures"].get("gpu_time_by_kind_pct")
    ],
)
def test_real_traces_agree_with_the_reference(path: str, figures: dict[str, Any]) -> None:
    document = load(TRACES / path)
    events = [e for e in document["traceEvents"] if str(e.get("cat", "")).lower() == "kernel"]
    time_of: Counter[str] = Counter()
    used = unknown = other = 0.0
    aligned: Counter[str] = Counter()
    for event in events:
        found, duration = classify(event["name"]), float(event.get("dur", 0))
        time_of[found.kind] += duration
        used += duration * (found.tensor_core is True)
        unknown += duration * (found.eligible and found.tensor_core is None)
        # torch.cuda._sleep fills the event_sync trace; it is no known kind of work
        other += duration * (found.kind == "other" and "spin_kernel" not in event["name"])
        if found.alignment is not None:
            aligned[f"align{found.alignment}"] += 1
    total = time_of.total()
    eligible = sum(time_of[kind] for kind in ELIGIBLE_KINDS)

    assert other < 0.01 * total
    assert unknown < 0.01 * total
    reference = figures["tensor_cores"]
    # vLLM: the reference takes reduce_segments, reshape_and_cache_flash and finalize_matmul for products.
    tolerance = 4 if "vllm_decode" in path else 0.5
    assert 100 * used / total == pytest.approx(reference["pct_of_kernel_time"], abs=tolerance)
    assert dict(aligned) == {name: calls for name, (calls, _) in figures["gemm"]["kernel_align_suffix"].items()}
    by_kind = figures["gpu_time_by_kind_pct"]
    products = sum(by_kind.get(kind, 0.0) for kind in ELIGIBLE_KINDS)
    gpu_copies = by_kind.get("gpu_memcpy", 0.0) + by_kind.get("gpu_memset", 0.0)
    assert 100 * eligible / total == pytest.approx(100 * products / (100 - gpu_copies), abs=4 if tolerance == 4 else 3)
    # The reference's "eligible" is the time of all kernels under a GEMM or convolution operator, layout
    # changes included, attention not; it is near nothing where the file lacks operators or their links.
    if reference["eligible_pct_of_kernel_time"] > 60:
        products = 100 * (time_of["gemm"] + time_of["conv"]) / total
        assert products == pytest.approx(reference["eligible_pct_of_kernel_time"], abs=12.5)
    assert 100 * time_of["collective"] / total == pytest.approx(
        100 * by_kind.get("nccl", 0.0) / (100 - gpu_copies), abs=1
    )


@pytest.mark.slow
@pytest.mark.parametrize("entry", [entry for entry in _TABLE if entry.words], ids=lambda entry: entry.words[0])
@settings(max_examples=100)
@given(st.data())
def test_a_name_that_matches_has_one_of_the_words(entry: Any, data: st.DataObject) -> None:
    name = data.draw(st.from_regex(entry.pattern, alphabet=st.characters(codec="ascii")))
    assert entry.matches(name, name.lower())
    assert all(word == word.lower() for word in entry.words)
