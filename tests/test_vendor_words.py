"""Every sentence uses the words of the GPU's vendor, and no advice needs another vendor's software."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from support.real import result_of
from support.traces import READABLE, GetExample

from fixtures.generate import generate
from fixtures.scenarios import SCENARIOS
from traceopt.api import analyze
from traceopt.reports.html.page import render_html
from traceopt.reports.words.table_captions import gemm_caption
from traceopt.result.document import Result
from traceopt.rules.engine import run_rules
from traceopt.rules.registry import builtin_rules
from traceopt.testing import A100
from traceopt.testing.machine import facts_of

RULES = {rule.code: rule for rule in builtin_rules()}

AMD = A100 | {"name": "AMD Instinct MI300X", "computeMajor": 9, "computeMinor": 4}
# PyTorch's own names say cuda and cudnn on AMD, too, and so do NCCL's environment variables and the codes of rules.
SHARED_NAMES = re.compile(
    r"torch\.(?:backends\.)?cu\w+(?:\.\w+)*|[\x22']cuda[\x22']|ProfilerActivity\.C\w+(?: and CUDA together)?|NCCL_\w+"
    r"|cudnn\.benchmark|ProcessGroupNCCL|a CUDA or ROCm (?:device|GPU)"
)
NVIDIA_ONLY = re.compile(r"Tensor Core|CUDA|cuda|cuDNN|cuBLAS|NCCL|CUPTI|TF32|nsys|nvidia|TensorRT|expandable_segments")
AMD_ONLY = re.compile(r"Matrix Core|\bHIP\b|\bhip[A-Z]|MIOpen|hipBLAS|RCCL|roctracer|rocprof|AMD_")


def advice(result: Result) -> Iterator[str]:
    """What the document says to a reader, without names that come from the trace."""
    yield result.verdict
    yield gemm_caption(result)
    yield from (note.text for note in result.quality.notes)
    for one in result.findings:
        yield from (one.title, one.risk_words, one.effort, one.why, one.fix.text, one.fix.code or "")
        yield one.saving.basis if one.saving is not None else ""
    for check in result.checks:
        if check.status != "not_applicable":
            yield from (check.title, check.reason)


@pytest.mark.real_traces
def test_real_traces_speak_their_vendors_words() -> None:
    wrong, vendors = [], set()
    for file in READABLE:
        result = result_of(file)
        vendor = result.run.device.vendor if result.run.device is not None else "cpu"
        vendors.add(vendor)
        foreign = {"amd": NVIDIA_ONLY, "nvidia": AMD_ONLY}.get(vendor)
        for sentence in advice(result) if foreign else ():
            said = SHARED_NAMES.sub("", sentence)
            wrong += [(file, sentence)] if foreign.search(said) else []
    assert wrong == []
    assert vendors >= {"amd", "nvidia"}


def on_amd(trace: bytes) -> bytes:
    """A generated trace as ROCm would have recorded it."""
    document = orjson.loads(gzip.decompress(trace) if trace[:2] == b"\x1f\x8b" else trace)
    document["deviceProperties"] = [one | AMD | {"id": one["id"]} for one in document["deviceProperties"]]
    for event in document["traceEvents"]:
        if event.get("cat") in ("cuda_runtime", "cuda_driver"):
            event["name"] = re.sub(r"^(?:cuda|cu)(?=[A-Z])", "hip", event["name"])
    return orjson.dumps(document)


# A trace for each planted rule. Not the runs on a CPU, and not the one whose own environment has a variable of CUDA.
NOT_OF_AMD = ("cpu_only", "cpu_contention", "launch_blocking")
OF_RULES = {code: name for name, plan in SCENARIOS.items() if name not in NOT_OF_AMD for code in plan.codes}


@pytest.mark.slow
@pytest.mark.parametrize("scenario", sorted({*OF_RULES.values()}))
def test_planted_faults_on_amd_speak_of_amd(example: GetExample, scenario: str, tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_bytes(on_amd(example(scenario).path.read_bytes()))
    result = analyze(str(tmp_path / "trace.json"), debug=True)
    assert result.run.device is not None
    assert result.run.device.vendor == "amd"
    said = [SHARED_NAMES.sub("", sentence) for sentence in advice(result)]
    assert [sentence for sentence in said if NVIDIA_ONLY.search(sentence)] == []


@pytest.mark.parametrize("vendor", ["nvidia", "amd"])
def test_the_reports_tables_name_the_units_of_the_vendor(tmp_path: Path, vendor: str) -> None:
    trace = generate("misaligned_vocab").to_bytes()
    (tmp_path / "trace.json").write_bytes(on_amd(trace) if vendor == "amd" else trace)
    page = render_html(analyze(str(tmp_path / "trace.json"), debug=True))
    words = {"nvidia": "Tensor Cores", "amd": "Matrix Cores"}
    (foreign,) = set(words.values()) - {words[vendor]}
    assert f'<th scope="col">{words[vendor]}</th>' in page
    assert foreign not in page


def test_no_setting_of_cuda_is_advised_on_amd() -> None:
    trace = generate("module_load").to_bytes()
    (nvidia,), (amd,) = (
        [one for one in run_rules([RULES["LB005"]()], facts_of(file)).findings if one.code == "LB005"]
        for file in (trace, on_amd(trace))
    )
    assert "=" in (nvidia.fix.code or "")
    assert amd.fix.code is None
