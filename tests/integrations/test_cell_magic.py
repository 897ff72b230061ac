"""`%%traceopt` in a real notebook."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

SETUP = """%load_ext traceopt
import torch
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.rand(48, 8)), batch_size=4)
"""
DETECTED = """%%traceopt --preset quick --logdir detected
for (x,) in loader:
    model(x).sum().backward()
    optimizer.step()
last = "kept"
"""
GIVEN = """%%traceopt --preset timing --steps p --html given.html
for _ in range(14):
    model(torch.rand(4, 8)).sum().backward()
    p.step()
"""
SHORT = """%%traceopt
pass
"""
AFTERWARDS = "print(last, len(detected.step.per_step_us), __import__('os').path.exists('given.html'))"


@pytest.mark.torch
def test_cells_are_recorded(tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    cells = [SETUP, DETECTED, "detected = _", GIVEN, SHORT, AFTERWARDS]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", resources=resources).execute()
    _, detected, _, given, short, afterwards = (cell.outputs for cell in notebook.cells)
    for outputs in (detected, given):
        [shown] = [one.data for one in outputs if one.output_type == "execute_result"]
        assert 'class="traceopt-summary"' in shown["text/html"]
    assert "traceopt recorded nothing: 0 steps ended, but at least 9 are needed" in json.dumps(short)
    assert [one.text for one in afterwards] == ["kept 3 True\n"]
    assert len(list((tmp_path / "detected").iterdir())) == 2
