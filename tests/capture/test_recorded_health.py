"""The health of a recorded run: a slow-down and longer samples from one step on, and samples of a stand-in for NVML."""

from __future__ import annotations

import subprocess

import pytest
from runs import TIMEOUT_S, environment, traceopt_run

import traceopt
from traceopt.result.document import Result

CHANGE = 120
# Steps wait on a clock that is set forward, so the length of a step does not depend on how busy the machine is.
SCRIPT = f"""
import time
import torch
from torch.utils.data import DataLoader

real, ahead = time.perf_counter, 0.0
time.perf_counter = lambda: real() + ahead
weight = torch.nn.Parameter(torch.ones(1))
optimizer = torch.optim.SGD([weight], lr=1e-3)
batches = [torch.ones(4, 32 if step < {CHANGE} else 64) for step in range(200)]
for step, batch in enumerate(DataLoader(batches, batch_size=None)):
    ahead += 1.0 if step < {CHANGE} else 2.0
    (weight * batch).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
NVML = """
from types import SimpleNamespace

NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
nvmlInit = lambda: None
nvmlSystemGetDriverVersion = lambda: "550.54"
nvmlDeviceGetCount = lambda: 1
nvmlDeviceGetHandleByIndex = lambda index: index
nvmlDeviceGetName = lambda gpu: "NVIDIA H100"
nvmlDeviceGetUUID = lambda gpu: "GPU-1"
nvmlDeviceGetMaxClockInfo = lambda gpu, kind: 1980
nvmlDeviceGetEnforcedPowerLimit = lambda gpu: 700_000
nvmlDeviceGetClockInfo = lambda gpu, kind: 1200
nvmlDeviceGetCurrentClocksThrottleReasons = lambda gpu: 0x20
nvmlDeviceGetPowerUsage = lambda gpu: 350_000
nvmlDeviceGetTemperature = lambda gpu, kind: 88
nvmlDeviceGetUtilizationRates = lambda gpu: SimpleNamespace(gpu=99, memory=40)
nvmlDeviceGetMemoryInfo = lambda gpu: SimpleNamespace(used=2**30)
nvmlDeviceGetComputeRunningProcesses = lambda gpu: []
"""

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Result:
    folder = tmp_path_factory.mktemp("health")
    (folder / "train.py").write_text(SCRIPT)
    (folder / "modules").mkdir()
    (folder / "modules" / "pynvml.py").write_text(NVML)
    command = traceopt_run("--logdir", "logs", "--wait", "3", "--warmup", "1", "--active", "2", "train.py")
    env = environment(PYTHONPATH=str(folder / "modules"))
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    return traceopt.analyze(str(folder / "logs"))


def test_the_slow_down_is_found_at_its_step_with_what_grew(recorded: Result) -> None:
    (finding,) = [one for one in recorded.findings if one.code == "RH003"]
    step = int(finding.why.removeprefix("From about step ").split(" on, ")[0])
    assert abs(step - CHANGE) <= 2
    assert finding.why.endswith(
        "A sample of the batches has 2 times as many elements as before: longer sequences, or larger inputs."
    )


def test_samples_of_nvml_are_in_the_result(recorded: Result) -> None:
    assert recorded.gpu_samples is not None
    (gpu,) = recorded.gpu_samples.gpus
    assert (gpu.name, gpu.max_sm_mhz) == ("NVIDIA H100", 1980)
    assert gpu.samples >= 1


def test_memory_that_does_not_grow_is_no_finding(recorded: Result) -> None:
    (check,) = [one for one in recorded.checks if one.code == "MM005"]
    assert check.status == "passed"
