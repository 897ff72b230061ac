"""A recorded run on the CPU whose script keeps every loss with its graph: found, with the line."""

from __future__ import annotations

import subprocess

import pytest
from runs import TIMEOUT_S, environment, traceopt_run

import traceopt
from traceopt.result.document import Result

STEPS = 300
# The clock is set forward, so that readings are cheap compared with a step however fast the machine is.
SCRIPT = f"""
import time
import torch

real, ahead = time.perf_counter, 0.0
time.perf_counter = lambda: real() + ahead
model = torch.nn.Sequential(torch.nn.Linear(64, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
losses = []
for step in range({STEPS}):
    ahead += 1.0
    loss = model(torch.randn(128, 64)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(model(torch.randn(128, 64)).mean())
"""

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Result:
    folder = tmp_path_factory.mktemp("memory")
    (folder / "train.py").write_text(SCRIPT)
    command = traceopt_run("--logdir", "logs", "train.py")
    # Large blocks then go back to the system when they are freed, so resident memory is what is in use.
    env = environment(MALLOC_MMAP_THRESHOLD_="65536")
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    return traceopt.analyze(str(folder / "logs"))


def test_kept_losses_are_found_with_their_line(recorded: Result) -> None:
    (finding,) = [one for one in recorded.findings if one.code == "MM005"]
    assert finding.why.startswith("The memory of the process grows from ")
    assert finding.locations[0].file.endswith("train.py")
    line = SCRIPT.splitlines()[finding.locations[0].line - 1]
    assert "losses.append" in line
