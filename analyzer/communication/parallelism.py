"""What a process group is for, by the description that frameworks give it."""

from __future__ import annotations

import re

DATA, TENSOR, PIPELINE, CONTEXT, EXPERT = "data", "tensor", "pipeline", "context", "expert"
# By the words of the descriptions: "mesh_dp_shard" of torch's DeviceMesh, "TENSOR_MODEL_PARALLEL_GROUP" of Megatron.
_KIND_OF_WORD = {
    **dict.fromkeys(("dp", "ddp", "fsdp", "hsdp", "data", "replicate", "shard"), DATA),
    **dict.fromkeys(("tp", "tensor"), TENSOR),
    **dict.fromkeys(("pp", "pipe", "pipeline"), PIPELINE),
    **dict.fromkeys(("cp", "sp", "context", "ulysses"), CONTEXT),
    **dict.fromkeys(("ep", "expert", "moe"), EXPERT),
}
_WORD = re.compile(r"[a-z]+")


def parallelism_of(description: str) -> str | None:
    """The kinds of parallelism that a description names: "data", "data, context"; None if it names none."""
    kinds = [_KIND_OF_WORD[word] for word in _WORD.findall(description.lower()) if word in _KIND_OF_WORD]
    return ", ".join(dict.fromkeys(kinds)) or None
