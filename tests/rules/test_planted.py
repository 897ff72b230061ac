"""Every rule fires on the trace in which its fault was planted, at its price and place, and not on the fixed twin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import fmean, median
from typing import TYPE_CHECKING

import pytest

from fixtures.generate import Planted, generate
from fixtures.job import Job
from fixtures.scenarios import SCENARIOS
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.requirements import lacks
from traceopt.result.document import Result
from traceopt.result.finding import Finding, Saving
from traceopt.rules.registry import builtin_rules
from traceopt.rules.savings.price import Priced
from traceopt.testing import events as build

if TYPE_CHECKING:
    from conftest import Example, GetExample

HEALTHY = ("healthy", "cuda_graph", "loss_item", "hidden_host_work")
# The cost is measured idle time, or priced against aligned products of the same trace: within 10 % of the planted.
PRICED = ("DL001", "LG001", "HS001", "HS002", "HS003", "HS004", "LG002", "PY001", "GM001", "LB007")
SPORADIC = ("LB004", "LB005", "DL005", "DL006")  # they hit some steps; the mean step pays
HANDMADE = ("CM007", "CV003", "LB006", "TC003")  # no scenario of fixtures/ plants them: below
BY_SIZE = ("CM008", "GM005", "IN001", "TC005")  # without a fixed twin of their own: in the tests of their family
# With tests of their own; CM: all ranks.
ELSEWHERE = ("TQ", "MM", "DL007", "EF", "CP", "RH", "PY003", "PY004", "PY005", "PY006", "CM004", "CM005")
# Planted in other files than traces, or in steps of reinforcement learning: in test_compile_rules.py,
# test_flight_recorder.py, test_rl_phases.py.
OF_OTHER_FILES = ("LB008", "LB009", "LB010", "FR", "PH")

# A worker's batch takes DL001's `hand_over_ms` to receive where nothing hides it; in the fixed twins it takes less.
MORE_TO_RECEIVE_US = 1_000 - Job.load_us

RULES = {rule.code: rule for rule in builtin_rules() if not rule.code.startswith((*ELSEWHERE, *OF_OTHER_FILES))}
CASES = {f"{name}-{code}": (name, code) for name, plan in SCENARIOS.items() for code in plan.codes if code in RULES}


def cases(wanted: Callable[[str, str], bool] = lambda _scenario, _code: True) -> pytest.MarkDecorator:
    chosen = [pytest.param(*case, id=key) for key, case in CASES.items() if wanted(*case)]
    return pytest.mark.parametrize(("scenario", "code"), chosen)


def of_code(result: Result, code: str) -> list[Finding]:
    return [finding for finding in result.findings if finding.code == code]


def loud(findings: list[Finding]) -> list[str]:
    """Findings that ask for a change."""
    return [f"{f.code}: {f.why}" for f in findings if f.impact in ("high", "medium")]


def the(result: Result, code: str) -> Finding:
    """The first finding of a code."""
    findings = of_code(result, code)
    if not findings:
        pytest.fail(f"{code} is silent: {[c.reason for c in result.checks if c.code == code]}")
    return findings[0]


def saving_of(finding: Finding) -> Saving:
    assert finding.saving is not None
    return finding.saving


def places(finding: Finding) -> set[str]:
    located = [*finding.locations, *(row.location for row in finding.evidence if row.location)]
    return {str(location) for location in located}


def median_cost_us(planted: Planted) -> float:
    """What the fault costs in the median step, which is close to what findings state."""
    return median(planted.step_us) - median(planted.fixed_step_us)


def products_us(facts: Facts) -> float:
    return facts.tensor_core_work.eligible_ns / facts.steps.count / 1e3


def claimed_us(example: GetExample, scenario: str, code: str) -> float:
    """The part of the planted cost that the rule's page says it prices."""
    faulty = example(scenario)
    if code in ("TC001", "TC002"):  # the products, not what else a narrower type makes faster
        return products_us(faulty.facts) - products_us(example(scenario, fixed=True).facts)
    cost = faulty.planted.cost_us if code in SPORADIC else median_cost_us(faulty.planted)
    if code == "OP001":  # at the pace of the GPU, behind which the host of the fixed twin runs ever further ahead
        cost -= example(scenario, fixed=True).facts.replayed.step_ns / 1e3 - median(faulty.planted.fixed_step_us)
    if code == "DL006":  # the same part of the typical step as of the run's mean step, which is longer
        cost *= faulty.facts.step_ns / 1e3 / fmean(faulty.planted.step_us)
    if code == "HS005":  # the refill after the last step is not in the recording
        cost *= 1 - 1 / len(faulty.planted.step_us)
    if code == "CM003":  # what goes beyond a link of 10 GB/s, whatever the link could do
        cost -= median_cost_us(generate(scenario, link_gbs=10.0).planted)
    return cost


def test_every_rule_has_a_planted_trace() -> None:
    assert {code for _, code in CASES.values()} | {*HANDMADE, *BY_SIZE} == set(RULES)


@cases()
def test_fires(example: GetExample, scenario: str, code: str) -> None:
    assert the(example(scenario).result, code).impact in ("high", "medium")


@cases(lambda _, code: code in PRICED)
def test_costs_what_was_planted(example: GetExample, scenario: str, code: str) -> None:
    subject = example(scenario)
    saving = saving_of(the(subject.result, code))
    # On simulated cores workers do not slow the model down, which is DL001's best case on a CPU.
    estimate = saving.high_us if scenario == "cpu_only" else saving.est_us
    assert estimate == pytest.approx(median_cost_us(subject.planted), rel=0.10)


@cases(lambda _, code: code not in PRICED)
def test_cost_lies_in_the_stated_range(example: GetExample, scenario: str, code: str) -> None:
    saving = saving_of(the(example(scenario).result, code))
    claimed = claimed_us(example, scenario, code)
    assert saving.low_us * 0.95 <= claimed <= saving.high_us * 1.05


def test_the_estimates_are_within_ten_percent_in_the_median(example: GetExample) -> None:
    """Of what the first rule of each scenario that it prices says, beside what was planted."""
    errors = []
    for scenario, code in dict(reversed(CASES.values())).items():
        claimed = claimed_us(example, scenario, code)
        errors.append(abs(saving_of(the(example(scenario).result, code)).est_us / claimed - 1))
    assert median(errors) <= 0.10
    assert sum(error <= 0.25 for error in errors) >= 0.75 * len(errors)


@cases(lambda scenario, _: SCENARIOS[scenario].site is not None)
def test_names_the_line(example: GetExample, scenario: str, code: str) -> None:
    subject = example(scenario)
    site, named = subject.planted.site, places(the(subject.result, code))
    assert site in named


@cases()
def test_silent_on_the_fixed_twin(example: GetExample, scenario: str, code: str) -> None:
    findings = loud(of_code(example(scenario, fixed=True).result, code))
    assert findings == []


@pytest.mark.parametrize("scenario", HEALTHY)
def test_nothing_to_fix_in_a_healthy_job(example: GetExample, scenario: str) -> None:
    findings = loud(example(scenario).result.findings)
    assert findings == []


class TestFiveFaults:
    """One job with five faults: each is found on its own line at its own price."""

    @pytest.fixture
    def faulty(self, example: GetExample) -> Example:
        return example("five_faults")

    @pytest.mark.parametrize("part", SCENARIOS["five_faults"].parts)
    def test_part(self, faulty: Example, part: str) -> None:
        planted = next(p for p in faulty.planted.parts if p.scenario == part)
        (code,) = planted.codes
        named = [(places(f), saving_of(f).est_us) for f in of_code(faulty.result, code)]
        here = [estimate for where, estimate in named if planted.site in where]
        assert here, named
        assert here[0] == pytest.approx(
            median_cost_us(planted) - (MORE_TO_RECEIVE_US if code == "DL001" else 0), rel=0.05
        )

    def test_fixed_twin_is_silent(self, example: GetExample) -> None:
        findings = loud(example("five_faults", fixed=True).result.findings)
        assert findings == []

    def test_the_fixes_together_save_no_more_than_was_planted(self, faulty: Example) -> None:
        combined = faulty.result.combined
        assert combined is not None
        assert combined.saving_us <= 1.05 * median_cost_us(faulty.planted)


def test_the_threshold_decides(example: GetExample) -> None:
    facts = example("slow_loader").facts
    share = facts.stalls.typical_ns("data_loading") / facts.step_ns
    rule = RULES["DL001"]
    assert len(list(rule(min_share=share * 0.99).check(facts))) == 1  # type: ignore[call-arg]
    assert list(rule(min_share=share * 1.01).check(facts)) == []  # type: ignore[call-arg]


# Faults that the simulator cannot plant: five steps of 10 ms, written by hand.

STEPS, STEP_US = 5, 10_000.0
A100 = {"id": 0, "name": "NVIDIA A100-SXM4-40GB", "totalGlobalMem": 42_297_524_224}
A100 |= {"computeMajor": 8, "computeMinor": 0, "numSms": 108}


def handmade(step: Callable[[float, int], Iterator[build.Json]]) -> Facts:
    """`step(start, id)` yields the events of one step; `id` is the first of a hundred free correlation ids."""
    events = []
    for index in range(STEPS):
        start = index * STEP_US
        events += [build.annotation(f"ProfilerStep#{index}", start, STEP_US), *step(start, 100 * (index + 1))]
    return Facts(build.read(build.document(events, deviceProperties=[A100], with_stack=1, record_shapes=1)))


def findings_of(code: str, facts: Facts) -> list[Finding]:
    rule = RULES[code]()
    assert [lacks(facts, need) for need in rule.requires] == [None] * len(rule.requires)
    assert rule.applies(facts) is None
    return [one.finding if isinstance(one, Priced) else one for one in rule.check(facts)]


def python_step(gpu_us: float) -> Callable[[float, int], Iterator[build.Json]]:
    """A kernel of `gpu_us`, and 8 ms of Python, from 200 us on, in calls of half a millisecond."""

    def events(t: float, first_id: int) -> Iterator[build.Json]:
        yield build.runtime("cudaLaunchKernel", t + 100, 5, first_id)
        yield build.kernel("ampere_sgemm_128x64_tn", t + 110, gpu_us, first_id)
        yield build.python("train.py(10): build_mask", t + 200, 8_000)
        for call in range(16):
            yield build.python("<built-in method append of list object>", t + 200 + 500 * call, 400)

    return events


def test_lb006_prices_python_that_starves_the_gpu() -> None:
    (finding,) = findings_of("LB006", handmade(python_step(gpu_us=4_000)))
    saving = saving_of(finding)
    assert saving.high_us == 200 + 8_000 - 110 - 4_000  # the Python after the kernel's end
    assert finding.impact == "high"
    assert "train.py:10" in places(finding)


def test_lb006_evidence_adds_up_to_the_stall() -> None:
    """Most of it is in calls much shorter than a sample would be; no call is counted."""

    def events(t: float, first_id: int) -> Iterator[build.Json]:
        yield build.runtime("cudaLaunchKernel", t + 100, 5, first_id)
        yield build.kernel("ampere_sgemm_128x64_tn", t + 110, 40, first_id)
        yield build.python("train.py(10): build_mask", t + 200, 8_000)
        for call in range(400):
            yield build.python("<built-in method append of list object>", t + 200 + 20 * call, 2)
            yield build.op("aten::item", t + 210 + 20 * call, 8)

    (finding,) = findings_of("LB006", handmade(events))
    measured = [row.us_per_step or 0.0 for row in finding.evidence]
    assert sum(measured) == pytest.approx(saving_of(finding).high_us, rel=0.001)
    assert sum(measured) == pytest.approx(8_000 - 400 * 8, rel=0.02)
    assert [row.calls_per_step for row in finding.evidence] == [None] * len(measured)


def test_lb006_does_not_blame_the_profiler() -> None:
    def events(t: float, first_id: int) -> Iterator[build.Json]:
        yield build.runtime("cudaLaunchKernel", t + 100, 5, first_id)
        yield build.kernel("ampere_sgemm_128x64_tn", t + 110, 40, first_id)
        yield build.python("train.py(10): main", t + 150, 8_150)
        yield build.python("torch/profiler/profiler.py(700): add_metadata_json", t + 200, 8_000)
        yield build.python("<built-in method _add_metadata_json of PyCapsule object at 0x7f6b>", t + 210, 7_900)

    assert findings_of("LB006", handmade(events)) == []


def test_lb006_does_not_blame_the_wait_for_autograd() -> None:
    def events(t: float, first_id: int) -> Iterator[build.Json]:
        yield build.runtime("cudaLaunchKernel", t + 100, 5, first_id)
        yield build.kernel("ampere_sgemm_128x64_tn", t + 110, 40, first_id)
        yield build.python("train.py(10): main", t + 150, 8_150)
        yield build.python("<built-in method run_backward of torch._C._EngineBase object at 0x7f6b>", t + 200, 8_000)

    assert findings_of("LB006", handmade(events)) == []


def test_lb006_is_silent_while_the_gpu_works() -> None:
    assert findings_of("LB006", handmade(python_step(gpu_us=9_800))) == []


def product_step(kernel: str, rows: int | None = 4096) -> Callable[[float, int], Iterator[build.Json]]:
    """A half-precision product that takes the GPU 6 of 10 ms, for which the host waits. `rows` None: no shapes."""

    def events(t: float, first_id: int) -> Iterator[build.Json]:
        half = "c10::Half"
        sizes = {"Input Dims": [[rows, 4096], [4096, 4096]], "Input type": [half, half]} if rows else {}
        yield build.python("model.py(7): forward", t + 50, 100)
        yield build.op("aten::mm", t + 90, 20, **sizes)
        yield build.runtime("cudaLaunchKernel", t + 100, 5, first_id)
        yield build.kernel(kernel, t + 110, 6_000, first_id)
        yield build.runtime("cudaDeviceSynchronize", t + 120, 6_000, first_id + 1)

    return events


def test_tc003_finds_half_precision_on_ordinary_units() -> None:
    (finding,) = findings_of("TC003", handmade(product_step("volta_hgemm_128x64_nn")))
    assert finding.impact == "high"
    assert saving_of(finding).high_us < 6_000
    assert "model.py:7" in places(finding)


@pytest.mark.parametrize("kernel", ["turing_h1688gemm_128x128_nn", "ampere_hgemm_64x32_tn"])
def test_tc003_is_silent_where_tensor_cores_work_or_nobody_knows(kernel: str) -> None:
    assert findings_of("TC003", handmade(product_step(kernel))) == []


@pytest.mark.parametrize(
    ("kernel", "rows", "found"),
    [
        ("volta_hgemm_128x64_nn", 1, 0),  # decoding: reads the weights for one token
        ("volta_hgemm_128x64_nn", 8, 0),
        ("volta_hgemm_128x64_nn", 512, 1),
        ("void gemv2T_kernel_val<__half>", None, 0),  # made for a vector
        ("void gemv2T_kernel_val<__half>", 512, 1),  # the shape says more than the name
        ("maxwell_fp16_hgemm_128x64_nn", None, 1),
    ],
)
def test_tc003_leaves_memory_bound_products_alone(kernel: str, rows: int | None, found: int) -> None:
    assert len(findings_of("TC003", handmade(product_step(kernel, rows)))) == found


def broadcast_step(gpu_us: float) -> Callable[[float, int], Iterator[build.Json]]:
    """DDP's forward packs and broadcasts its buffers for 2 ms; the model's kernel follows, of `gpu_us`."""

    def events(t: float, first_id: int) -> Iterator[build.Json]:
        yield build.python("train.py(20): train_step", t + 10, 9_000)
        yield build.annotation("DistributedDataParallel.forward", t + 100, 3_000)
        yield build.op("aten::flatten_dense_tensors", t + 200, 500)
        yield build.op("c10d::broadcast_", t + 800, 200)
        yield build.runtime("cudaLaunchKernel", t + 850, 5, first_id)
        yield build.kernel("ncclDevKernel_Broadcast_RING_LL(x)", t + 860, 50, first_id, stream=20)
        yield build.op("aten::unflatten_dense_tensors", t + 1_200, 1_000)
        yield build.op("aten::mm", t + 2_300, 50)
        yield build.runtime("cudaLaunchKernel", t + 2_310, 5, first_id + 1)
        yield build.kernel("ampere_sgemm_128x64_tn", t + 2_330, gpu_us, first_id + 1)

    return events


def test_cm007_prices_the_host_time_of_the_broadcast() -> None:
    (finding,) = findings_of("CM007", handmade(broadcast_step(gpu_us=3_000)))
    saving = saving_of(finding)
    assert saving.est_us == pytest.approx(2_000, rel=0.10)
    assert finding.impact == "high"
    assert "train.py:20" in places(finding)


def test_cm007_is_silent_under_a_busy_gpu() -> None:
    def busy(t: float, first_id: int) -> Iterator[build.Json]:
        yield from broadcast_step(gpu_us=3_000)(t, first_id)
        yield build.runtime("cudaLaunchKernel", t + 20, 5, first_id + 2)
        yield build.kernel("ampere_sgemm_64x64_nn", t + 30, 9_960, first_id + 2, stream=9)

    assert loud(findings_of("CM007", handmade(busy))) == []
