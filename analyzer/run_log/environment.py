"""The settings of a process that affect speed, and the cores that it can count on, as `traceopt run` recorded them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from traceopt.analyzer.run_log.cpu import Cpu, read_cpu
from traceopt.analyzer.tables.json_values import amount, flag, rows, table, whole, word

MOST_CORES = 65_536


class Environment(Struct, frozen=True):
    """Process settings that affect speed; None if unknown.

    `cpu_affinity` is the number of cores that the process may run on, `cpu_quota` the CPU limit of its container in
    cores; `numa_nodes` is how many NUMA nodes the machine has and how many of them the process may use.
    """

    cpu: Cpu = Cpu()
    cpu_count: int | None = None
    cpu_affinity: int | None = None
    cpu_affinity_of_parent: int | None = None
    cpu_quota: float | None = None
    numa_nodes: tuple[int, int] | None = None
    available_memory_bytes: int | None = None  # that programs could still get, between two steps
    threads: int | None = None  # intra-op threads on the CPU
    local_world_size: int | None = None
    matmul_precision: str | None = None
    matmul_tf32: bool | None = None
    conv_tf32: bool | None = None
    cudnn_benchmark: bool | None = None
    deterministic: bool | None = None
    sdp_flash: bool | None = None
    sdp_memory_efficient: bool | None = None
    anomaly_mode: bool | None = None
    python_debug: bool | None = None
    gpus: tuple[Mapping[str, Any], ...] = ()  # of the machine, with the keys of Kineto's deviceProperties
    libc: str | None = None  # "glibc"
    preloaded_allocator: str | None = None  # file name of a library that replaces malloc
    variables: Mapping[str, str] = {}

    @property
    def cores(self) -> int | None:
        """Cores that this process can count on: shared cores are divided among the ranks of the machine."""
        allowed = self.cpu_affinity or self.cpu_count
        if allowed is None:
            return None
        if self.cpu_quota:
            allowed = min(allowed, max(1, int(self.cpu_quota)))
        return max(1, allowed // self.ranks_on_cores)

    @property
    def physical_cores(self) -> int | None:
        """Cores as in `cores`, but hardware threads of one core count once; two threads if that is unknown."""
        return None if self.cores is None else max(1, self.cores // (self.cpu.threads_per_core or 2))

    @property
    def ranks_on_cores(self) -> int:
        """Processes of the run that share the cores; 1 if the launcher binds each to its own cores."""
        bound = (self.cpu_affinity or 0) < (self.cpu_affinity_of_parent or 0)
        return 1 if bound else self.local_world_size or 1


def read_environment(value: object) -> Environment:
    row = table(value)
    nodes = table(row.get("numa_nodes"))
    all_nodes, used_nodes = whole(nodes.get("all"), MOST_CORES), whole(nodes.get("used"), MOST_CORES)
    variables = {name: word(value) for name, value in table(row.get("variables")).items()}
    return Environment(
        cpu=read_cpu(row.get("cpu")),
        cpu_count=_cores(row, "cpu_count"),
        cpu_affinity=_cores(row, "cpu_affinity"),
        cpu_affinity_of_parent=_cores(row, "cpu_affinity_of_parent"),
        cpu_quota=amount(row.get("cpu_quota"), MOST_CORES) or None,
        numa_nodes=(all_nodes, used_nodes) if all_nodes and used_nodes and used_nodes <= all_nodes else None,
        available_memory_bytes=whole(row.get("available_memory_bytes")),
        threads=_cores(row, "threads"),
        local_world_size=_cores(row, "local_world_size"),
        matmul_precision=word(row.get("matmul_precision")),
        matmul_tf32=flag(row.get("matmul_tf32")),
        conv_tf32=flag(row.get("conv_tf32")),
        cudnn_benchmark=flag(row.get("cudnn_benchmark")),
        deterministic=flag(row.get("deterministic")),
        sdp_flash=flag(row.get("sdp_flash")),
        sdp_memory_efficient=flag(row.get("sdp_memory_efficient")),
        anomaly_mode=flag(row.get("anomaly_mode")),
        python_debug=flag(row.get("python_debug")),
        gpus=tuple(map(_gpu, rows(row.get("gpus")))),
        libc=word(row.get("libc")),
        preloaded_allocator=word(row.get("preloaded_allocator")),
        variables={name[:100]: value for name, value in variables.items() if value is not None},
    )


def _gpu(row: Mapping[str, Any]) -> Mapping[str, Any]:
    capability, memory = row.get("capability"), row.get("memory_bytes")
    major, minor = capability if isinstance(capability, list) and len(capability) == 2 else (None, None)
    return {"name": row.get("name"), "totalGlobalMem": memory, "computeMajor": major, "computeMinor": minor}


def _cores(row: Mapping[str, Any], name: str) -> int | None:
    return whole(row.get(name), MOST_CORES) or None
