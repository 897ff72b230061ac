"""A Dask cluster of real worker processes: the same bytes, and no rank lost with a worker or with the cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_job import RANKS, VICTIM

from traceopt.api import analyze
from traceopt.errors import ConfigError
from traceopt.workers import dask_cluster

distributed = pytest.importorskip("distributed")

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of a cluster of two worker processes on loopback; its nannies restart workers."""
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0", silence_logs=50
    ) as local:
        yield local.scheduler_address


def test_the_same_bytes(job: Path, address: str, tmp_path: Path) -> None:
    expected = analyze(str(job)).to_json()
    assert analyze(str(job), scheduler=address).to_json() == expected
    for _ in range(2):
        assert analyze(str(job), scheduler=address, cache=tmp_path).to_json() == expected
    assert len(list(tmp_path.iterdir())) == RANKS


def test_a_worker_that_dies_costs_no_rank(job: Path, address: str, accident: Path) -> None:
    whole = analyze(str(job), rules_dir=accident)
    (accident / "mode").write_text("die once")
    assert analyze(str(job), rules_dir=accident, scheduler=address).to_json() == whole.to_json()
    assert (accident / "died").exists()


def test_another_program_on_the_workers(job: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_cluster, "program", lambda _: "another")
    with pytest.raises(ConfigError, match="has different traceopt code or rules"):
        analyze(str(job), scheduler=address)


class TestAClusterThatEnds:
    @pytest.fixture
    def processes(self) -> Iterator[dict[str, Any]]:
        """A scheduler and two workers without nannies, started by hand."""
        environment = {**os.environ, "DASK_DISTRIBUTED__WORKER__DAEMON": "false"}
        found: dict[str, Any] = {}

        def start(*command: str) -> subprocess.Popen[str]:
            return subprocess.Popen(
                [sys.executable, "-m", *command], stderr=subprocess.PIPE, text=True, env=environment
            )

        scheduler = start("distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        assert scheduler.stderr is not None
        line = next(line for line in scheduler.stderr if "Scheduler at:" in line)
        found["address"] = line.split()[-1]
        threading.Thread(target=scheduler.stderr.read, daemon=True).start()
        worker = ("distributed.cli.dask_worker", found["address"], "--nthreads", "1", "--no-nanny", "--no-dashboard")
        workers = [start(*worker, "--death-timeout", "5") for _ in range(2)]
        for one in workers:
            threading.Thread(target=one.stderr.read, daemon=True).start()  # type: ignore[union-attr]
        found |= {"scheduler": [scheduler], "workers": workers}
        yield found
        for one in (*workers, scheduler):
            one.kill()
            one.wait()

    @pytest.mark.parametrize("who", ["scheduler", "workers"])
    def test_in_the_middle_costs_no_rank(
        self, processes: dict[str, Any], job: Path, accident: Path, who: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(dask_cluster, "WITHOUT_WORKERS_S", 1.0 if who == "workers" else 60.0)
        monkeypatch.setattr(dask_cluster, "CONNECT_S", 2.0)
        whole = analyze(str(job), rules_dir=accident)
        (accident / "mode").write_text("be slow")

        def kill() -> None:
            while not (accident / f"pid{VICTIM}").exists():
                time.sleep(0.01)
            for process in processes[who]:
                process.send_signal(signal.SIGKILL)

        for pid in accident.glob("pid*"):
            pid.unlink()
        killer = threading.Thread(target=kill)
        killer.start()
        result = analyze(str(job), rules_dir=accident, scheduler=processes["address"])
        killer.join()
        (note,) = result.warnings
        assert note.startswith("The Dask cluster disappeared; this machine read ")
        assert [row.rank for row in result.ranks] == [row.rank for row in whole.ranks]
        assert result.findings == whole.findings


def test_no_scheduler_there(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_cluster, "CONNECT_S", 0.5)
    with pytest.raises(ConfigError, match=r"no Dask scheduler at tcp://127\.0\.0\.1:9: "):
        analyze(str(job), scheduler="tcp://127.0.0.1:9")
    with pytest.raises(ConfigError, match="no Dask scheduler at nonsense: "):
        analyze(str(job), scheduler="nonsense")


def test_no_workers_there(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_cluster, "WITHOUT_WORKERS_S", 0.2)
    with (
        distributed.LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0") as empty,
        pytest.raises(ConfigError, match="has no worker"),
    ):
        analyze(str(job), scheduler=empty.scheduler_address)


def test_without_dask(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ConfigError, match=r"pip install 'traceopt-profiler\[distributed\]'"):
        analyze(str(job), scheduler="tcp://127.0.0.1:8786")
