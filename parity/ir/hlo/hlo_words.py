"""The vocabulary of HLO text as data: opcodes, element types, attributes that name computations."""

__all__ = ["ASYNC_SUFFIXES", "CALLS", "COLLECTIVES", "ELEMENT_BITS", "OPCODES"]

_OPCODES = """
abs acos acosh add add-dependency after-all all-gather all-reduce all-to-all and asin asinh async atan
atan2 atanh batch-norm-grad batch-norm-inference batch-norm-training bitcast bitcast-convert
block-scaled-dot broadcast call cbrt ceil cholesky clamp collective-broadcast collective-permute compare
complex concatenate conditional constant convert convolution copy cosh cosine count-leading-zeros
custom-call divide domain dot dynamic-reshape dynamic-slice dynamic-update-slice erf exponential
exponential-minus-one fft floor fusion gather get-dimension-size get-tuple-element imag infeed iota
is-finite log log-plus-one logistic map maximum minimum multiply negate not opt-barrier
optimization-barrier or outfeed pad parameter partition-id popcnt power ragged-all-to-all ragged-dot real
recv reduce reduce-precision reduce-scatter reduce-window remainder replica-id reshape reverse rng
rng-bit-generator rng-get-and-update-state round-nearest-afz round-nearest-even rsqrt scaled-dot scan
scatter select select-and-scatter send set-dimension-size shift-left shift-right-arithmetic
shift-right-logical sign sine sinh slice sort sqrt stochastic-convert subtract tan tanh topk transpose
triangular-solve tuple while xor
"""

OPCODES = frozenset(_OPCODES.split())

ASYNC_SUFFIXES = ("-start", "-update", "-done")

COLLECTIVES = frozenset(
    {
        "all-gather",
        "all-reduce",
        "all-to-all",
        "collective-broadcast",
        "collective-permute",
        "ragged-all-to-all",
        "reduce-scatter",
    }
)

CALLS = (
    "calls",
    "to_apply",
    "condition",
    "body",
    "branch_computations",
    "true_computation",
    "false_computation",
    "called_computations",
    "select",
    "scatter",
)

_FLOAT8 = "e3m4 e4m3 e4m3b11fnuz e4m3fn e4m3fnuz e5m2 e5m2fnuz e8m0fnu"

ELEMENT_BITS = {
    "pred": 8,
    "token": 0,
    "opaque": 0,
    "bf16": 16,
    "c64": 64,
    "c128": 128,
    "f4e2m1fn": 4,
    **{f"f8{name}": 8 for name in _FLOAT8.split()},
    **{f"{sign}{bits}": bits for sign in "su" for bits in (1, 2, 4, 8, 16, 32, 64)},
    **{f"f{bits}": bits for bits in (16, 32, 64)},
}
