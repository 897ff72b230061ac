"""What process groups are for, by the descriptions that frameworks give them."""

from __future__ import annotations

import pytest

from traceopt.analyzer.communication.parallelism import parallelism_of

MEGATRON = {  # megatron/core/parallel_state.py
    "DATA_PARALLEL_GROUP": "data",
    "DATA_PARALLEL_GROUP_WITH_CP": "data, context",
    "INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP": "data, context",
    "CONTEXT_PARALLEL_GROUP": "context",
    "HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L0": "context",
    "MODEL_PARALLEL_GROUP": "tensor, pipeline",
    "TENSOR_MODEL_PARALLEL_GROUP": "tensor",
    "PIPELINE_MODEL_PARALLEL_GROUP": "pipeline",
    "EMBEDDING_GROUP": "pipeline",
    "POSITION_EMBEDDING_GROUP": "pipeline",
    "TENSOR_AND_DATA_PARALLEL_GROUP": "tensor, data",
    "TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP": "tensor, data, context",
    "TENSOR_AND_CONTEXT_PARALLEL_GROUP": "tensor, context",
    "EXPERT_MODEL_PARALLEL_GROUP": "expert",
    "EXPERT_TENSOR_PARALLEL_GROUP": "tensor",
    "EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP": "expert, tensor",
    "EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP": "expert, tensor, pipeline",
    "EXPERT_DATA_PARALLEL_GROUP": "data",
    "HIERARCHICAL_EXPERT_DATA_PARALLEL_GROUP_L1": "data",
    "INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP": None,
}
DEVICE_MESHES = {  # torch/distributed/device_mesh.py, with the names of torchtitan, Accelerate and DeepSpeed
    "mesh_dp_replicate": "data",
    "mesh_dp_shard": "data",
    "mesh_dp_shard_cp": "data, context",
    "mesh_dp_cp": "data, context",
    "mesh_dp_shard_mod_ep": "data",
    "mesh_fsdp": "data",
    "mesh_efsdp": "data",
    "mesh_cp": "context",
    "mesh_tp": "tensor",
    "mesh_etp": "tensor",
    "mesh_pp": "pipeline",
    "mesh_ep": "expert",
    "mesh_data_parallel": "data",
    "mesh_sequence_parallel": "context",
    "mesh_dim_0": None,
    "mesh_default": None,
}
TORCH = {"": None, "default_pg": None, "undefined": None, "fsdp_reduce_scatter": "data"}
ENGINES = {  # vllm/distributed/parallel_state.py, sglang/srt/distributed/parallel_state.py
    "world:device": None,
    "tp:device": "tensor",
    "pp:device": "pipeline",
    "dp:device": "data",
    "ep:device": "expert",
    "pcp:device": "context",
    "dcp:device": "context",
    "attention_tp:device": "tensor",
    "moe_ep:device": "expert",
    "moe_tp:device": "tensor",
}


@pytest.mark.parametrize(("description", "kinds"), [*(MEGATRON | DEVICE_MESHES | TORCH | ENGINES).items()])
def test_descriptions_of_frameworks(description: str, kinds: str | None) -> None:
    assert parallelism_of(description) == kinds
