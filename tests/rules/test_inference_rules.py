"""Advice for training is left out of inference, and what is compiled, replayed or served is not told to become so."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from support.findings import outcome_of
from support.inference import COMPILED_REGION, advice

from fixtures import real_traces
from fixtures.serving import SGLANG, VLLM, serve
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.reading.trace_reader import read_trace
from traceopt.analyzer.vocabulary.causes.table import DATA_LOADING
from traceopt.errors import InputError
from traceopt.result.words.effort_and_risk import Risk
from traceopt.rules.catalogue.hs003_explicit_synchronize import ExplicitSynchronize
from traceopt.rules.catalogue.lb002_launch_bound import LaunchBound
from traceopt.rules.catalogue.tc001_fp32_matmul import Fp32Matmul
from traceopt.rules.catalogue.tc003_low_tensor_core_use import LowTensorCoreUse
from traceopt.rules.catalogue.tq002_no_steps import NoSteps
from traceopt.rules.fixes.advice.batch_size import larger_batch_risk
from traceopt.testing import A100, Machine, answer, assert_finds, assert_silent, facts_of
from traceopt.testing.events import kernel, op, read

SIMT = "maxwell_fp16_hgemm_128x64_nn"
FUSED_ADAM = "void at::native::multi_tensor_apply_kernel<at::native::FusedAdamMathFunctor<float, 4>>"
SHAPES = {"Input Dims": [[4, 4096], [4096, 4096]], "Input type": ["c10::Half", "c10::Half"]}


def test_tc003_does_not_apply_to_decode_steps() -> None:
    status = {
        phase: answer(LowTensorCoreUse, serve([phase] * 5, VLLM, kernel=SIMT))[0].status
        for phase in ("prefill", "decode")
    }
    assert status == {"prefill": "found", "decode": "not_applicable"}


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (VLLM, "Start vLLM with --async-scheduling"),
        (SGLANG, "Start SGLang without --disable-overlap-schedule"),
        ({"decode": "my step"}, None),  # no engine
    ],
)
def test_an_engine_that_waits_for_its_tokens_overlaps_its_scheduler(names: dict[str, str], says: str | None) -> None:
    finding = assert_finds(ExplicitSynchronize, serve(["decode"] * 8, names))
    assert finding.title.startswith("Overlap the engine's scheduler") == (says is not None)
    assert finding.fix.text.startswith(says or "Remove")


def test_an_engine_that_runs_ahead_waits_for_nothing() -> None:
    assert_silent(ExplicitSynchronize, serve(["decode"] * 8, VLLM, waits=False))


def launching(name: str = "gemm", frame: str = "serve.py(3): loop", region: str = "region") -> Machine:
    """Five steps in which the GPU waits for the launch of each of 40 kernels."""
    machine = Machine(A100, with_stack=1, record_shapes=1)
    for _ in range(5):
        with machine.step(), machine.python(frame), machine.annotate(region):
            for _ in range(40):
                start = machine.now
                machine.idle(60)
                machine.launch(20, name=name)
                machine.events.append(op("aten::mm", start, machine.now - start, **SHAPES))
            machine.synchronize()
    return machine


def replaying() -> Machine:
    """Five steps that launch graphs of 20 kernels, each after a pause of the host."""
    machine = Machine(A100, with_stack=1, record_shapes=1)
    for _ in range(5):
        with machine.step(), machine.python("serve.py(3): loop"):
            for _ in range(10):
                start = machine.now
                machine.idle(300)
                number = machine.call("cudaGraphLaunch", 10)
                machine.events.append(op("aten::mm", start, machine.now - start, **SHAPES))
                for i in range(20):
                    machine.events.append(kernel("gemm", machine.now + 3 + 10 * i, 9, number, 7))
                machine.idle(203)
    return machine


@pytest.mark.parametrize(
    ("machine", "said", "unsaid"),
    [
        (launching(), "torch.compile", "enforce-eager"),
        (launching(frame="vllm/v1/worker/gpu_worker.py(3): execute_model"), "--enforce-eager", "torch.compile"),
        (launching(frame="sglang/srt/managers/scheduler.py(3): loop"), "--disable-cuda-graph", "torch.compile"),
    ],
)
def test_an_engine_is_told_its_own_switches(machine: Machine, said: str, unsaid: str) -> None:
    text = advice(assert_finds(LaunchBound, machine))
    assert said in text
    assert unsaid not in text


@pytest.mark.parametrize(
    "machine", [launching(region=COMPILED_REGION), launching(name="triton_poi_fused_add_0")], ids=["code", "kernels"]
)
def test_compiled_code_is_told_to_use_graphs_but_not_to_compile(machine: Machine) -> None:
    assert machine.facts().compiled_share == 1.0
    graphs, launches = assert_finds(LaunchBound, machine), assert_finds(LaunchBound, machine, min_steps=6)
    assert graphs.fix.text.startswith("Pass mode='reduce-overhead' to torch.compile")
    assert "compiled already" in launches.fix.text
    assert "torch.compile" not in launches.title


def test_kernels_that_graphs_launch_are_not_told_to_use_graphs() -> None:
    machine = replaying()
    text = advice(assert_finds(LaunchBound, machine))
    assert "Graphs already launch 100% of the kernels." in text
    assert "torch.compile" not in text


def test_a_fused_optimizer_kernel_is_training() -> None:
    """A CUDA graph of the whole step replays the optimizer without its annotation."""
    assert launching(FUSED_ADAM).facts().trains
    assert not launching().facts().trains


GELU_BACKWARD = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluBackwardCUDAKernelImpl>"
SGEMM = "ampere_sgemm_128x64_tn"


def products_with(other: str, *operators: dict[str, object]) -> Facts:
    """Matmuls in FP32 and one other kernel; no steps."""
    kernels = [kernel(SGEMM if start else other, start, 80, start + 1) for start in range(0, 900, 90)]
    return Facts(read([*kernels, *operators], deviceProperties=[A100]))


@pytest.mark.parametrize(
    ("name", "trains"),
    [
        (GELU_BACKWARD, True),
        ("void at::native::(anonymous namespace)::layer_norm_grad_input_kernel<float, float>(float const*)", True),
        ("dgrad_engine<float>", False),  # also a transposed convolution
        ("cutlass__5x_cudnn::Kernel<cutlass_tensorop_wgrad_optimized>", True),
        (SGEMM, False),
    ],
)
def test_a_gradient_kernel_is_training(name: str, trains: bool) -> None:
    assert products_with(name).trains == trains


def test_only_known_inference_is_told_to_narrow_its_weights() -> None:
    def code(facts: Facts) -> str:
        (finding,) = Fp32Matmul().check(facts)
        return finding.finding.fix.code or ""

    assert "loss = model(inputs, labels)" in code(products_with(GELU_BACKWARD))
    assert "loss = " not in code(products_with(SGEMM))
    assert "autocast" in code(products_with(SGEMM))
    assert "model.to(torch.bfloat16)" in code(products_with(SGEMM, op("aten::mm", 0, 5)))


def test_kernels_alone_do_not_tell_whether_a_run_trains() -> None:
    """As in an export of Nsight Systems: no advice for serving, and none that only training can take."""
    alone = facts_of([kernel("void ns::k()", start, 40, start + 1) for start in range(0, 900, 90)])
    assert (alone.trains, alone.infers) == (False, False)
    assert launching().facts().infers
    risks = [larger_batch_risk(facts) for facts in (alone, launching().facts(), launching(FUSED_ADAM).facts())]
    assert risks == [Risk.MEMORY, Risk.LATENCY, None]


def test_steps_of_an_engine_need_no_profiler_steps() -> None:
    one, five = (serve(["decode"] * count, VLLM, pause_us=3_000).facts() for count in (1, 5))
    (note,) = NoSteps().check(one)
    assert note.finding.why.startswith("Only one step of vLLM was recorded")
    assert "prof.step" not in advice(note.finding)
    assert list(NoSteps().check(five)) == []
    assert NoSteps().passed(five) == "5 serving steps were recorded."


TRAINING = re.compile(
    r"(?i)\btrain|\bloss\b|backward(?! pass but)|optimi[sz]er|\bDDP\b|gradient|micro-?(?:step|batch)|epoch|convergence"
)

LOADER = re.compile(r"num_workers|DataLoader|loader workers")


def inference() -> Iterator[tuple[str, Facts]]:
    """The real traces that have operators, but no backward pass and no optimizer."""
    for path in sorted(real_traces.TRACES.rglob("*.json.gz")):
        try:
            with path.open("rb") as stream:
                facts = Facts(read_trace(stream, str(path)))
        except InputError:  # a file of another kind
            continue
        if facts.infers:
            yield path.name, facts


@pytest.mark.real_traces
@pytest.mark.slow
def test_inference_gets_no_advice_for_training() -> None:
    seen = 0
    for name, facts in inference():
        seen += 1
        loads = len(facts.host.rows_of(DATA_LOADING)) > 0
        for finding in outcome_of(facts).findings:
            text = f"{advice(finding)} {finding.why} {finding.risk_words} {finding.effort}"
            assert not TRAINING.search(text), (name, finding.code, text)
            assert loads or not LOADER.search(text), (name, finding.code, text)
    assert seen > 10
