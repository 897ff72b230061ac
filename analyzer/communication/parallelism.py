"""What a process group is for, by the description that a framework gives it."""

from __future__ import annotations

import re

DATA, TENSOR, PIPELINE, CONTEXT, EXPERT = "data", "tensor", "pipeline", "context", "expert"

# By the words of the descriptions. Seen in:
# - torch: device_mesh.py, "mesh_" and the user's name of the dimension; fsdp/_fully_shard, "fsdp_reduce_scatter"
# - torchtitan, distributed/parallel_dims.py, and Accelerate, parallelism_config.py, the names of dimensions:
#   dp_replicate, dp_shard, dp_shard_cp, fsdp, efsdp (of experts), cp, tp, pp, ep, etp (of experts)
# - DeepSpeed, deepspeed/__init__.py: the dimensions data_parallel, sequence_parallel (no others have one)
# - Megatron-LM, megatron/core/parallel_state.py: "TENSOR_MODEL_PARALLEL_GROUP", "DATA_PARALLEL_GROUP_WITH_CP"
# - vLLM and SGLang, distributed/parallel_state.py: "tp:device", "pcp:device", "dcp:device", "moe_ep:device"
_KIND_OF_WORD = {
    **dict.fromkeys(("dp", "ddp", "fsdp", "efsdp", "hsdp", "data", "replicate", "shard"), DATA),
    **dict.fromkeys(("tp", "etp", "tensor"), TENSOR),
    **dict.fromkeys(("pp", "pipe", "pipeline"), PIPELINE),
    **dict.fromkeys(("cp", "pcp", "dcp", "sp", "context", "sequence", "ulysses"), CONTEXT),
    **dict.fromkeys(("ep", "expert", "moe"), EXPERT),
}
# Before another kind, these only say whose weights it is about: "EXPERT_DATA_PARALLEL_GROUP", "moe_tp:device".
_OF_EXPERTS = ("expert", "moe")
# Whole descriptions, without "_group", that their words do not tell.
_WHOLE = {
    # Megatron-LM. "Model" there is tensor and pipeline, or expert; an embedding is on the first and the last stage.
    "model_parallel": (TENSOR, PIPELINE),
    "expert_tensor_and_model_parallel": (EXPERT, TENSOR),
    "expert_tensor_model_pipeline_parallel": (EXPERT, TENSOR, PIPELINE),
    "embedding": (PIPELINE,),
    "position_embedding": (PIPELINE,),
    # torchtitan: the ranks that hold the same experts
    "mesh_dp_shard_mod_ep": (DATA,),
}
_WORD = re.compile(r"[a-z]+")


def parallelism_of(description: str) -> str | None:
    """The kinds of parallelism that a description names: "data", "data, context"; None if it names none."""
    words = _WORD.findall(description.lower())
    kinds = _WHOLE.get("_".join(words).removesuffix("_group")) or tuple(
        _KIND_OF_WORD[word]
        for word, after in zip(words, [*words, ""][1:], strict=True)
        if word in _KIND_OF_WORD and not (word in _OF_EXPERTS and after in _KIND_OF_WORD)
    )
    return ", ".join(dict.fromkeys(kinds)) or None
