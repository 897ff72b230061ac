"""The words of a label: causes of slow steps, and the side of the machine that each is on."""

from __future__ import annotations

SIDES = ("host", "gpu", "copies", "communication")

SIDE_OF_CAUSE = {
    "input": "host",  # waiting for the next batch
    "host sync": "host",
    "launching": "host",  # too many small launches
    "python": "host",  # logging, garbage collection, work of the main thread
    "memory allocation": "host",
    "compilation": "host",
    "optimizer": "host",
    "copies": "copies",
    "communication": "communication",  # exposed, slow, too small or too often
    "imbalance": "communication",  # a rank is late
    "precision": "gpu",  # Tensor Cores sit unused, FP64, casts
    "shapes": "gpu",  # alignment, many small products, algorithms of indexing
    "fusion": "gpu",
    "attention": "gpu",
    "layout": "gpu",
    "needless work": "gpu",  # computed twice, or read by nobody
    "arithmetic": "gpu",  # slow numbers, slow operators
}

# What is planted by each scenario of fixtures/scenarios.py. Those that are left out plant nothing that takes time, or
# several faults at once.
PLANTED = {
    "slow_loader": "input",
    "input_work_main_thread": "input",
    "slow_steps": "input",
    "worker_restart": "input",
    "no_profiler_step": "input",
    "logging_stall": "python",
    "gc_pause_recorded": "python",
    "gc_churn": "python",
    "checkpoint_in_step": "python",
    "cpu_noise": "python",
    "item_stall": "host sync",
    "explicit_synchronize": "host sync",
    "blocking_copy": "host sync",
    "nonzero": "host sync",
    "metric_sync": "host sync",
    "grad_scaler": "host sync",
    "launch_blocking": "host sync",
    "anomaly_mode": "host sync",
    "launch_bound": "launching",
    "decode": "launching",
    "pageable_copy": "copies",
    "exposed_copy": "copies",
    "exposed_allreduce": "communication",
    "small_collectives": "communication",
    "sync_every_micro_step": "communication",
    "overlap_tax": "communication",
    "slow_collective": "communication",
    "straggler": "imbalance",
    "load_imbalance": "imbalance",
    "fp32_matmul": "precision",
    "tf32_off": "precision",
    "fp32_matmul_v100": "precision",
    "float64": "precision",
    "cast_churn": "precision",
    "misaligned_vocab": "shapes",
    "split_projections": "shapes",
    "looped_products": "shapes",
    "looped_inverses": "shapes",
    "index_backward": "shapes",
    "unfused_elementwise": "fusion",
    "conv_bias": "fusion",
    "single_tensor_optimizer": "optimizer",
    "zero_grad_kernels": "optimizer",
    "foreach_optimizer": "optimizer",
    "unfused_attention": "attention",
    "sdpa_math": "attention",
    "layout_conversion": "layout",
    "cuda_malloc": "memory allocation",
    "pinned_each_step": "memory allocation",
    "memory_pressure": "memory allocation",
    "recompilation": "compilation",
    "module_load": "compilation",
    "cudnn_search": "compilation",
    "checkpointing": "needless work",
}
HEALTHY = ("healthy", "cuda_graph", "loss_item", "hidden_host_work")

# The pairs that were recorded on an H100: fixtures/traces/h100.
RECORDED = {
    "explicit_synchronize": "host sync",
    "fp32_matmul": "precision",
    "gc_each_step": "python",
    "item_each_step": "host sync",
    "main_thread_decode": "input",
    "memory_pressure": "memory allocation",
    "misaligned_vocabulary": "shapes",
    "nchw_conv": "layout",
    "pageable_copies": "copies",
    "python_mask": "python",
    "slow_loader": "input",
    "unfused_attention": "attention",
    "unused_gradients": "needless work",
}

# The traces of TraceLens with one defect, by the first word of their names: kernels far below the rate of the GPU.
ONE_DEFECT = {"conv": "shapes", "gemm": "shapes", "moe": "shapes", "sdpa": "attention"}

# The pairs of fixtures/workloads that are recorded on the CPU whenever the page is made.
RECORDED_HERE = {
    "slow_loader": "input",
    "main_thread_decode": "input",
    "items_one_by_one": "input",
    "workers_for_tiny_items": "input",
    "padded_texts": "needless work",
    "python_mask": "python",
    "log_each_step": "python",
    "checkpoint_each_step": "python",
    "gc_each_step": "python",
    "rows_of_a_frame": "python",
    "single_tensor_optimizer": "optimizer",
    "unfused_attention": "attention",
    "tiny_kernels": "launching",
    "unused_gradients": "needless work",
    "dense_embedding": "needless work",
    "broadcast_distances": "needless work",
    "jacobian_rows": "needless work",
    "large_logits": "needless work",
    "subnormal_weights": "arithmetic",
    "norm_of_pairs": "arithmetic",
    "double_precision": "precision",
}
