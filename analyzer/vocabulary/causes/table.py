"""The causes of time, one row each. If host work nests, the earlier row owns the time."""

from __future__ import annotations

from traceopt.analyzer.vocabulary import op_names, runtime_calls, torch_compile
from traceopt.analyzer.vocabulary.causes import span_categories as spans
from traceopt.analyzer.vocabulary.causes.cause import Cause, Look
from traceopt.analyzer.vocabulary.causes.host_names import LIBRARY, LOADER_FETCH, LOGGING_FRAME, Names, pattern
from traceopt.analyzer.vocabulary.os_calls import is_os_wait

_NO_MODEL = r"\d+\): (?!forward$)"  # a tokenizer may be a network
_LAUNCH_BOUND = "Launch-bound: the host launches work more slowly than the GPU runs it."
_LAUNCH_RULES = ("LB002",)

COMPUTE = Cause(
    key="compute",
    label="Compute kernels",
    meaning="At least one kernel runs that is neither a collective nor a copy.",
    busy=True,
    look=Look("compute", ""),
    span=spans.GPU_COMPUTE,
    limit="GPU-bound",
    verdict="",
    rules=(),
    advice="Compare the inputs: longer sequences or other shapes take longer. Bucket or pad them.",
    straggler=None,
)
PROFILER = Cause(
    key="profiler",
    label="Profiler overhead",
    meaning="The profiler gets or writes its buffers, or a launch is the first after that.",
    names=Names(runtime=runtime_calls.is_profiler_overhead),
    look=Look("profiler", "cross", "its buffers, and the first launch after"),
    limit="bound by the start of the profiler",
    verdict="The profiler's own work takes most of that time. Record again after a few warm-up steps.",
    may_pass=True,
    rules=("TQ004",),
    advice="Nothing: the profiler took that time. Record again with warm-up steps.",
    straggler=None,
)
LOADER_STARTUP = Cause(
    key="loader_startup",
    label="Starting data loader workers",
    meaning="The loop waits while the loader creates its workers, or for the first batch of new workers.",
    on_cpu=True,
    names=Names(frame=pattern(LIBRARY + r"torch/utils/data/dataloader\.py\(\d+\): (?:__iter__|_get_iterator)")),
    look=Look("workers", "vertical", "worker processes and their first batch"),
    span=spans.LOADER,
    limit="bound by the start of data loader workers",
    verdict="The data loader is starting its workers.",
    rules=("DL006",),
    advice=None,
    straggler=None,
)
DATA_LOADING = Cause(
    key="data_loading",
    label="Waiting for data",
    meaning="The loop is inside the loader's `__next__`.",
    on_cpu=True,
    names=Names(frame=LOADER_FETCH, annotation=op_names.is_dataloader),
    look=Look("loader", "diagonal", "in next(loader)"),
    span=spans.LOADER,
    limit="input-bound",
    verdict="The data loader is the bottleneck.",
    rules=("DL001", "DL005"),
    slow_step_rules=("DL005",),
    refill_rule="DL001",
    advice="Load data in enough worker processes, or make items cheaper, so that no step waits for its batch.",
    straggler="its data loader: workers, shards of unequal cost, a slow disk or mount",
)
CHECKPOINT = Cause(
    key="checkpoint",
    label="Saving a checkpoint",
    meaning="The thread that launches saves a model or its state.",
    on_cpu=True,
    names=Names(
        frame=pattern(
            LIBRARY + r"torch/serialization\.py\(\d+\): _?(?:legacy_)?save",
            LIBRARY + r"torch/distributed/checkpoint/.*: (?:async_)?save",
            LIBRARY + r"safetensors/.*: save",
            r": _?save_(?:checkpoint|pretrained|model|state)$",
        )
    ),
    look=Look("checkpoint", "vertical", "torch.save, save_pretrained"),
    span=spans.SAVE,
    limit="checkpoint-bound",
    verdict="Saving checkpoints in the step is the bottleneck.",
    may_pass=True,
    rules=("LG003",),
    slow_step_rules=("LG003",),
    refill_rule="LG003",
    advice="Write checkpoints asynchronously, or less often.",
    straggler="what only that rank saves",
)
LOGGING = Cause(
    key="logging",
    label="Logging",
    meaning="The thread that launches prints, logs, or writes metrics or images.",
    on_cpu=True,
    names=Names(frame=LOGGING_FRAME),
    look=Look("logging", "dots", "print, loggers, metric writers, images"),
    span=spans.LOG,
    limit="logging-bound",
    verdict="Logging in the step is the bottleneck.",
    may_pass=True,
    rules=("LG001", "LG002"),
    refill_rule="LG001",
    advice="Log less often, or from a thread with a queue.",
    straggler="what only that rank logs or prints",
)
GC = Cause(
    key="gc",
    label="Garbage collection",
    meaning="Python collects garbage.",
    on_cpu=True,
    names=Names(
        frame=pattern(r"^<built-in function collect>", r"^gc\.py"),
        op=op_names.is_collection,
    ),
    look=Look("gc", "diagonal", "Python's collector, automatic or called"),
    span=spans.COLLECTION,
    limit="bound by garbage collection",
    verdict="Python's garbage collector is the bottleneck.",
    may_pass=True,
    rules=("PY001",),
    slow_step_rules=("PY001",),
    advice="Freeze long-lived objects and collect at steps you choose: gc.freeze(), gc.collect().",
    straggler="Python's garbage collector: freeze objects and collect at the same step on all ranks",
)
STARTUP = Cause(
    key="startup",
    label="Starting up (context, libraries)",
    meaning="The driver creates its context, or a library its handles.",
    names=Names(),  # facts.py finds it by what happens
    look=Look("startup", "cross", "once, at the start of a process"),
    limit="bound by start-up",
    verdict="This is a cold start: the time goes into creating the context and loading libraries.",
    rules=(),
    advice=None,
    straggler=None,
)
ALLOCATION = Cause(
    key="allocation",
    label="Allocating device memory",
    meaning="The allocator asks the driver for memory of the device, or gives it back.",
    names=Names(runtime=runtime_calls.is_device_allocation),
    look=Look("driver", "horizontal", "calls of the driver's allocator"),
    limit="allocation-bound",
    verdict="Allocating device memory is the bottleneck.",
    may_pass=True,
    rules=("MM003", "MM002"),
    advice="Keep shapes the same, so that the allocator needs no memory from the driver.",
    straggler="its memory, which may be fuller than on the other ranks",
)
PINNED_ALLOCATION = Cause(
    key="pinned_allocation",
    label="Allocating pinned memory",
    meaning="The thread that launches asks the driver for pinned memory of the host, or gives it back.",
    names=Names(runtime=runtime_calls.is_pinned_allocation),
    look=Look("pinned", "dots", "page-locked memory of the host"),
    limit="bound by pinning memory",
    verdict="Allocating pinned host memory is the bottleneck.",
    may_pass=True,
    rules=("MM003",),
    advice="Let the loader pin the batches, or reuse one pinned buffer.",
    straggler="what only that rank pins",
)
MODULE_LOAD = Cause(
    key="module_load",
    label="Loading kernels (first calls)",
    meaning="The driver loads the code of kernels that run for the first time.",
    names=Names(runtime=runtime_calls.is_module_load),
    look=Look("modules", "vertical", "kernels loaded on first use"),
    limit="bound by kernel loading",
    verdict="First calls and kernel loading are the bottleneck.",
    rules=("LB005",),
    slow_step_rules=("LB005",),
    advice="Warm up all shapes before the loop: the first call of a kernel loads its code.",
    straggler=None,
)
CPU_OPTIMIZER = Cause(
    key="cpu_optimizer",
    label="Optimizer on the CPU",
    meaning="`Optimizer.step` runs and launches no kernel: the states of the optimizer are kept on the host.",
    names=Names(),  # host_activity.py finds it by what happens
    look=Look("update", "diagonal", "an Optimizer.step without kernels"),
    span=spans.UPDATE,
    limit="bound by the optimizer on the CPU",
    verdict="The optimizer runs on the CPU: that is the bottleneck.",
    rules=("OP004",),
    advice=None,
    straggler="its CPU: cores and memory that the optimizer shares with other processes",
)
HOST_SYNC = Cause(
    key="host_sync",
    label="Host sync (waiting for the GPU)",
    meaning="The host waits for the GPU (`.item()`, `.cpu()`, `synchronize()`), or launches again after such a wait.",
    names=Names(runtime=runtime_calls.is_blocking_sync),
    look=Look("sync", "horizontal", "after .item(), .cpu()"),
    span=spans.WAIT,
    limit="sync-bound",
    verdict="Host syncs are the bottleneck: each one drains the GPU's queue.",
    may_pass=True,
    rules=("HS001", "HS002", "HS003", "HS004", "HS005", "HS006", "LG002", "DL003"),
    advice="Read results from the GPU less often.",
    straggler="what only that rank reads from the GPU",
)
COMPILE = Cause(
    key="compile",
    label="Compiling",
    meaning="A compiler makes code: torch.compile, Triton, TorchScript or a C++ extension.",
    on_cpu=True,
    names=Names(
        frame=pattern(
            LIBRARY + r"torch/_dynamo/convert_frame\.py\(\d+\): _?compile",
            LIBRARY + r"torch/_inductor/.*: compile",
            LIBRARY + r"triton/compiler/.*: compile",
            LIBRARY + r"triton/runtime/jit\.py\(\d+\): _do_compile",
            LIBRARY + r"torch/jit/_(?:script|trace)\.py\(\d+\): (?:script|trace|trace_module)$",
            LIBRARY + r"torch/utils/cpp_extension\.py\(\d+\): (?:load|load_inline|_jit_compile)$",
        ),
        annotation=torch_compile.is_compile,
        op=torch_compile.is_compile,
    ),
    look=Look("compile", "diagonal", "inside the step"),
    limit="bound by compilation",
    verdict="Compilation is the bottleneck.",
    rules=("LB004",),
    slow_step_rules=("LB004",),
    advice="Mark varying dimensions as dynamic, so that nothing is recompiled.",
    straggler=None,
)
POST_PROCESSING = Cause(
    key="post_processing",
    label="Post-processing",
    meaning="Functions with such a name turn results into boxes, text or files.",
    on_cpu=True,
    names=Names(
        frame=pattern(r": _?post_?process(?:_\w+)?$", r"(?:^|/)post_?process\w*\.py\("),
        annotation=pattern(r"(?i)\bpost_?process\w*\b"),
    ),
    look=Look("output", "dots", "results turned into boxes, text, files"),
    span=spans.INPUT,
    limit="bound by post-processing",
    verdict="Post-processing on the host is the bottleneck.",
    rules=(),
    advice=None,
    straggler=None,
)
INPUT_WORK = Cause(
    key="input_work",
    label="Preprocessing outside the loader",
    meaning="The loop itself decodes, tokenizes or collates.",
    on_cpu=True,
    names=Names(
        frame=pattern(
            LIBRARY + r"(?:PIL|cv2|albumentations|imgaug|av|decord|librosa|soundfile)/",
            LIBRARY + r"(?:tokenizers|datasets|webdataset|lmdb|h5py)/",
            LIBRARY + r"torchvision/(?:transforms|io|datasets)/",
            LIBRARY + r"torchaudio/",
            LIBRARY + r"transformers/(?:\w+/)*(?:image_processing|image_transforms|feature_extraction|tokenization)",
            LIBRARY + r"transformers/(?:\w+/)*(?:audio_utils|video_utils)",
            LIBRARY + r"diffusers/(?:image|video)_processor",
            r": _?pre_?process(?:_\w+)?$",
            r": _?(?:tokeni[sz]e|collate|augment)(?:_\w+|r)?$",
            r": _?(?:decode|read|load)_(?:image|jpeg|video|audio|batch|sample|frame)s?(?:_\w+)?$",
            r": \w*collate_fn$",
            r"(?:^|/)(?:tokeni[sz]er|tokeni[sz]ation|pre_?process\w*|augment\w*|collat\w+)\.py\(" + _NO_MODEL,
        ),
        annotation=pattern(r"(?i)\b(?:preprocess\w*|tokeni[sz]\w*|collate|augment\w*|decode_(?:image|video|audio))\b"),
    ),
    look=Look("input", "cross", "decoding, tokenizing, transforms"),
    span=spans.INPUT,
    limit="input-bound",
    verdict="Preprocessing outside the data loader is the bottleneck.",
    may_pass=True,
    rules=("DL002",),
    refill_rule="DL002",
    advice="Move the input work into the loader's workers.",
    straggler="its input work outside the data loader",
)
# Programs and sleeps of the work above are part of that work.
PROGRAM = Cause(
    key="program",
    label="Running other programs",
    meaning="The thread that launches is in `subprocess` or `os.system`.",
    on_cpu=True,
    names=Names(
        frame=pattern(
            LIBRARY + r"subprocess\.py\(\d+\): (?:__init__|run|(?:check_)?call|\w+output|communicate|wait)$",
            r"^<built-in function (?:system|fork_exec|posix_spawnp?)>",
        )
    ),
    look=Look("program", "cross", "started with subprocess or os.system"),
    limit="bound by other programs",
    verdict="Other programs that the steps start are the bottleneck.",
    may_pass=True,
    rules=("PY004",),
    refill_rule="PY004",
    advice="Start other programs less often, or from another thread.",
    straggler=None,
)
SLEEP = Cause(
    key="sleep",
    label="Sleeping",
    meaning="The thread that launches is in `time.sleep`.",
    on_cpu=True,
    names=Names(frame=pattern(r"^<built-in function sleep>")),
    look=Look("sleep", "horizontal", "in time.sleep"),
    span=spans.WAIT,
    limit="bound by time.sleep",
    verdict="The host sleeps in time.sleep: that is the bottleneck.",
    may_pass=True,
    rules=("PY004",),
    refill_rule="PY004",
    advice="Find what the step sleeps for: it calls time.sleep.",
    straggler="where only that rank calls time.sleep",
)
THREAD_WAIT = Cause(
    key="thread_wait",
    label="Waiting for another thread",
    meaning="The thread that launches waits for a lock: a queue, an event, a thread or a future.",
    on_cpu=True,
    # A lock of a queue, an event, a thread that is joined, or a future.
    names=Names(
        frame=pattern(r"^<(?:built-in method acquire of _thread\.R?[lL]ock|method 'acquire' of '_thread\.R?[lL]ock')")
    ),
    look=Look("thread", "cross", "queue.get, join, result"),
    span=spans.WAIT,
    limit="bound by another thread",
    verdict="Another thread, for which the step waits, is the bottleneck.",
    may_pass=True,
    rules=("PY004",),
    advice="Find why the other thread is late in these steps.",
    straggler="which thread that rank waits for",
)
OS_WAIT = Cause(
    key="os_wait",
    label="Waiting in the operating system",
    meaning="The thread that launches waits in a call of the operating system, as Nsight Systems records it.",
    names=Names(runtime=is_os_wait),
    look=Look("os", "vertical", "poll, sem_wait, read"),
    span=spans.WAIT,
    limit="bound by waits in the operating system",
    verdict="Waits in the operating system (other threads, processes, files) are the bottleneck.",
    rules=(),
    advice="Find what the thread waits for: another thread or process, a lock, a file or the network.",
    straggler=None,
)
LAUNCH = Cause(
    key="launch",
    label="Launching GPU work",
    host_label="Operators on the host",
    meaning="Short gaps, while the host runs operators and launch calls: it is slower than the GPU.",
    names=Names(op=lambda _: True, runtime=lambda _: True),
    host_work="dispatch",
    look=Look("launch", "vertical", "the GPU waits for its next kernel"),
    span=spans.CALL,
    limit="launch-bound",
    verdict=_LAUNCH_BOUND,
    rules=_LAUNCH_RULES,
    advice=None,
    straggler="its CPU: binding to cores and memory, other processes, a lower clock",
)
OPTIMIZER = Cause(
    key="optimizer",
    label="Optimizer",
    meaning="`Optimizer.step` and `zero_grad` run.",
    on_gpu=False,
    on_cpu=True,
    busy=True,
    look=Look("copy", ""),
    span=spans.UPDATE,
    limit="bound by the optimizer",
    verdict="",
    rules=(),
    advice=None,
    straggler=None,
)
BACKWARD = Cause(
    key="backward",
    label="Backward",
    meaning="The nodes of the backward pass run.",
    on_gpu=False,
    on_cpu=True,
    busy=True,
    look=Look("backward", ""),
    span=spans.BACKWARD_PASS,
    limit="bound by the backward pass",
    verdict="",
    rules=(),
    advice=None,
    straggler=None,
)
FORWARD = Cause(
    key="forward",
    label="Forward and other operators",
    meaning="Any other operator runs.",
    on_gpu=False,
    on_cpu=True,
    busy=True,
    look=Look("compute", ""),
    span=spans.FORWARD_PASS,
    limit="bound by the forward pass",
    verdict="",
    rules=(),
    advice=None,
    straggler=None,
)
COMMUNICATION = Cause(
    key="communication",
    label="Exposed communication",
    host_label="Waiting for communication",
    meaning="A collective runs, and no compute overlaps it.",
    on_cpu=True,
    busy=True,
    look=Look("comm", "", "not overlapped"),
    span=spans.TRANSFER,
    limit="communication-bound",
    verdict="Exposed (non-overlapped) communication takes {share} of {unit}.",
    rules=("CM001", "CM002", "CM003", "CM004", "CM006", "CM011", "CM012"),
    advice="Find the rank that is late in these steps.",
    straggler=None,
)
COPIES = Cause(
    key="copies",
    label="Exposed copies",
    meaning="A copy or memset runs, and no compute or communication overlaps it.",
    busy=True,
    look=Look("copy", "", "not overlapped"),
    span=spans.COPY,
    limit="copy-bound",
    verdict="Exposed (non-overlapped) copies take {share} of {unit}.",
    rules=("DL003", "DL004", "HS002"),
    advice=None,
    straggler=None,
)
PYTHON = Cause(
    key="python",
    label="Running Python between launches",
    host_label="Other Python",
    meaning="Short gaps, while the host runs Python. On a CPU-only run, all Python that has no row of its own.",
    on_cpu=True,
    names=Names(frame=lambda _: True),
    host_work="dispatch",
    look=Look("python", "horizontal", "Python code that no other part names"),
    span=spans.PYTHON_CODE,
    limit="Python-bound",
    verdict=_LAUNCH_BOUND,
    rules=_LAUNCH_RULES,
    advice=None,
    straggler="what only that rank computes in Python",
)
# Only its length tells the following work from dispatch: see attribution/host_flow.py.
CPU_OP = Cause(
    key="cpu_op",
    label="CPU operators",
    host_label="CPU operators",
    meaning="Gaps of a millisecond or longer, while operators compute on the CPU.",
    host_work="long",
    look=Look("host", "diagonal", "operators that launch nothing"),
    limit="bound by CPU operators",
    verdict="Operators that compute on the CPU are the bottleneck.",
    may_pass=True,
    rules=("LB007",),
    advice=None,
    straggler=None,
)
SMALL_OPS = Cause(
    key="small_ops",
    label="Small operators without launches",
    host_label="Small operators on the host",
    meaning="Gaps of a millisecond or longer, while many operators run that launch nothing, such as views.",
    host_work="long",
    look=Look("views", "dots", "such as views"),
    limit="bound by small operators",
    verdict="Host-bound: many small operators run that launch nothing.",
    rules=_LAUNCH_RULES,
    advice=None,
    straggler=None,
)
LONG_PYTHON = Cause(
    key="long_python",
    label="Python without launches",
    host_label="Long Python code",
    meaning="Gaps of a millisecond or longer, and functions of 0.2 ms or longer without operators, while Python runs.",
    host_work="long",
    look=Look("function", "cross", "in long gaps or functions"),
    span=spans.PYTHON_CODE,
    limit="Python-bound",
    verdict="Python-bound: long Python code runs between the launches.",
    rules=("LB006",),
    advice=None,
    straggler=None,
)
HOST_COPY = Cause(
    key="host_copy",
    label="Copying pageable memory on the host",
    meaning="A millisecond or longer inside one call that copies to the GPU.",
    host_work="long",
    look=Look("upload", "horizontal", "in calls that copy to the GPU"),
    span=spans.COPY,
    limit="copy-bound",
    verdict="Copies from pageable memory are the bottleneck: the host copies them first.",
    may_pass=True,
    rules=("DL003",),
    advice="Copy from pinned memory without blocking: pin_memory=True and .to(device, non_blocking=True).",
    straggler=None,
)
UNRECORDED = Cause(
    key="unrecorded",
    label="Nothing recorded on the host",
    meaning="Gaps of a millisecond or longer that no event of the host explains.",
    host_work="long",
    look=Look("unrecorded", "cross", "long gaps that no recorded event explains"),
    limit=None,
    verdict="Nothing is recorded on the host during most of that time, so the cause is unknown.",
    rules=(),
    advice=None,
    straggler=None,
)
UNTRACED_PYTHON = Cause(
    key="untraced_python",
    label="Untraced Python",
    meaning="A long stretch of Python without any event.",
    look=Look("untraced", "dots", "often garbage collection"),
    limit="Python-bound",
    verdict="Python records no events for long stretches, as it does during garbage collection.",
    rules=("PY001",),
    advice=None,
    straggler=None,
)
UNTRACED = Cause(
    key="untraced",
    label="Untraced between launches",
    host_label="Untraced",
    meaning="Short gaps, while the host shows no event. Without stacks, this is Python.",
    on_cpu=True,
    host_work="dispatch",
    look=Look("other", "dots", "no event on the host; without stacks, this is Python"),
    limit=None,
    verdict=_LAUNCH_BOUND,
    rules=(),
    advice=None,
    straggler=None,
)
GRAPH_CALLBACK = Cause(
    key="graph_callback",
    label="CPU callback in a graph",
    meaning="The next kernel of a replayed graph waits for a function on the CPU, which is a node of that graph.",
    look=Look("callback", "dots", "a host node between two kernels"),
    span=spans.WAIT,
    limit="bound by CPU callbacks in graphs",
    verdict="CPU callbacks inside replayed graphs are the bottleneck: the next kernels wait for them.",
    rules=(),
    advice="Move the callback out of the graph.",
    straggler="the CPU callbacks inside its graphs",
)
QUEUED = Cause(
    key="queued",
    label="Idle with work queued",
    meaning="The next kernel was launched in time: another stream, copy or process holds it up, not the host.",
    look=Look("queue", "cross", "launched in time: the host is not the cause"),
    limit="stalled with work queued",
    verdict="But its next work was already queued; the trace does not show what held it back.",
    rules=(),
    advice=None,
    straggler="its GPU: another process on it, throttling",
)

CAUSES = tuple(row for row in list(globals().values()) if isinstance(row, Cause))
BUSY_PARTS = tuple(cause for cause in CAUSES if cause.on_gpu and cause.busy)
IDLE_CAUSES = tuple(cause for cause in CAUSES if cause.on_gpu and not cause.busy)
PHASES = tuple(cause for cause in CAUSES if cause.on_cpu)  # of the main thread in a CPU-only run
MODEL_WORK = tuple(cause for cause in PHASES if cause.busy and cause is not COMMUNICATION)
HOST_ACTIVITIES = tuple(cause for cause in CAUSES if cause.names is not None)
DISPATCH = tuple(cause for cause in CAUSES if cause.host_work == "dispatch")  # from one launch to the next
LONG_WORK = tuple(cause for cause in CAUSES if cause.host_work == "long")
CAUSE_OF_KEY = {cause.key: cause for cause in CAUSES}
