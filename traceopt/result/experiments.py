"""Experiments: small pieces of work whose time on a device tells what a fix saves there.

A rule states them with its saving; `traceopt run` and `traceopt measure` run them, on a GPU or a CPU. Two of them are
always compared, the work as it is and as it would be, so clocks and caches that differ from the recording cancel.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from traceopt.result.field_notes import note

MOST_PARAMETERS = 10_000
MOST_ELEMENTS = 1 << 34  # of one tensor: a file that asks for more is refused

Count = Annotated[int, Meta(ge=1, le=MOST_ELEMENTS)]
Counts = Annotated[tuple[Count, ...], Meta(max_length=8)]
Amounts = Annotated[tuple[Annotated[int, Meta(ge=0, le=MOST_ELEMENTS)], ...], Meta(max_length=8)]
DTYPES = ("fp64", "fp32", "tf32", "bf16", "fp16")
PairKind = Literal["squared", "euclidean", "manhattan", "product", "cosine"]
Dtype = Annotated[str, Meta(pattern=f"^({'|'.join(DTYPES)})$")]


class Matmul(Struct, frozen=True, tag="matmul"):
    """Multiplies `batch` pairs of an (m, k) and a (k, n) matrix."""

    m: Count
    n: Count
    k: Count
    batch: Count
    dtype: Annotated[Dtype, note("of both factors and the result; tf32: stored as fp32")]
    from_fp32: Annotated[bool, note("the factors are stored in fp32 and cast first, as under autocast")] = False


class Convolution(Struct, frozen=True, tag="convolution"):
    """Convolves a batch, and computes both gradients if `backward`."""

    input: Counts
    weight: Counts
    stride: Counts
    padding: Amounts
    dilation: Counts
    groups: Count
    dtype: Dtype
    channels_last: bool = False
    backward: bool = False


class Attention(Struct, frozen=True, tag="attention"):
    """Attention between tokens, and its gradients if `backward`. `fused`: by scaled_dot_product_attention, else by a
    matmul, a softmax and a matmul.
    """

    batch: Count
    heads: Count
    queries: Count
    keys: Count
    head_size: Count
    dtype: Dtype
    causal: bool = False
    fused: bool = True
    backward: bool = False


class OptimizerStep(Struct, frozen=True, tag="optimizer_step"):
    """Updates parameters once. `parameters`: how many elements, and how many parameters have so many."""

    optimizer: Annotated[str, note("class of torch.optim"), Meta(pattern="^[A-Za-z]{1,20}$")]
    parameters: Annotated[tuple[tuple[Count, Annotated[int, Meta(ge=1, le=MOST_PARAMETERS)]], ...], Meta(max_length=64)]
    implementation: Literal["single", "foreach", "fused"]


class RowGradient(Struct, frozen=True, tag="row_gradient"):
    """Adds up the gradients of rows that were picked at random from a table: the backward pass of picking them."""

    table_rows: Count
    row_size: Annotated[Count, note("elements of a row")]
    picked_rows: Count
    dtype: Dtype
    picked_by: Literal["embedding", "indexing", "index_select"]


class Lookup(Struct, frozen=True, tag="lookup"):
    """Looks up rows of each table, picked at random, and computes the gradients of the tables."""

    tables: Annotated[int, Meta(ge=1, le=MOST_PARAMETERS)]
    table_rows: Count
    row_size: Annotated[Count, note("elements of a row")]
    picked_rows: Annotated[Count, note("of each table")]
    dtype: Dtype
    sparse: Annotated[bool, note("the gradients have only the rows that were looked up")] = False
    updated: Annotated[bool, note("the gradients are added to the tables, as by SGD")] = False


class AllPairs(Struct, frozen=True, tag="all_pairs"):
    """Computes a number for each pair of vectors from two sets, and the gradients of both if `backward`."""

    batch: Count
    left: Annotated[Count, note("vectors of one set")]
    right: Annotated[Count, note("vectors of the other set")]
    size: Annotated[Count, note("elements of a vector")]
    kind: PairKind
    dtype: Dtype
    by_matmul: Annotated[bool, note("no tensor has a vector for each pair")] = False
    backward: bool = False


class VocabularyLoss(Struct, frozen=True, tag="vocabulary_loss"):
    """The cross entropy of tokens over words, from their hidden states, and all gradients."""

    tokens: Count
    width: Annotated[Count, note("elements of a hidden state")]
    words: Count
    dtype: Dtype
    chunk: Annotated[Count, note("tokens whose logits exist at a time; fewer than all are computed twice")]


Experiment = Matmul | Convolution | Attention | OptimizerStep | RowGradient | Lookup | AllPairs | VocabularyLoss


class Comparison(Struct, frozen=True):
    """The same work in two ways."""

    before: Annotated[Experiment, note("as it is in the recording")]
    after: Annotated[Experiment, note("as it is with the fix")]


class Compared(Struct, frozen=True, tag="compared"):
    """What both ways took: they ran in turn, so that what disturbs the machine meanwhile disturbs both."""

    comparison: Comparison
    before_ns: Annotated[float, Meta(gt=0, le=1e12)]
    after_ns: Annotated[float, Meta(gt=0, le=1e12)]
    spread: Annotated[float, Meta(ge=0, le=1), note("half of the middle half of the rounds' ratios", "share")]

    @property
    def speedup(self) -> float:
        """How many times as fast the work is with the fix."""
        return self.before_ns / self.after_ns


class Timed(Struct, frozen=True):
    """What work took once."""

    experiment: Experiment
    ns: Annotated[float, Meta(gt=0, le=1e12)]


class Failure(Struct, frozen=True, tag="failure"):
    """A comparison that could not be made, and why."""

    comparison: Comparison
    why: str


Answer = Compared | Failure


class MeasuringDevice(Struct, frozen=True, tag="device"):
    """Where experiments run: results hold for another run with the same. None: unknown, or not on this device."""

    name: str
    torch: str
    runtime: Annotated[str | None, note("version of CUDA or ROCm")] = None
    driver: str | None = None
    threads: Annotated[int | None, note("of each operator on the CPU")] = None


class Rates(Struct, frozen=True, tag_field="traceopt_rates", tag=1):
    """The file of measured experiments, beside a trace."""

    device: MeasuringDevice
    compared: tuple[Compared, ...] = ()
    failures: tuple[Failure, ...] = ()
