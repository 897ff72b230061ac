"""PY004: steps in which the main thread sleeps, runs other programs, or waits for a thread."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from traceopt.document.rank_document import rank_document
from traceopt.result.finding import Finding, Saving
from traceopt.rules.catalogue.hs003_explicit_synchronize import ExplicitSynchronize
from traceopt.rules.catalogue.lb002_launch_bound import LaunchBound
from traceopt.rules.catalogue.lb006_python_bound import PythonBound
from traceopt.rules.catalogue.py004_main_thread_wait import MainThreadWait
from traceopt.rules.engine import run_rules
from traceopt.rules.savings.known_error import ERROR_ON_CPU
from traceopt.testing import A100, Machine, answer, assert_finds, assert_silent
from traceopt.testing import events as build

STEPS = 5
SLEEP = "<built-in function sleep>"
LOCK = "<built-in method acquire of _thread.lock>"
HELPER = 2  # a thread that is not the training thread


def call(machine: Machine, name: str, us: float) -> None:
    machine.idle(1)  # in the caller
    with machine.python(name):
        machine.idle(us)


def poll(machine: Machine) -> None:
    """`while queue.empty(): time.sleep(0.001)`, five times."""
    with machine.python("train.py(9): next_batch"):
        for _ in range(5):
            call(machine, "queue.py(97): empty", 5)
            call(machine, SLEEP, 1_000)


def retry(machine: Machine) -> None:
    with machine.python("train.py(9): upload"):
        machine.idle(1)
        with machine.python("tenacity/nap.py(20): sleep"):
            call(machine, SLEEP, 5_000)


def cpu_steps(name: str, us: float = 20_000, steps: range = range(STEPS)) -> Machine:
    """A CPU-only run of 8 ms of work and one such call, in some of the steps."""
    machine = Machine(with_stack=1)
    for step in range(STEPS):
        with machine.step(), machine.python("train.py(30): train"):
            machine.work(8_000, "aten::mm")
            if step in steps:
                with machine.python("train.py(5): cool_down"):
                    call(machine, name, us)
    return machine


def gpu_steps(gpu_us: float, sleep_us: float = 5_000, *, synchronize: bool = False) -> Machine:
    """The GPU works for `gpu_us` after the launches; then the host sleeps, or waits for the GPU and then sleeps."""
    machine = Machine(A100, with_stack=1)
    for _ in range(STEPS):
        with machine.step(), machine.python("train.py(30): train"):
            with machine.annotate("forward"):
                for _ in range(4):
                    machine.work(50, "aten::mm")
                    machine.launch(gpu_us / 4)
            if synchronize:
                machine.synchronize()
            with machine.python("train.py(5): cool_down"):
                call(machine, SLEEP, sleep_us)
    return machine


def saving_of(finding: Finding) -> Saving:
    assert finding.saving is not None
    return finding.saving


def test_fires_on_all_of_a_sleep_at_its_line() -> None:
    found = assert_finds(MainThreadWait, cpu_steps(SLEEP), saving_us=20_000, tolerance=0.01, location="train.py:5")
    assert found.why == "The step sleeps: time.sleep takes 20.0 ms of each 28.0 ms step."
    assert found.confidence == "high"
    assert saving_of(found).low_us == pytest.approx((1 - ERROR_ON_CPU) * 20_000)


@pytest.mark.parametrize("name", [SLEEP, "subprocess.py(506): run"])
def test_its_time_is_no_python_work(name: str) -> None:
    assert_silent(PythonBound, cpu_steps(name))


def test_silent_on_a_sleep_of_now_and_then() -> None:
    assert_silent(MainThreadWait, cpu_steps(SLEEP, steps=range(2)))
    assert_silent(MainThreadWait, cpu_steps(SLEEP, steps=range(0)))


def test_only_the_time_counts_in_which_the_gpu_starves() -> None:
    found = assert_finds(MainThreadWait, gpu_steps(2_000), saving_us=3_150)
    assert "time.sleep leaves the GPU idle for 3.2 ms of each 5.2 ms step" in found.why
    assert answer(LaunchBound, gpu_steps(2_000))[1] == []
    assert_silent(MainThreadWait, gpu_steps(6_000))


def test_the_sleep_after_a_sync_is_not_saved_twice() -> None:
    machine = gpu_steps(2_000, synchronize=True)
    assert_finds(MainThreadWait, machine, saving_us=5_000)
    assert assert_finds(ExplicitSynchronize, machine).shares_cause_with == ["PY004"]


def test_a_sleep_of_another_thread_is_silent() -> None:
    machine = gpu_steps(2_000, sleep_us=10)
    start = machine.events[0]["ts"]
    with machine.python(SLEEP, HELPER):
        machine.now, now = start, machine.now
    machine.events[-1] |= {"ts": start, "dur": now - start}
    assert_silent(MainThreadWait, machine)


@pytest.mark.parametrize("wait", [SLEEP, LOCK])
def test_a_wait_inside_the_loader_is_the_loaders(wait: str) -> None:
    machine = Machine(with_stack=1)
    for _ in range(STEPS):
        with machine.step(), machine.python("train.py(30): train"):
            with machine.python("torch/utils/data/dataloader.py(733): __next__"):
                call(machine, wait, 5_000)
            machine.work(8_000, "aten::mm")
    assert_silent(MainThreadWait, machine)


@pytest.mark.parametrize("wait", [poll, retry])
def test_what_a_poll_waits_for_counts(wait: Callable[[Machine], None]) -> None:
    machine = Machine(with_stack=1)
    for _ in range(STEPS):
        with machine.step(), machine.python("train.py(30): train"):
            wait(machine)
            machine.work(8_000, "aten::mm")
    found = assert_finds(MainThreadWait, machine, location="train.py:9")
    assert found.title == "Shorten what the step polls for with time.sleep"
    assert found.confidence == "low"
    assert saving_of(found).low_us == 0


def test_sleeps_between_operators_are_pauses() -> None:
    """As after each micro batch."""
    machine = Machine(with_stack=1)
    for _ in range(STEPS):
        with machine.step(), machine.python("train.py(30): train"):
            for _ in range(4):
                machine.work(2_000, "aten::mm")
                call(machine, SLEEP, 1_000)
    found = assert_finds(MainThreadWait, machine, saving_us=4_000, tolerance=0.01)
    assert found.confidence == "high"


def test_a_program_in_the_step() -> None:
    found = assert_finds(MainThreadWait, cpu_steps("subprocess.py(506): run", 4_000), saving_us=4_000, tolerance=0.01)
    assert found.why == "The step runs other programs, which take 4.0 ms of each 12.0 ms step."
    assert [str(place) for place in found.locations] == ["train.py:5"]
    assert (saving_of(found).low_us, saving_of(found).high_us) == pytest.approx((2_000, 8_000), rel=0.01)
    assert_silent(MainThreadWait, cpu_steps("subprocess.py(506): run", 4_000, steps=range(1)))


def test_a_program_with_a_timeout_sleeps_until_it_ends() -> None:
    machine = Machine(with_stack=1)
    for _ in range(STEPS):
        with machine.step(), machine.python("train.py(30): train"):
            machine.work(8_000, "aten::mm")
            machine.idle(1)
            with machine.python("subprocess.py(506): run"):
                call(machine, SLEEP, 4_000)
    found = assert_finds(MainThreadWait, machine, saving_us=4_000, tolerance=0.01)
    assert found.title == "Do not start other programs in every step"


def test_a_recording_without_steps() -> None:
    """The only sleep may be one before the loop."""
    machine = Machine(with_stack=1)
    with machine.python("train.py(30): train"):
        call(machine, SLEEP, 5_000)
        call(machine, "subprocess.py(506): run", 5_000)
        machine.work(8_000, "aten::mm")
    check, findings = answer(MainThreadWait, machine)
    assert (check.status, findings) == ("not_applicable", [])


class TestThreads:
    """Waits for locks."""

    @pytest.mark.parametrize("lock", [LOCK, "<method 'acquire' of '_thread.lock' objects>"])
    def test_a_server_may_wait_for_requests(self, lock: str) -> None:
        [found] = answer(MainThreadWait, cpu_steps(lock).facts())[1]
        assert found.saving is None
        assert "record it under load" in found.fix.text

    def test_no_fix_has_a_saving_while_a_server_may_wait_for_requests(self) -> None:
        """Done sooner, it waits longer for the next one."""
        machine = Machine(A100, with_stack=1)
        for _ in range(STEPS):
            with machine.step(), machine.python("server.py(30): work"):
                call(machine, LOCK, 20_000)
                machine.work(50, "aten::mm")
                machine.launch(2_000)
                machine.synchronize()
        facts = machine.facts()
        outcome = run_rules([MainThreadWait(), ExplicitSynchronize()], facts, debug=True)
        assert [one.finding.code for one in outcome.priced] == ["PY004"]
        assert "record it under load." in rank_document(facts, outcome).verdict

    def test_a_queue_that_is_empty(self) -> None:
        machine = cpu_steps(LOCK)
        machine.events.append(build.annotation("Optimizer.step#SGD.step", machine.now, 1))
        [found] = answer(MainThreadWait, machine.facts())[1]
        assert "waits for another thread, which takes 20.0 ms of each 28.0 ms step" in found.why
        assert [(one.file, one.line) for one in found.locations] == [("train.py", 5)]
        assert found.saving is not None
        assert found.saving.low_us == 0 < found.saving.est_us <= found.saving.high_us
        assert found.confidence == "low"
        assert_silent(PythonBound, cpu_steps(LOCK))

    def test_a_wait_of_now_and_then_is_silent(self) -> None:
        assert_silent(MainThreadWait, cpu_steps(LOCK, steps=range(2)))

    def test_short_waits_are_silent(self) -> None:
        assert_silent(MainThreadWait, cpu_steps(LOCK, us=100))
