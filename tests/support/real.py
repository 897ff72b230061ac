"""The real traces: their facts, their results, and what an expert saw in them."""

from __future__ import annotations

from functools import cache

from support.traces import READABLE, real_trace

from fixtures.real_traces import expected
from traceopt.analyzer.facts import Facts
from traceopt.result.document import Result

TRUTH = expected()

# The trace-quality rules that speak on a trace.
REAL = {
    "hta/cpu_only/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz": {"TQ001", "TQ002", "TQ003"},
    "hta/rank_non_gpu/rank_non_gpu.json.gz": {"TQ001", "TQ002"},
    "hta/cupti_profiler/benchmark_result_924719_1679055439_trace.json.gz": {"TQ001", "TQ002"},
    "hta/mtia_inference_trace/mtia_inference_rank_0.json.gz": {"TQ007"},
    "hta/trace_filter/sampled_rank-0.json.gz": {"TQ003"},
    "hta/trace_filter/sampled_rank-1.json.gz": {"TQ003"},
    "hta/critical_path/alexnet/benchmark_result_2869224_1695835535_trace.json.gz": {"TQ002", "TQ004"},
    "hta/critical_path/cuda_event_sync/event_sync_trace.json.gz": {"TQ002", "TQ003", "TQ004"},
    "hta/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz": {"TQ002", "TQ004"},
    "tracelens/perf_model/normalization/normalization_layer_test.json.gz": {"TQ002", "TQ004"},
    "hta/negative_queue_length_values_check/rank0.json.gz": {"TQ010"},
    "tracelens/inference/sglang_prefilldecode/sglang_Qwen3-8B_prefilldecode.json.gz": {"TQ003"},
    "tracelens/inference/vllm_decode_full/graph_execution.json.gz": {"TQ003"},
    "tracelens/mi300/resnet_act_checkpoint.json.gz": {"TQ003"},
    "tracelens/torch_compile_triton/trace.json.gz": set(),
    "hta/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz": set(),
    "hta/trace_diff/control/control.json.gz": set(),
    "kineto/resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz": set(),
}


def real(path: str) -> Facts:
    return real_trace(path).facts


@cache
def result_of(file: str) -> Result:
    return real_trace(file).result


def find(part: str) -> Result:
    (file,) = [file for file in READABLE if part in file]
    return result_of(file)
