"""Stored keys and values in kernels: the rule of `torch_ops.encoding`, bit by bit.

Codes are bytes here, whatever type the pool has: devices before sm_89 do not know e4m3.
"""

import triton
import triton.language as tl

PLAIN: tl.constexpr = tl.constexpr(0)
"""Kinds of `encode` and `decode`: as it comes."""
E4M3: tl.constexpr = tl.constexpr(1)
E5M2: tl.constexpr = tl.constexpr(2)
INT8: tl.constexpr = tl.constexpr(3)
FROM_E4M3: tl.constexpr = tl.constexpr("""{
.reg .b32 sorted;
.reg .b16 first, second;
prmt.b32 sorted, $2, 0, 0x3120;
mov.b32 {first, second}, sorted;
cvt.rn.f16x2.e4m3x2 $0, first;
cvt.rn.f16x2.e4m3x2 $1, second;
}""")
"""Of each half of $2 the low byte goes to a half of $0, the high byte to a half of $1."""
FROM_E5M2: tl.constexpr = tl.constexpr("""{
prmt.b32 $0, $2, 0, 0x2404;
and.b32 $1, $2, 0xFF00FF00;
}""")
"""It is the upper half of a float16."""
FROM_INT8: tl.constexpr = tl.constexpr("""{
.reg .b32 shifted, taken;
mov.b32 taken, 0xE480E480;
xor.b32 shifted, $2, 0x80808080;
prmt.b32 $0, shifted, 0x64646464, 0x4240;
prmt.b32 $1, shifted, 0x64646464, 0x4341;
add.rn.f16x2 $0, $0, taken;
add.rn.f16x2 $1, $1, taken;
}""")
"""The low byte of a float16 from 1024 on counts ones; then 1024 + 128 are taken off again."""
FROM_E4M3_BITS: tl.constexpr = tl.constexpr("""{
.reg .b32 size, carry, factor;
mov.b32 factor, 0x5C005C00;
prmt.b32 $0, $2, 0, 0x2404;
shr.b32 size, $0, 1;
and.b32 size, size, 0x3F803F80;
add.u32 carry, size, 0x00800080;
and.b32 carry, carry, 0x40004000;
and.b32 $0, $0, 0x80008000;
or.b32 $0, $0, size;
or.b32 $0, $0, carry;
shr.b32 size, $2, 1;
and.b32 size, size, 0x3F803F80;
add.u32 carry, size, 0x00800080;
and.b32 carry, carry, 0x40004000;
and.b32 $1, $2, 0x80008000;
or.b32 $1, $1, size;
or.b32 $1, $1, carry;
mul.rn.f16x2 $0, $0, factor;
mul.rn.f16x2 $1, $1, factor;
}""")
"""Both types have the same order of fields; 8 is the difference of the biases. Where all bits but
the sign are set, which is no number, one more carries into the last bit of the exponent."""


@triton.jit
def encode(x, scale, KIND: tl.constexpr):
    """What is stored of float32 `x`: bytes (uint8), or `x` itself if KIND is 0.

    scale: float32 that broadcasts to `x`. Quotients are clamped, and rounded to nearest, ties to
    even.
    """
    if KIND == 0:
        code = x
    elif KIND == 3:
        code = _integer_code(tl.div_rn(x, tl.broadcast_to(scale, x.shape)))
    elif KIND == 2:
        code = _float_code(tl.div_rn(x, tl.broadcast_to(scale, x.shape)), 5)
    else:
        code = _float_code(tl.div_rn(x, tl.broadcast_to(scale, x.shape)), 4)
    return code


@triton.jit
def _integer_code(x):
    known = tl.where(x == x, x, 0.0)
    clamped = tl.minimum(tl.maximum(known, -127.0), 127.0)
    # Of floats near 1.5 * 2**23 the last bit is worth 1: the sum is rounded, its low byte the code.
    return (clamped + 12582912.0).to(tl.int32, bitcast=True).to(tl.uint8)


@triton.jit
def _float_code(x, EXPONENT: tl.constexpr):
    """EXPONENT: bits of it; the mantissa has the other bits but the sign."""
    DROPPED: tl.constexpr = 16 + EXPONENT
    BIAS: tl.constexpr = 2 ** (EXPONENT - 1) - 1
    LIMIT: tl.constexpr = 0x43E00000 if EXPONENT == 4 else 0x47600000
    # The float whose last bit is worth as much as the smallest code.
    STEP: tl.constexpr = 16384.0 if EXPONENT == 4 else 128.0
    bits = x.to(tl.int32, bitcast=True)
    size = bits & 0x7FFFFFFF
    unknown = size > 0x7F800000
    size = tl.minimum(size, LIMIT)
    tie = (size >> DROPPED) & 1
    normal = (size + (1 << (DROPPED - 1)) - 1 + tie) >> DROPPED
    normal -= (127 - BIAS) << (23 - DROPPED)
    sum_of_small = size.to(tl.float32, bitcast=True) + STEP
    small = sum_of_small.to(tl.int32, bitcast=True) & 0xFF
    code = tl.where(size >= ((128 - BIAS) << 23), normal, small)
    code = tl.where(unknown, 0x7F, code)
    return (code | ((bits >> 24) & 0x80)).to(tl.uint8)


@triton.jit
def decode(stored, KIND: tl.constexpr, NATIVE: tl.constexpr):
    """Bytes as float16, exactly and without the scale; `stored` itself if KIND is 0.

    NATIVE: whether the device knows e4m3 (sm_89 and later).
    """
    if KIND == 0:
        value = stored
    elif KIND == 3:
        value = stored.to(tl.int8, bitcast=True).to(tl.float16)
    elif KIND == 2:
        value = (stored.to(tl.uint16) << 8).to(tl.float16, bitcast=True)
    elif NATIVE:
        value = stored.to(tl.float8e4nv, bitcast=True).to(tl.float16)
    else:
        # Both types have the same order of fields; 8 is the difference of the biases.
        wide = stored.to(tl.uint16)
        halves = ((wide & 0x80) << 8) | ((wide & 0x7F) << 7)
        value = halves.to(tl.float16, bitcast=True) * 256.0
        value = tl.where((wide & 0x7F) == 0x7F, float("nan"), value)
    return value


@triton.jit
def decode_pairs(pairs, KIND: tl.constexpr, ASSEMBLY: tl.constexpr):
    """Two codes side by side (int16) as two tensors of float16: the first ones, the second ones.

    So nothing but the registers sees single bytes, which shared memory is slow with. ASSEMBLY: the
    compute capability whose instructions may be used, times ten; 0 = none, as in the interpreter.
    """
    if ASSEMBLY == 0:
        first = decode((pairs & 0xFF).to(tl.uint8), KIND, False)
        second = decode(((pairs >> 8) & 0xFF).to(tl.uint8), KIND, False)
    elif KIND == 3:
        first, second = _split_pairs(pairs, FROM_INT8)
    elif KIND == 2:
        first, second = _split_pairs(pairs, FROM_E5M2)
    elif ASSEMBLY >= 89:
        first, second = _split_pairs(pairs, FROM_E4M3)
    else:
        first, second = _split_pairs(pairs, FROM_E4M3_BITS)
    return first, second


@triton.jit
def _split_pairs(pairs, ASSEMBLY: tl.constexpr):
    """ASSEMBLY: of two pairs in one register, to two registers of two float16 each."""
    return tl.inline_asm_elementwise(
        ASSEMBLY, "=&r,=&r,r", [pairs], dtype=(tl.float16, tl.float16), is_pure=True, pack=2
    )
