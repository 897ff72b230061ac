"""What the samples of the GPUs say, for each GPU of the run."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from traceopt.result.field_notes import note


class SampledGpu(Struct, frozen=True):
    """A GPU of the run."""

    node: Annotated[int | None, note("number of its host in this run, from 1; null: there is one host")]
    index: Annotated[int, note("number of the GPU on its host, as in nvidia-smi")]
    name: Annotated[str, note("model of the GPU")]
    samples: Annotated[int, note("samples")]
    busy_samples: Annotated[int, note("samples in which the GPU was busy")]
    sm_mhz: Annotated[float | None, note("median clock while busy, MHz; null: not known")]
    max_sm_mhz: Annotated[int | None, note("highest clock, MHz; null: not known")]
    power_w: Annotated[float | None, note("median power while busy, W; null: not known")]
    power_limit_w: Annotated[float | None, note("power limit, W; null: not known")]
    celsius: Annotated[int | None, note("highest temperature, degrees Celsius; null: not known")]
    shared_samples: Annotated[int | None, note("samples with another process; null: own processes are not known")]


class GpuSamplesSection(Struct, frozen=True):
    """Samples of the GPUs that `traceopt run` took."""

    gpus: Annotated[list[SampledGpu], note("GPUs of the run; at most 64")]
