"""Sides that did not do the same work are told before any verdict, and what runs differently is named."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from msgspec.structs import replace
from sample import cpu_only, rich

import traceopt
from fixtures.real_traces import TRACES
from traceopt.comparison.compare import compare_runs
from traceopt.comparison.gates import Gate
from traceopt.comparison.noise import step_change
from traceopt.reports.html.comparison_page import render_comparison_html
from traceopt.reports.text.comparison_markdown import render_comparison_markdown
from traceopt.reports.text.comparison_terminal import render_comparison
from traceopt.reports.words.comparing import comparison_words
from traceopt.result.comparison import Comparison, StepChange
from traceopt.result.document import Quality, Result
from traceopt.result.sections.run import Device, Setting
from traceopt.result.sections.step import Serving, ServingPhase, Throughput
from traceopt.result.sections.work_rows import Copy, Gemm, Kernel, Op, StepPart, StepSeries
from traceopt.run_comparison import runs_of


def compared(base: Result | list[Result], head: Result | list[Result], gates: Sequence[str] = ()) -> Comparison:
    sides = [side if isinstance(side, list) else [side] for side in (base, head)]
    return compare_runs(runs_of(sides[0]), runs_of(sides[1]), [Gate.parse(text, "fail") for text in gates])


def on(name: str) -> Result:
    return replace(rich(), run=replace(rich().run, device=Device("nvidia", name, 8, None, None)))


def working(flops: float, dtype: str = "bf16") -> Result:
    return replace(rich(), efficiency=replace(rich().efficiency, flops_per_step=flops, peak_dtype=dtype))


def alone() -> Result:
    """One process of no job: the trace names no ranks and has no collective."""
    silent = replace(rich().communication, collectives=[])
    return replace(rich(), run=replace(rich().run, world_size=None), communication=silent)


@pytest.mark.parametrize(
    ("base", "head", "says"),
    [
        (on("A100"), on("H100"), "devices (A100 and H100)"),
        (rich(), replace(rich(), run=replace(rich().run, world_size=2)), "numbers of ranks"),
        (rich(), alone(), "numbers of ranks (4 and 1)"),
        (working(2.6e12), working(1.3e12), "FLOP per step (2.6 T and 1.3 T)"),
        (working(1e12, "fp32"), working(1e12, "bf16"), "types of most matmuls (fp32 and bf16)"),
    ],
)
def test_what_differs_comes_before_the_verdict(base: Result, head: Result, says: str) -> None:
    comparison = compared(base, head)
    assert says in comparison.differences[0]
    assert comparison.verdict.startswith(f"Not like for like: different {comparison.differences[0]}")


def unmarked() -> Result:
    return replace(rich(), step=replace(rich().step, source="window"))


def sampled() -> Result:
    return replace(rich(), quality=Quality("limited", [], sampled_share=0.01))


OTHER = {
    "device": lambda: compared(on("A100"), on("H100"), gates=["step_time=+5%", "gpu_idle=+5%", "finding=new-high"]),
    "ranks": lambda: compared(rich(), replace(rich(), run=replace(rich().run, world_size=2)), gates=["gpu_idle=+1%"]),
    "work": lambda: compared(working(2.6e12), working(1.3e12), gates=["gpu_idle=+1%"]),
    "CPU and GPU": lambda: compared(rich(), replace(rich(), gpu=cpu_only().gpu), gates=["step_time=+5%"]),
    "ranks of one side": lambda: compared(alone(), rich(), gates=["step_time=+5%"]),
    "a sample": lambda: compared(rich(), sampled(), gates=["step_time=+5%"]),
    "one side without marks": lambda: compared(rich(), unmarked(), gates=["step_time=+5%"]),
}


@pytest.mark.parametrize("name", OTHER)
def test_nothing_is_concluded_from_sides_that_are_not_alike(name: str) -> None:
    comparison = OTHER[name]()
    assert not comparison.comparable
    assert (comparison.step.change_share, comparison.kernels, comparison.ops) == (None, [], [])
    assert {part.change_us for part in comparison.breakdown} == {None}
    assert {metric.beyond_noise for metric in comparison.metrics} == {None}
    assert {finding.status for finding in comparison.findings} <= {"kept", "unknown"}
    assert {gate.status for gate in comparison.gates} == {"not_checked"}
    texts = [render_comparison_html(comparison), render_comparison_markdown(comparison)]
    texts.append(render_comparison(comparison, width=100, color=False, unicode=True))
    for text in (text.replace("\N{NO-BREAK SPACE}", " ") for text in texts):
        assert not re.search(r">Change|\| Change|head +change|Largest change|step time not recorded", text)
        assert re.search(r"187\.0 ms \(\d\d%\)", text), "what the part takes of its side"
        assert '<div class="bars">' not in text, "two bars invite a comparison"


def test_what_only_one_side_has_is_said_to_be_only_there() -> None:
    comparison = compared(replace(on("A100"), findings=[]), on("H100"))
    assert comparison.findings
    text = render_comparison(comparison, width=100, color=False, unicode=True)
    assert f"Findings: {len(comparison.findings)} only in HEAD." in text


def test_what_only_some_runs_recorded_is_one_note() -> None:
    recorded = replace(rich().run.recorded, stacks=False, shapes=False, memory=False)
    plain = replace(rich(), run=replace(rich().run, recorded=recorded))
    told = [note for note in compared(plain, rich()).notes if note.startswith("Only some runs")]
    assert told == ["Only some runs were recorded with stacks, shapes and memory, which slows their steps down."]


def test_another_type_of_matmuls_is_compared() -> None:
    comparison = compared(working(1e12, "fp32"), working(1e12, "bf16"))
    assert comparison.comparable
    assert comparison.step.verdict == "within_noise"


def test_ranks_that_a_trace_with_collectives_does_not_name_are_unknown() -> None:
    unnamed = replace(rich(), run=replace(rich().run, world_size=None))
    assert compared(rich(), unnamed).comparable


def test_a_change_of_an_unknown_amount_of_work_is_no_measurement_of_the_change_alone() -> None:
    def taking(times: float, flops: float | None) -> Result:
        step = replace(rich().step, per_step_us=[us * times for us in rich().step.per_step_us])
        return replace(rich(), step=step, efficiency=replace(rich().efficiency, flops_per_step=flops))

    def notes(before: Result, after: Result) -> list[str]:
        return [note for note in compared(before, after).notes if note.startswith("The amount of work per step of")]

    assert "of HEAD is not known" in notes(taking(1.0, 1e12), taking(3.0, None))[0]
    assert "of BASE and of HEAD is not known" in notes(taking(1.0, None), taking(3.0, None))[0]
    assert notes(taking(1.0, 1e12), taking(3.0, 1e12)) == []
    assert notes(taking(1.0, None), taking(1.0, None)) == [], "nothing has to be explained"


def launching(*kernels: tuple[str, float, float, float], flops: float | None = None) -> Result:
    """A side with kernels of these names, blocks per call, calls and µs per step."""
    rows = [
        Kernel(name, kind_of(name), calls, us, us / calls, 0.1, None, None, None, blocks_per_call=blocks)
        for name, blocks, calls, us in kernels
    ]
    return replace(rich(), kernels=rows, copies=[], efficiency=replace(rich().efficiency, flops_per_step=flops))


def kind_of(name: str) -> str:
    return "optimizer" if name.startswith("multi_tensor") else "elementwise"


USUAL = [("fmha", 128.0, 4.0, 4_000.0), ("softmax", 1_024.0, 1.0, 300.0), ("gelu", 64.0, 4.0, 900.0)]
SGEMM = ("sgemm", 384.0, 12.0, 1_500.0)
ADAM = ("multi_tensor_adam", 137.0, 2.0, 9_000.0)


def times(factor: float, kernels: list[tuple[str, float, float, float]]) -> list[tuple[str, float, float, float]]:
    return [(name, blocks * factor, calls, us * factor) for name, blocks, calls, us in kernels]


def test_grids_show_a_larger_batch_if_flop_are_not_known() -> None:
    """The optimizer does not depend on the batch, and a matmul library chooses other tiles and splits."""
    base = launching(*USUAL, SGEMM, ADAM)
    head = launching(*times(8, USUAL), ("sgemm", 4_096.0, 12.0, 13_000.0), ADAM, flops=1e12)
    comparison = compared(base, head)
    assert comparison.differences == [
        "amounts of work per step (the same kernels launch 8 times as many thread blocks in HEAD)"
    ]
    assert not comparison.comparable
    assert comparison.work is not None
    assert (comparison.work.unit, comparison.work.ratio) == ("unit", 8.0)
    assert "Per unit of work, HEAD takes about 88% less time." in comparison.verdict
    assert "8 times as many thread blocks in BASE" in compared(head, base).differences[0]


@pytest.mark.parametrize(
    ("head", "why"),
    [
        (launching(*USUAL, SGEMM, ADAM), "the same grids"),
        (launching(*times(8, USUAL[:2]), *times(2, USUAL[2:]), ("sgemm", 96.0, 12.0, 30_000.0)), "they disagree"),
        (launching(*times(2, USUAL[:2]), SGEMM), "too few agree"),
        (launching(*((n, 8 * blocks, 2 * calls, us) for n, blocks, calls, us in USUAL)), "other numbers of calls"),
        (launching(*((f"triton_{n}", 2 * blocks, calls, us) for n, blocks, calls, us in USUAL)), "tiles are free"),
        (launching(*times(8, USUAL), ("other", 1.0, 1.0, 900_000.0)), "most of the time is elsewhere"),
    ],
)
def test_grids_that_show_no_other_amount_of_work(head: Result, why: str) -> None:
    tiles = launching(*((f"triton_{n}", blocks, calls, us) for n, blocks, calls, us in USUAL))
    big = launching(*USUAL, ("other", 1.0, 1.0, 900_000.0), SGEMM)
    base = {"tiles are free": tiles, "most of the time is elsewhere": big}.get(why, launching(*USUAL, SGEMM, ADAM))
    assert compared(base, head).differences == [], why


def test_known_flop_come_before_grids() -> None:
    same = compared(launching(*USUAL, SGEMM, flops=1e12), launching(*times(8, USUAL), SGEMM, flops=1e12))
    assert same.differences == []
    other = compared(launching(*USUAL, SGEMM, flops=1e12), launching(*USUAL, SGEMM, flops=2e12))
    assert other.differences == ["FLOP per step (1.0 T and 2.0 T)"]
    assert other.verdict.endswith("Per FLOP, HEAD takes 50% less time.")


def test_the_same_grids_leave_no_doubt_about_the_work() -> None:
    def taking(times: float, result: Result) -> Result:
        return replace(result, step=replace(result.step, per_step_us=[us * times for us in result.step.per_step_us]))

    base = launching(*USUAL, SGEMM)
    assert not [note for note in compared(base, taking(3.0, base)).notes if note.startswith("The amount of work")]
    unlike = launching(*times(3, USUAL[:1]), *USUAL[1:], ("new", 8.0, 1.0, 90_000.0))
    assert [note for note in compared(base, taking(3.0, unlike)).notes if note.startswith("The amount of work")]


def test_copies_of_the_same_size_leave_no_doubt_about_the_work() -> None:
    """Pinned or pageable, the batch is as large as before."""

    def copying(kind: str, us: float, size: float) -> Result:
        rows = [Kernel("Memcpy HtoD", "memcpy", 2.0, us, us / 2, 0.9, None, None, None)]
        step = replace(rich().step, per_step_us=[us + 1_000] * 12)
        unknown = replace(rich().efficiency, flops_per_step=None)
        return replace(
            rich(), kernels=rows, step=step, efficiency=unknown, copies=[Copy(f"HtoD {kind}", 2.0, us, us, size, None)]
        )

    def doubts(base: Result, head: Result) -> list[str]:
        return [note for note in compared(base, head).notes if note.startswith("The amount of work")]

    assert doubts(copying("pinned", 30_000, 154e6), copying("pageable", 67_000, 154e6)) == []
    assert doubts(copying("pinned", 30_000, 154e6), copying("pinned", 67_000, 308e6)), "copies alone show no batch"


def test_tokens_of_a_serving_step_show_another_batch() -> None:
    def serving(phase: str, tokens: float) -> Result:
        unknown = replace(rich().efficiency, flops_per_step=None)
        rows = [ServingPhase(phase, 12, 412_000.0, 1.0, tokens, None)]
        return replace(rich(), kernels=[], copies=[], efficiency=unknown, serving=Serving("vLLM", rows))

    assert compared(serving("decode", 32), serving("decode", 64)).differences == ["tokens per decode step (32 and 64)"]
    assert compared(serving("decode", 32), serving("prefill", 64)).differences == []


def test_samples_and_tokens_per_step_show_another_batch() -> None:
    def running(per_s: float, step_us: float) -> Result:
        step = replace(rich().step, typical_us=step_us, per_step_us=[step_us] * 12)
        unknown = replace(rich().efficiency, flops_per_step=None)
        return replace(rich(), step=step, efficiency=unknown, throughput=Throughput(None, per_s, None, None))

    comparison = compared(running(320.0, 100_000.0), running(400.0, 160_000.0))
    assert comparison.differences == ["samples per step (32 and 64)"]
    assert comparison.verdict.endswith("Per sample, HEAD takes 20% less time.")


@pytest.mark.parametrize("part", ["sample", "whole recording"])
def test_amounts_of_a_sample_or_of_a_whole_recording_are_no_amounts_of_a_step(part: str) -> None:
    quality = Quality("limited", [], sampled_share=0.01)
    window = replace(rich().step, source="window")
    head = replace(working(1e9), quality=quality) if part == "sample" else replace(working(1e14), step=window)
    comparison = compared(working(1e12), head)
    assert (comparison.differences, comparison.work) == ([], None)
    assert comparison.verdict.startswith("Step times cannot be compared.")


def test_no_time_per_unit_of_work_on_other_machines() -> None:
    head = replace(working(2e12), run=on("H100").run)
    assert compared(replace(working(1e12), run=on("A100").run), head).work is None


def test_ranks_that_only_one_side_names_are_a_note() -> None:
    def slow(result: Result) -> Result:
        return replace(result, step=replace(result.step, per_step_us=[us * 3 for us in result.step.per_step_us]))

    unnamed = replace(rich(), run=replace(rich().run, world_size=None))
    assert "The number of ranks of HEAD is not known." in compared(rich(), slow(unnamed)).notes
    assert "The number of ranks of BASE is not known." in compared(unnamed, slow(rich())).notes
    assert not [note for note in compared(unnamed, slow(unnamed)).notes if "number of ranks" in note]


def test_a_copy_replaces_no_copy_of_another_direction() -> None:
    def side(*copies: str) -> Result:
        rows = [Kernel(name, "copy", 1.0, 9_000.0, 9_000.0, 0.1, None, "aten::copy_", None) for name in copies]
        return replace(rich(), kernels=rows, gemms=[])

    pinned, pageable = "Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD (Pageable -> Device)"
    back = "Memcpy DtoH (Device -> Pageable)"
    assert compared(side(pinned), side(back)).explanation == []
    slower = replace(side(pageable), kernels=[replace(side(pageable).kernels[0], us_per_step=30_000.0)])
    assert compared(side(pinned), slower).explanation == [
        f"aten::copy_ runs {pageable} instead of {pinned} (+21.0 ms)."
    ]


@pytest.mark.parametrize("flops", [1e12, 1.02e12, 0.0])
def test_the_same_work(flops: float) -> None:
    comparison = compared(working(1e12), working(flops))
    assert comparison.differences == []
    assert comparison.verdict.startswith("Within noise")


def test_several_differences_are_all_named() -> None:
    head = replace(on("B200"), efficiency=replace(rich().efficiency, peak_dtype="fp8"))
    assert compared(rich(), head).verdict.count(" and ") >= 3


def test_what_runs_otherwise() -> None:
    def side(calls: float, kernel: str, n: int, us: float) -> Result:
        return replace(
            rich(),
            ops=[Op("aten::copy_", calls, 1_000 * calls, 10.0, 0.1, None, calls)],
            kernels=[Kernel(kernel, "gemm", 1.0, us, us, 0.1, None, "aten::mm", None)],
            gemms=[Gemm("aten::mm", 8, n, 16, 1, "bf16", 1.0, us, None, None, None, None, None)],
        )

    head = side(40, "void ns::hgemm_new<int>(int)", 50304, 9_000.0)
    assert compared(side(2, "sgemm_old", 50257, 30_000.0), head).explanation == [
        "aten::copy_ launches GPU work 40 instead of 2 times per step (+38.0 ms).",
        "aten::mm: M=8, N=50304, K=16 in bf16 instead of M=8, N=50257, K=16 in bf16 (−21.0 ms).",
        "aten::mm runs hgemm_new<int> instead of sgemm_old (−21.0 ms).",
    ]
    assert compared(rich(), rich()).explanation == []


def test_fewer_calls_do_not_explain_more_time() -> None:
    def side(calls: float, us: float) -> Result:
        return replace(rich(), ops=[Op("aten::copy_", calls, us, 10.0, 0.1, None)])

    assert compared(side(98, 1_000.0), side(2, 40_000.0)).explanation == []


def test_loader_workers_explain_the_wait_for_data() -> None:
    def side(workers: str, wait_us: float) -> Result:
        run = replace(rich().run, settings=[Setting("DataLoader workers", workers)])
        parts = [replace(p, us_per_step=wait_us) if p.name == "data_loading" else p for p in rich().breakdown]
        return replace(rich(), run=run, breakdown=parts)

    assert compared(side("0", 187_000.0), side("4", 7_000.0)).explanation == [
        "DataLoader workers: 0 in BASE, 4 in HEAD (waiting for data −180.0 ms). "
        "The trace does not show what workers do, so operators of loading count as gone."
    ]
    assert compared(side("4", 7_000.0), side("0", 187_000.0)).explanation[0].endswith("loading count as new.")
    assert compared(side("1", 187_000.0), side("4", 7_000.0)).explanation == [
        "DataLoader workers: 1 in BASE, 4 in HEAD (waiting for data −180.0 ms)."
    ]
    assert compared(side("0", 187_000.0), side("4", 187_000.0)).explanation == []


def test_operators_in_cuda_graphs_are_not_gone() -> None:
    def side(graph_share: float | None, ops: list[Op]) -> Result:
        return replace(rich(), gpu=replace(rich().gpu, graph_share=graph_share), ops=ops)

    eager = side(None, [Op("aten::mm", 10.0, 90_000.0, 10.0, 0.2, None)])
    graphs = side(0.98, [Op("aten::copy_", 1.0, 9_000.0, 10.0, 0.1, None)])
    comparison = compared(eager, graphs)
    assert comparison.ops == []
    assert comparison.explanation[0].startswith("CUDA graphs launch 98% instead of 0% of the GPU's work.")
    assert [row.name for row in compared(eager, replace(graphs, gpu=eager.gpu)).ops] == ["aten::mm", "aten::copy_"]


def test_the_parts_add_up_to_the_headline() -> None:
    """The step over several runs is a geometric mean, so plain means of the parts would not."""

    def slower(times: float) -> Result:
        step = replace(rich().step, per_step_us=[us * times for us in rich().step.per_step_us])
        parts = [replace(part, us_per_step=part.us_per_step * times) for part in rich().breakdown]
        return replace(rich(), step=step, breakdown=parts)

    comparison = compared([rich(), slower(3.0)], [slower(2.0), slower(5.0)])
    for side in ("base_us", "head_us"):
        whole = sum(getattr(part, side) for part in comparison.breakdown)
        assert whole == pytest.approx(getattr(comparison.step, side), rel=1e-4)


def test_a_part_that_varies_from_step_to_step_is_within_noise() -> None:
    def side(us: list[float]) -> Result:
        parts = [replace(p, us_per_step=sum(us) / len(us)) if p.name == "data_loading" else p for p in rich().breakdown]
        series = StepSeries(0, 0, [str(index) for index in range(len(us))], [StepPart("data_loading", "", False, us)])
        return replace(
            rich(), breakdown=parts, step=replace(rich().step, series=series, typical_steps=list(range(len(us))))
        )

    def beyond(before: list[float], after: list[float]) -> bool | None:
        parts = compared(side(before), side(after)).breakdown
        return next(part.beyond_noise for part in parts if part.name == "data_loading")

    noisy, steady = [9_000.0, 1_000.0, 7_000.0, 2_000.0], [5_000.0, 5_010.0, 4_990.0, 5_005.0]
    assert beyond(noisy, [us * 1.5 for us in noisy]) is False
    assert beyond(steady, [us * 1.5 for us in steady]) is True
    assert beyond(steady, [us * 1.02 for us in steady]) is False, "runs of the same code differ by as much"
    assert beyond(steady[:1], steady) is None


def test_two_steps_that_vary_give_no_interval() -> None:
    change = step_change([[1_000.0, 9_000.0]], [[2_000.0, 300_000.0]])
    assert change.change_share is not None
    assert change.low_share is change.high_share is change.unseen_share is None


def test_recordings_without_step_marks_are_not_compared_per_step() -> None:
    def recording(calls: float) -> Result:
        ops = [Op("aten::mm", calls, calls * 2_000.0, 10.0, 0.5, None)]
        return replace(rich(), step=replace(rich().step, source="window"), ops=ops)

    comparison = compared(recording(10), recording(40))
    assert comparison.step.reason == "A trace of BASE and of HEAD has no usable step marks."
    assert not comparison.comparable, "the recordings may be of different length"
    for text in (render_comparison_html(comparison), render_comparison_markdown(comparison)):
        assert "Milliseconds per step" not in text
        assert "typical step)" not in text
    assert (comparison.explanation, comparison.ops) == ([], [])


def test_a_trace_that_cannot_be_judged_is_the_first_thing_to_know() -> None:
    cut = replace(working(1.3e12), quality=Quality("unusable", []))
    comparison = compared(working(2.6e12), cut)
    assert comparison.verdict == "Step times cannot be compared. A trace of HEAD cannot be judged."
    assert not comparison.comparable


def test_the_smallest_change_that_can_be_seen_is_of_the_same_kind_as_the_change() -> None:
    """Within noise of a third more, a third less time could not be seen either: that is a quarter."""
    change = StepChange("faster", 100.0, 70.0, -0.3, -0.4, -0.1, unseen_share=1 / 3)
    comparison = replace(compared(rich(), rich()), step=change)
    assert "A change below 25% could not be detected." in comparison_words.basis(comparison)
    assert "A change below 33%" in comparison_words.basis(replace(comparison, step=replace(change, change_share=0.3)))


@pytest.mark.real_traces
def test_grids_of_real_traces() -> None:
    """The third trace has 8 times the batch, the second has the same. FLOP in graphs are not known."""
    base, same, larger = (TRACES / "public" / f"luatil_3060_0{number}.json.gz" for number in (4, 5, 6))
    comparison = traceopt.compare(base, larger)
    assert comparison.work is not None
    assert comparison.work.ratio == pytest.approx(8.0)
    assert "the same kernels launch 8 times as many thread blocks in HEAD" in comparison.verdict
    unchanged = traceopt.compare(base, same)
    assert (unchanged.differences, unchanged.comparable) == ([], True)
