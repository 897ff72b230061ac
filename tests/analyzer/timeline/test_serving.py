"""Steps of serving engines: prefill and decode, their tokens and rates, and which engine runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fixtures import real_traces
from fixtures.serving import DECODE_US, PREFILL_US, SGLANG, VLLM, serve
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.timeline.serving import Serving
from traceopt.api import analyze
from traceopt.reports.html.page import render_html
from traceopt.reports.text.markdown import render_markdown
from traceopt.reports.text.terminal import render_terminal
from traceopt.result.document import Result
from traceopt.testing import Machine

STEPS = ["prefill", *["decode"] * 10, "prefill", *["decode"] * 10]


def serving(facts: Facts) -> Serving:
    assert facts.serving is not None
    return facts.serving


@pytest.mark.parametrize(("engine", "names"), [("vLLM", VLLM), ("SGLang", SGLANG)])
@pytest.mark.parametrize("waits", [True, False])
def test_prefill_and_decode_are_told_apart(engine: str, names: dict[str, str], waits: bool) -> None:
    facts = serve(STEPS, names, waits=waits).facts()
    found = serving(facts)
    assert (found.engine, facts.serving_engine, facts.trains) == (engine, engine, False)
    assert [(phase.phase, phase.steps, phase.tokens_per_step) for phase in found.phases] == [
        ("decode", 20, 32.0),
        ("prefill", 2, 2048.0),
    ]
    if waits:
        decode, prefill = found.phases
        assert decode.step_ns == pytest.approx(DECODE_US * 1e3, rel=0.1)
        assert prefill.step_ns == pytest.approx(PREFILL_US * 1e3, rel=0.1)
        assert decode.tokens_per_s == pytest.approx(32e9 / decode.step_ns)


def test_the_typical_step_is_of_the_phase_with_most_time() -> None:
    """Even where the other phase recurs, and would be no outlier."""
    facts = serve(STEPS, VLLM).facts()
    assert [name.split()[0] for name in facts.steps.names] == ["decode"] * 20
    assert facts.step_ns == pytest.approx(DECODE_US * 1e3, rel=0.1)
    longest = serve(["prefill", "prefill", "decode", "prefill"], VLLM).facts()
    assert [name.split()[0] for name in longest.steps.names] == ["prefill"] * 3


def test_the_last_step_ends_with_its_gpu_work() -> None:
    machine = serve(["decode"], VLLM, waits=False)
    facts = machine.facts()
    assert facts.steps.count == 1
    assert facts.steps.window_ns == pytest.approx(DECODE_US * 1e3, rel=0.05)


def test_a_step_of_the_profiler_may_hold_many_steps_of_the_engine() -> None:
    machine = serve(["decode"] * 6, VLLM)
    whole = {"name": "ProfilerStep#1", "ph": "X", "cat": "user_annotation", "pid": 1, "tid": 1}
    machine.events.append(whole | {"ts": 0.0, "dur": machine.now})
    assert machine.facts().steps.count == 6


def test_an_engine_that_names_its_steps_twice_is_known_by_its_frames() -> None:
    """SGLang on ROCm: its own annotation inside one in the form of vLLM."""
    machine = Machine(with_stack=1)
    with machine.python("sglang/srt/managers/scheduler.py(900): event_loop"):
        for _ in range(3):
            with machine.annotate(VLLM["decode"]), machine.annotate(SGLANG["decode"]):
                machine.launch(1_000)
                machine.synchronize()
    facts = machine.facts()
    assert facts.steps.names == ["decode 1", "decode 2", "decode 3"]
    assert serving(facts).engine == "SGLang"


def test_speculative_decoding_has_no_rate_of_generated_tokens() -> None:
    (phase,) = serving(serve(["step[VERIFY bs=4 toks=16]", "step[DRAFT bs=4]"] * 4, {}).facts()).phases
    assert (phase.phase, phase.steps, phase.tokens_per_step, phase.tokens_per_s) == ("decode", 4, 16.0, None)


def test_requests_wait_for_prompts_between_their_tokens() -> None:
    times = serving(serve(STEPS, VLLM).facts()).times
    step_ns = 1e3 * DECODE_US
    assert times.first_token_ns == pytest.approx(1e3 * PREFILL_US, rel=0.1)
    assert times.between_tokens_ns == pytest.approx(step_ns, rel=0.1)
    assert times.longest_between_tokens_ns == pytest.approx(step_ns + 1e3 * PREFILL_US, rel=0.1)
    prompts = PREFILL_US / (PREFILL_US + 19 * DECODE_US)  # one prompt among 19 times between tokens
    assert times.prompts_between_share == pytest.approx(prompts, rel=0.1)
    mean = (20 * 32 * DECODE_US + 2 * 2 * PREFILL_US) / (20 * DECODE_US + 2 * PREFILL_US)
    assert times.idle_share == pytest.approx(22 * 200 / (20 * DECODE_US + 2 * PREFILL_US), rel=0.2)
    assert (times.requests, times.most_requests) == (pytest.approx(mean, rel=0.05), 32)


def test_the_gpu_is_idle_while_the_engine_schedules() -> None:
    times = serving(serve(["decode"] * 20, VLLM).facts()).times
    assert times.idle_share == pytest.approx(200 / (DECODE_US + 200), rel=0.2)
    assert times.waits == 0


def test_a_pause_without_requests_is_not_between_tokens() -> None:
    machine = serve(["decode"] * 5, VLLM)
    machine.idle(20 * DECODE_US)
    with machine.annotate("execute_context_0(0)_generation_0(0)"):
        machine.idle(10)
    for _ in range(5):
        with machine.annotate(VLLM["decode"]):
            machine.launch(DECODE_US)
            machine.synchronize()
        machine.idle(200)
    times = serving(machine.facts()).times
    assert times.longest_between_tokens_ns == pytest.approx(1e3 * DECODE_US, rel=0.1)
    assert times.waits >= 1
    assert times.waits_share > 0.5
    assert times.requests == pytest.approx(32, rel=0.02)


@pytest.mark.parametrize("steps", [["decode"], ["prefill"], ["step[VERIFY bs=4 toks=16]"] * 4])
def test_what_the_trace_does_not_show_is_not_known(steps: list[str]) -> None:
    times = serving(serve(steps, SGLANG).facts()).times
    assert (times.first_token_ns, times.between_tokens_ns, times.prompts_between_share) == (None, None, None)


def test_unknown_tokens_are_no_zero() -> None:
    (phase,) = serving(serve(["step[MIXED bs=9]"] * 3, {}).facts()).phases
    assert (phase.phase, phase.tokens_per_step, phase.tokens_per_s) == ("mixed", None, None)


def test_other_steps_are_no_serving() -> None:
    machine = Machine()
    for _ in range(4):
        with machine.step():
            machine.launch(1_000)
            machine.synchronize()
    assert machine.facts().serving is None
    assert machine.facts().serving_engine is None


@pytest.mark.parametrize(
    ("frame", "engine"),
    [
        ("vllm/v1/worker/gpu_model_runner.py(1200): execute_model", "vLLM"),
        ("/opt/venv/lib/python3.12/site-packages/sglang/srt/managers/scheduler.py(7): run_batch", "SGLang"),
        ("tensorrt_llm/_torch/pyexecutor/py_executor.py(5): _forward_step", "TensorRT-LLM"),
        ("text_generation_server/models/flash_causal_lm.py(3): generate_token", "TGI"),
        ("vllm/model_executor/layers/layernorm.py(30): forward", None),  # a layer of vLLM in another program
        ("my_vllm/worker/loop.py(3): run", None),
    ],
)
def test_engines_by_their_frames(frame: str, engine: str | None) -> None:
    assert serve(["a", "a"], {}, frame=frame).facts().serving_engine == engine


def test_every_report_shows_the_steps(tmp_path: Path) -> None:
    path = tmp_path / "vllm.json"
    path.write_bytes(serve(STEPS, VLLM).to_bytes())
    result = analyze(str(path), debug=True)
    assert result.serving is not None
    assert sum(phase.time_share for phase in result.serving.phases) == pytest.approx(1)
    line = "Serving (vLLM): 20 decode steps (32 tokens per step, 4."
    terminal = " ".join(render_terminal(result, width=100, color=False, unicode=True).split())
    page, comment = render_html(result, static=True), render_markdown(result)
    assert result.step.typical_us == pytest.approx(result.serving.phases[0].step_us, rel=0.1)
    assert "The typical step is a decode step. Requests per step: " in terminal
    assert "Time to the first token: at least " in terminal
    assert "(longest 12." in terminal
    for text in (terminal, page, comment):
        assert line in text.replace("\u00a0", " ")
        assert "tokens/s" in text
    assert json.loads(result.to_json())["serving"]["engine"] == "vLLM"
    assert Result.from_json(result.to_json()) == result


@pytest.mark.real_traces
@pytest.mark.parametrize(
    ("path", "engine", "phase", "tokens"),
    [
        ("tracelens/inference/sglang_prefilldecode/sglang_Qwen3-8B_prefilldecode.json.gz", "SGLang", "prefill", 15360),
        ("tracelens/inference/vllm_decode_full/graph_execution.json.gz", "vLLM", "decode", 32),
    ],
)
def test_real_engines(path: str, engine: str, phase: str, tokens: int) -> None:
    result = analyze(str(real_traces.TRACES / path), debug=True)
    assert result.serving is not None
    assert result.serving.engine == engine
    assert [(one.phase, one.count, one.tokens_per_step) for one in result.serving.phases] == [(phase, 1, tokens)]
    assert result.serving.phases[0].tokens_per_s is None  # one step that waits for work from before the recording
    assert result.step.source == "annotation"
