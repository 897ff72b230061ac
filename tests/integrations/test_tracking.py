"""Results in experiment trackers, each in its offline mode: numbers, report and document arrive there unchanged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.traces import GetExample

from traceopt.integrations.tracking import DOCUMENT, REPORT, Logged, log_result, metrics
from traceopt.integrations.training import Training
from traceopt.result.document import Result


@pytest.fixture
def result(example: GetExample) -> Result:
    return example("five_faults").result


class Remembered:
    """A tracker that keeps what it receives."""

    def __init__(self) -> None:
        self.metrics: dict[str, float] = {}
        self.contents: dict[str, bytes] = {}

    def log(self, logged: Logged) -> None:
        self.metrics = dict(logged.metrics)
        self.contents = {file.name: file.read_bytes() for file in logged.files}


def check_files(folder: Path, result: Result) -> None:
    assert Result.from_json((folder / DOCUMENT).read_bytes()) == result
    assert (folder / REPORT).read_text(encoding="utf-8").startswith("<!doctype html>")


def test_metrics_are_those_of_the_document(result: Result, example: GetExample) -> None:
    found = metrics(result)
    assert result.step.typical_us is not None
    assert found["traceopt/step_ms"] == result.step.typical_us / 1000
    assert found["traceopt/gpu_busy_share"] == result.gpu.busy_share
    assert result.combined is not None
    assert found["traceopt/plan_saving_share"] == result.combined.share
    assert found["traceopt/findings"] == len(result.findings)
    assert "traceopt/gpu_busy_share" not in metrics(example("cpu_only").result), "not measured is not 0"


def test_a_tracker_of_your_own_gets_metrics_and_files(result: Result) -> None:
    own = Remembered()
    log_result(result, own)
    assert own.metrics == metrics(result)
    assert own.contents[DOCUMENT] == result.to_json()
    assert own.contents[REPORT].startswith(b"<!doctype html>")


def test_an_unknown_name_is_refused_before_the_training(result: Result, tmp_path: Path) -> None:
    for refused in (lambda: log_result(result, "comet"), lambda: Training(tmp_path, log_to="comet")):
        with pytest.raises(ValueError, match="unknown tracker 'comet'; known: wandb, mlflow, tensorboard"):
            refused()


def test_no_tracker_and_no_analyzer_is_imported_until_it_is_used(tmp_path: Path) -> None:
    code = f"""
import sys
from traceopt.integrations.training import Training
Training({str(tmp_path)!r})
print(sorted({{"wandb", "mlflow", "tensorboard", "torch", "numpy", "IPython"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_wandb_offline(result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb: Any = pytest.importorskip("wandb", reason="pip install wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path / "staging"))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(ValueError, match=r"call wandb\.init\(\) first"):
        log_result(result, "wandb")
    logged: list[Any] = []
    with wandb.init(project="test", mode="offline", dir=str(tmp_path)) as run:
        monkeypatch.setattr(run, "log_artifact", logged.append)  # offline there is no server to read it back from
        log_result(result, "wandb")
        assert run.summary["traceopt/gpu_busy_share"] == result.gpu.busy_share
        assert run.summary["traceopt/verdict"] == result.verdict
    [artifact] = logged
    assert artifact.type == "traceopt-report"
    copies = {name: Path(entry.local_path) for name, entry in artifact.manifest.entries.items()}
    assert set(copies) == {DOCUMENT, REPORT}
    assert Result.from_json(copies[DOCUMENT].read_bytes()) == result


def test_mlflow_in_local_files(result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow: Any = pytest.importorskip("mlflow", reason="pip install mlflow-skinny")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    with mlflow.start_run() as run:
        pass
    log_result(result, "mlflow")  # the run has ended, as with the Hugging Face Trainer
    data = mlflow.get_run(run.info.run_id).data
    assert data.metrics == pytest.approx(metrics(result))
    assert data.tags["traceopt.verdict"] == result.verdict
    check_files(Path(mlflow.artifacts.download_artifacts(run_id=run.info.run_id, artifact_path="traceopt")), result)


@pytest.mark.torch
def test_tensorboard(result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboard", reason="pip install tensorboard, or the extra traceopt-profiler[tensorboard]")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.chdir(tmp_path)
    log_result(result, "tensorboard")
    folder = tmp_path / "runs" / "traceopt"
    events = EventAccumulator(str(folder)).Reload()
    assert {name: events.Scalars(name)[0].value for name in events.Tags()["scalars"]} == pytest.approx(metrics(result))
    check_files(folder, result)


@pytest.mark.torch
def test_a_training_logs_its_result_at_the_end(tmp_path: Path) -> None:
    import torch

    class Full:
        def log(self, _: Logged) -> None:
            raise OSError("the disk is full")

    def train(training: Training) -> None:
        training.begin()
        for _ in range(5):
            torch.ones(4).sum()
            training.step()
        training.end()

    own = Remembered()
    train(Training(tmp_path / "a", log_to=own, wait=0, warmup=1, active=2))
    assert Result.from_json(own.contents[DOCUMENT]).step.count == 2
    with pytest.warns(RuntimeWarning, match="the result was not logged: the disk is full"):
        train(Training(tmp_path / "b", log_to=Full(), wait=0, warmup=1, active=2))
