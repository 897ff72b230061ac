"""TC001: matmuls and convolutions run in FP32 or TF32 on a device that multiplies faster in 16 bits."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.work.cpu_work import CpuOperator
from traceopt.rules import (
    TENSOR_CORE,
    TF32,
    Effort,
    Facts,
    Findings,
    Fix,
    Former,
    Risk,
    Rule,
    Wrap,
    each_step,
    kernel_evidence,
    ms,
    percent,
    the_step,
    threshold,
    within,
)
from traceopt.rules.savings.work.cpu_bfloat16 import bfloat16_price, bfloat16_speedup
from traceopt.rules.savings.work.cpu_experiments import measured_operators, measured_price, under_autocast
from traceopt.rules.savings.work.cpu_operators import operator_evidence, operators_ns
from traceopt.rules.savings.work.precision import (
    Wide,
    fp32_work,
    mixed_share,
    narrow_saving,
    needs_precision,
    tf32_work,
    with_casts_of_autocast,
)

CPU_AUTOCAST, CPU_AUTOCAST_TO_INFER = (
    Wrap("torch.autocast", body, {"device_type": '"cpu"', "dtype": "torch.bfloat16"})
    for body in ("loss = model(inputs, labels)", "outputs = model(inputs)")
)
AUTOCAST_TO_TRAIN_ON_CPU = "Run the forward pass under autocast in bfloat16. It needs no gradient scaler."
WITHOUT_ATTENTION = (
    " Keep attention in FP32, with inputs in FP32: its kernel for the CPU may be several times as slow in bfloat16."
)
ATTENTION_IN_FP32 = """with torch.autocast("cpu", enabled=False):  # in the model
    y = F.scaled_dot_product_attention(q.float(), k.float(), v.float())"""
THIS_PART_TOO = Fix(
    "Run this part under autocast in bfloat16 as well, or, if nothing trains it, load its weights in bfloat16. It may "
    "be in FP32 on purpose: some VAEs overflow in float16, but not in bfloat16.",
    "vae = vae.to(torch.bfloat16)  # the part of the lines above",
)
AUTOCAST_ON_CPU = "Run the model under autocast in bfloat16, or load its weights in bfloat16."


class Fp32Matmul(Rule):
    """Measures the GPU time of matmuls, convolutions and attention in FP32 or TF32 on a device with Tensor Cores. A run
    that does a good part of such work in 16 or 8 bits uses mixed precision already: there, only a large part in TF32 is
    reported (a VAE in FP32 beside a model in 16 bits). In a run without a GPU: the time of FP32 matmuls on a CPU that
    has instructions for bfloat16 (AMX, AVX512_BF16, Arm BF16).

    Why it costs: FP32 runs on the ordinary units at a fraction of the rate: 15.7 instead of 125 TFLOP/s on a V100, 19.5
    instead of 312 on an A100. TF32 uses Tensor Cores at half of their rate in 16 bits, and its tensors take twice the
    memory. On a CPU, the instructions for bfloat16 multiply several times as many numbers at a time, and the numbers
    take half of the memory.

    How to fix: run the forward pass under autocast.

        with torch.autocast("cuda", dtype=torch.bfloat16):   # Ampere and later
            loss = model(inputs, labels)
        loss.backward()

        with torch.autocast("cpu", dtype=torch.bfloat16):    # bfloat16 needs no gradient scaler
            loss = model(inputs, labels)

    On Volta and Turing use `torch.float16` with `torch.amp.GradScaler`. For convolutions add
    `model.to(memory_format=torch.channels_last)`. In inference, load the weights themselves in 16 bits:
    `model.to(torch.bfloat16)`. On a CPU, `torch.set_float32_matmul_precision("medium")` lets oneDNN round the factors
    of FP32 matmuls to bfloat16 by itself. It is one line and gains less, because it converts at each call.

    When it is wrong: the estimate is a model of kernels, not of your run. Memory-bound matmuls gain less, large ones
    more, and the step gets faster only as far as the host keeps up. A part of a mixed run may be in FP32 on purpose:
    the VAE of some diffusion models overflows in float16, though not in bfloat16. The time of autocast's casts is
    subtracted, at the bandwidth of the memory. The low end of the saving also subtracts the host's time to launch them,
    which matters where the GPU waits for the host or for data. Numerics change; check the loss.

    On a CPU the gain follows from the rates that `traceopt run` measured after the run, for square matrices; without
    them the finding has no saving. Matmuls with few columns gain nothing there, because autocast converts both factors,
    and the next operator may convert the result. These conversions are subtracted, at the rate at which the CPU copies
    memory; if they may take all of the gain, there is no finding. Operators between the matmuls may become slower in
    bfloat16: the CPU's kernel of attention took 4.6 times as long (torch 2.13, Intel AMX), which left nothing of the
    gain. Convolutions may gain as well, but are not counted. Where solvers and decompositions (torch.linalg) take a
    tenth of the step, there is no finding: rounded products can make a matrix singular.

    Sources: NVIDIA V100 and A100 datasheets; PyTorch documentation, "Automatic Mixed Precision" and "CPU Op-Specific
    Behavior"; Intel, "Intel 64 and IA-32 Architectures Optimization Reference Manual", chapter on AMX.
    """

    code = "TC001"
    name = "fp32-matmul"
    title = "Use mixed precision for matmuls and convolutions"
    family = "precision"
    risk = Risk.NUMERICS
    confidence = "medium"
    requires = ("gpu",)
    requires_on_cpu = ("shapes", "settings")
    former = (
        Former(
            "CP001", "cpu-bfloat16", {"min_share": "min_cpu_share", "low": "low_on_cpu", "expected": "expected_on_cpu"}
        ),
    )

    min_share: float = threshold(0.05, "smallest FP32 matmul time, as a share of the step, to report")
    max_used_share: float = threshold(0.10, "16-bit Tensor Core share of matmul time that makes a run mixed")
    low_speedup: float = threshold(1.5, "speed-up of the kernels, low")
    speedup: float = threshold(2.5, "speed-up of the kernels, expected")
    high_speedup: float = threshold(8.0, "speed-up of the kernels, high (at most the ratio of the peaks)")
    low_tf32_speedup: float = threshold(1.2, "speed-up of kernels in TF32, low")
    tf32_speedup: float = threshold(1.6, "speed-up of kernels in TF32, expected")
    high_tf32_speedup: float = threshold(2.0, "speed-up of kernels in TF32, high (at most the ratio of the peaks)")
    min_tf32_share: float = threshold(0.2, "smallest time in TF32, of which at most half goes, as a share of the step")
    min_cpu_share: float = threshold(0.10, "smallest time of FP32 matmuls in a CPU-only run, as a share of the step")
    min_peak_share: float = threshold(0.3, "smallest share of the CPU's FP32 peak of a matmul that may become faster")
    min_speedup: float = threshold(1.3, "smallest measured speedup of matmuls in bfloat16 on the CPU to report")
    low_on_cpu: float = threshold(0.5, "share of the CPU's measured gain that matmuls reach, low")
    expected_on_cpu: float = threshold(0.75, "share of the CPU's measured gain that matmuls reach, expected")

    def applies(self, facts: Facts) -> str | None:
        if (reason := needs_precision(facts)) is not None:
            return reason
        if not facts.has_gpu:
            if not facts.captured.environment.cpu.native_bf16:
                return "This CPU has no bfloat16 instructions, or they were not recorded."
            return None if self._cpu_products(facts) else "No FP32 matmuls in this trace."
        if facts.device.arch is None or not facts.device.arch.has_tensor_cores:
            return f"The device is not known to have {TENSOR_CORE}s."
        return None if facts.tensor_core_work.eligible.any() else "No matmuls or convolutions in this trace."

    def check(self, facts: Facts) -> Findings:
        return self._on_gpu(facts) if facts.has_gpu else self._on_cpu(facts)

    def _on_gpu(self, facts: Facts) -> Findings:
        mixed = mixed_share(facts) > self.max_used_share
        candidates = [
            (self.min_tf32_share, Wide(tf32_work(facts), "tf32", self._tf32_speedups)),
            (np.inf if mixed else self.min_share, Wide(fp32_work(facts), "fp32", self._speedups)),
        ]
        count = facts.steps.count
        times = {part.dtype: facts.tensor_core_work.time_ns(part.work) / count for _, part in candidates}
        wide = [part for least, part in candidates if times[part.dtype] >= least * facts.step_ns]
        if not wide:
            return
        arch = facts.device.arch
        bf16 = arch is not None and arch.has_bf16
        price = narrow_saving(facts, wide, "bf16" if bf16 else "fp16", pointwise=0.0 if mixed else 0.5)
        work = np.logical_or.reduce([part.work for part in wide])
        fix = THIS_PART_TOO if mixed else _fix(facts, bf16)
        yield self.finding(
            title="Run all of the model in 16 bits" if mixed else None,
            confidence="low" if mixed else None,
            why=_why(facts, {part.dtype: times[part.dtype] for part in wide}, mixed=mixed),
            saving=price if facts.infers else with_casts_of_autocast(facts, price, work),
            evidence=kernel_evidence(facts, work),
            fix=_without_linear_algebra(fix) if len(facts.linear_algebra) else fix,
        )

    @property
    def _speedups(self) -> tuple[float, float, float]:
        return self.low_speedup, self.speedup, self.high_speedup

    @property
    def _tf32_speedups(self) -> tuple[float, float, float]:
        return self.low_tf32_speedup, self.tf32_speedup, self.high_tf32_speedup

    def _on_cpu(self, facts: Facts) -> Findings:
        products, speedup = self._cpu_products(facts), bfloat16_speedup(facts)
        time_ns = operators_ns(facts, products)
        if time_ns < self.min_cpu_share * facts.step_ns or _rounds_already(facts):
            return
        sizes = measured_operators(facts, products, under_autocast("bf16"))
        speedup = sizes.speedup or speedup
        assumed = bfloat16_price(facts, products, self.low_on_cpu, self.expected_on_cpu)
        price = measured_price(facts, facts.cpu_work.area(products), sizes, assumed)
        if (speedup is not None and speedup < self.min_speedup) or (price is not None and not price.bounds_ns[0]):
            return
        attends = any(operator.is_attention for operator in facts.cpu_work.heavy)
        if price is not None and (attends or sizes.speedup is None):
            caveat = "Attention in bfloat16 may take all of it." if attends else "No matmul of its sizes was measured."
            price = within(facts, price, 0.0, price.high_ns, f"{price.basis} {caveat}")
        measured = f" On this machine, matmuls in bfloat16 are {speedup:.1f} times as fast." if speedup else ""
        yield self.finding(
            title="Use bfloat16 for matmuls on the CPU",
            effort=Effort.ONE_LINE_TESTED,
            risk=Risk.ROUNDING,
            why=(
                f"FP32 matmuls take {ms(time_ns)} of {each_step(facts)}, and this CPU has bfloat16 "
                f"instructions.{measured}"
            ),
            saving=price,
            confidence="low",  # the shares were not measured on many CPUs
            evidence=operator_evidence(facts, products),
            fix=_fix_on_cpu(trains=facts.trains, attends=attends),
        )

    def _cpu_products(self, facts: Facts) -> list[CpuOperator]:
        """The FP32 matmuls, if the peaks are known those near enough to the peak."""
        work = facts.cpu_work
        products = [
            operator
            for operator in work.heavy
            if operator.is_matmul and operator.dtype == "fp32" and not operator.is_attention
        ]
        if work.peaks is None:
            return products
        return [product for product in products if (work.peak_share(product) or 0.0) >= self.min_peak_share]

    def passed(self, facts: Facts) -> str:
        if not facts.has_gpu:
            if _rounds_already(facts):
                return "FP32 matmuls may round to bfloat16 already (float32_matmul_precision is medium)."
            share = operators_ns(facts, self._cpu_products(facts)) / facts.step_ns
            return f"FP32 matmuls that bfloat16 could speed up take {percent(share)} of {the_step(facts)}."
        mixed = mixed_share(facts)
        if mixed > self.max_used_share:
            return f"{TENSOR_CORE}s run {percent(mixed)} of the matmul time in mixed precision."
        share = facts.tensor_core_work.time_ns(fp32_work(facts) | tf32_work(facts)) / facts.steps.window_ns
        return f"Matmuls and convolutions in FP32 and {TF32} take {percent(share)} of {the_step(facts)}."


def _why(facts: Facts, times: dict[str, float], *, mixed: bool) -> str:
    wide = []
    if "fp32" in times:
        wide.append(
            f"{ms(times['fp32'])} of {each_step(facts)} in FP32, without the {TENSOR_CORE}s of the {facts.device.label}"
        )
    if "tf32" in times:
        wide.append(f"{ms(times['tf32'])}{'' if wide else f' of {each_step(facts)}'} in {TF32}")
    why = f"Matmuls, convolutions and attention take {' and '.join(wide)}."
    return f"{why} The rest of such work is in 16 bits, at a higher rate and with half of the memory." if mixed else why


def _rounds_already(facts: Facts) -> bool:
    """Whether oneDNN may round the factors of FP32 matmuls to bfloat16."""
    return facts.captured.environment.matmul_precision == "medium"


def _fix_on_cpu(*, trains: bool, attends: bool) -> Fix:
    """Without a patch for a model with attention: autocast alone may make it slower."""
    text, edit = (AUTOCAST_TO_TRAIN_ON_CPU, CPU_AUTOCAST) if trains else (AUTOCAST_ON_CPU, CPU_AUTOCAST_TO_INFER)
    if attends:
        return Fix(text + WITHOUT_ATTENTION, f"{edit.code}\n\n{ATTENTION_IN_FP32}")
    return Fix(text, edits=[edit])


def _fix(facts: Facts, bf16: bool) -> Fix:
    """Only known inference needs no master weights in FP32."""
    if facts.trains:
        return _autocast(bf16)
    dtype = "bfloat16" if bf16 else "float16"
    return _narrow_weights(dtype) if facts.infers else _forward_pass(dtype)


def _without_linear_algebra(fix: Fix) -> Fix:
    """Solvers and decompositions have no kernels in 16 bits, so that no patch can wrap the whole forward pass."""
    more = (
        " Keep solvers and decompositions (torch.linalg) in FP32, with inputs in FP32: they end in an error in 16 bits."
    )
    return Fix(fix.text + more, fix.code)


def _forward_pass(dtype: str) -> Fix:
    scaler = " If it trains, use a GradScaler." if dtype == "float16" else ""
    return Fix(
        f"Run the forward pass under autocast in {dtype}.{scaler} For convolutions also use channels_last.",
        edits=[_under_autocast("outputs = model(inputs)", dtype)],
    )


def _autocast(bf16: bool) -> Fix:
    forward = _under_autocast("loss = model(inputs, labels)", "bfloat16" if bf16 else "float16")
    return Fix(
        f"Run the forward pass under autocast in {'bfloat16' if bf16 else 'float16 with a GradScaler'}. For "
        "convolutions also use channels_last.",
        edits=[forward],
        code=None
        if bf16
        else f'scaler = torch.amp.GradScaler("cuda")\n{forward.code}\n'
        "scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()",
    )


def _under_autocast(statement: str, dtype: str) -> Wrap:
    return Wrap("torch.autocast", statement, {"device_type": '"cuda"', "dtype": f"torch.{dtype}"})


def _narrow_weights(dtype: str) -> Fix:
    """In inference the weights themselves can be narrow."""
    return Fix(
        f"Load the weights in {dtype}, or run the model under autocast. For convolutions also use channels_last.",
        f"model = model.to(torch.{dtype})",
    )
