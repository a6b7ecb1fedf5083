"""From packed words of 16 bits to the values in them.

A word holds VALUES values, the first in its lowest bits: four of 4 bits, or two of 8. The kernel
sees tensors of words, and gets VALUES tensors of the same shape. What comes out is a code less
BASE, which is exact in the type; BASE depends on how codes become floats the cheapest way.
"""

import triton
import triton.language as tl

from jackfield.plugins.kernels.triton.encode_kernel import (
    E4M3,
    FROM_E4M3,
    FROM_E4M3_BITS,
    decode,
)

INT4: tl.constexpr = tl.constexpr(4)
"""Kinds of codes."""
INT8: tl.constexpr = tl.constexpr(8)
FP8: tl.constexpr = tl.constexpr(1)
FOUR_BITS_TO_BF16: tl.constexpr = tl.constexpr("""{
.reg .b32 part;
lop3.b32 $0, $4, 0x000F000F, 0x43004300, 0xEA;
shr.u32 part, $4, 4;
lop3.b32 $1, part, 0x000F000F, 0x43004300, 0xEA;
shr.u32 part, $4, 8;
lop3.b32 $2, part, 0x000F000F, 0x43004300, 0xEA;
shr.u32 part, $4, 12;
lop3.b32 $3, part, 0x000F000F, 0x43004300, 0xEA;
}""")
"""The lowest bit of a bfloat16 from 128 on counts ones; the 128 stay in."""
FOUR_BITS_TO_FP16: tl.constexpr = tl.constexpr("""{
.reg .b32 part, taken, sixteenth, other;
mov.b32 taken, 0xE408E408;
mov.b32 sixteenth, 0x2C002C00;
mov.b32 other, 0xD480D480;
lop3.b32 $0, $4, 0x000F000F, 0x64006400, 0xEA;
add.rn.f16x2 $0, $0, taken;
lop3.b32 $1, $4, 0x00F000F0, 0x64006400, 0xEA;
fma.rn.f16x2 $1, $1, sixteenth, other;
shr.u32 part, $4, 8;
lop3.b32 $2, part, 0x000F000F, 0x64006400, 0xEA;
add.rn.f16x2 $2, $2, taken;
lop3.b32 $3, part, 0x00F000F0, 0x64006400, 0xEA;
fma.rn.f16x2 $3, $3, sixteenth, other;
}""")
"""Of a float16 from 1024 on the same; 1024 + 8 are taken off, of sixteenths 64 + 8."""
BYTES_TO_BF16: tl.constexpr = tl.constexpr("""{
.reg .b32 a, b, c, d, taken;
mov.b32 taken, 0xCB000080;
prmt.b32 a, $2, 0x4B000000, 0x7540;
prmt.b32 b, $2, 0x4B000000, 0x7541;
prmt.b32 c, $2, 0x4B000000, 0x7542;
prmt.b32 d, $2, 0x4B000000, 0x7543;
add.rn.f32 a, a, taken;
add.rn.f32 b, b, taken;
add.rn.f32 c, c, taken;
add.rn.f32 d, d, taken;
prmt.b32 $0, a, c, 0x7632;
prmt.b32 $1, b, d, 0x7632;
}""")
"""Of a float32 from 2^23 on the same; 2^23 + 128 are taken off, and the upper half is exact."""
BYTES_TO_FP16: tl.constexpr = tl.constexpr("""{
.reg .b32 taken;
mov.b32 taken, 0xE480E480;
prmt.b32 $0, $2, 0x64646464, 0x4240;
prmt.b32 $1, $2, 0x64646464, 0x4341;
add.rn.f16x2 $0, $0, taken;
add.rn.f16x2 $1, $1, taken;
}""")
E4M3_TO_BF16: tl.constexpr = tl.constexpr("""{
.reg .b32 part, factor, nothing;
mov.b32 factor, 0x7B807B80;
mov.b32 nothing, 0x80008000;
shl.b32 part, $2, 4;
and.b32 part, part, 0x07F007F0;
shl.b32 $0, $2, 8;
lop3.b32 $0, $0, 0x80008000, part, 0xEA;
fma.rn.bf16x2 $0, $0, factor, nothing;
shr.u32 part, $2, 4;
and.b32 part, part, 0x07F007F0;
lop3.b32 $1, $2, 0x80008000, part, 0xEA;
fma.rn.bf16x2 $1, $1, factor, nothing;
}""")
"""Exponents of bfloat16 are worth 2^120 less. No code is taken as no number."""
ADD_BF16: tl.constexpr = tl.constexpr("""{
.reg .b32 one;
mov.b32 one, 0x3F803F80;
fma.rn.bf16x2 $0, $1, one, $2;
}""")
"""Not all GPUs know sums of bfloat16."""
ADD_FP16: tl.constexpr = tl.constexpr("add.rn.f16x2 $0, $1, $2;")


@triton.jit
def unpack(words, OF: tl.constexpr, KIND: tl.constexpr, BASE: tl.constexpr, ASSEMBLY: tl.constexpr):
    """A tuple of tensors of the type OF. ASSEMBLY: the compute capability whose instructions may be
    used, times ten; 0 = none, as in the interpreter."""
    if ASSEMBLY == 0:
        wide = words.to(tl.int32)
        values = _four(wide, OF, BASE) if KIND == 4 else _two(wide, OF, KIND, BASE)
    elif OF == tl.bfloat16:  # noqa: SIM300
        values = _unpack_bf16(words, KIND)
    else:
        values = _unpack_fp16(words, KIND, ASSEMBLY)
    return values


@triton.jit
def _four(wide, OF: tl.constexpr, BASE: tl.constexpr):
    return (
        code(wide, 0, 4, BASE, False).to(OF),
        code(wide, 1, 4, BASE, False).to(OF),
        code(wide, 2, 4, BASE, False).to(OF),
        code(wide, 3, 4, BASE, False).to(OF),
    )


@triton.jit
def _two(wide, OF: tl.constexpr, KIND: tl.constexpr, BASE: tl.constexpr):
    first = code(wide, 0, KIND, BASE, False).to(OF)
    second = code(wide, 1, KIND, BASE, False).to(OF)
    return first, second


@triton.jit
def _unpack_bf16(words, KIND: tl.constexpr):
    """Two words are in one register, and two values of each in every register that comes out."""
    if KIND == 4:
        values = tl.inline_asm_elementwise(
            FOUR_BITS_TO_BF16,
            "=&r,=&r,=&r,=&r,r",
            [words],
            dtype=(tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16),
            is_pure=True,
            pack=2,
        )
    else:
        values = tl.inline_asm_elementwise(
            BYTES_TO_BF16 if KIND == 8 else E4M3_TO_BF16,
            "=&r,=&r,r",
            [words],
            dtype=(tl.bfloat16, tl.bfloat16),
            is_pure=True,
            pack=2,
        )
    return values


@triton.jit
def _unpack_fp16(words, KIND: tl.constexpr, ASSEMBLY: tl.constexpr):
    """The same."""
    if KIND == 4:
        values = tl.inline_asm_elementwise(
            FOUR_BITS_TO_FP16,
            "=&r,=&r,=&r,=&r,r",
            [words],
            dtype=(tl.float16, tl.float16, tl.float16, tl.float16),
            is_pure=True,
            pack=2,
        )
    else:
        FLOAT: tl.constexpr = FROM_E4M3 if ASSEMBLY >= 89 else FROM_E4M3_BITS
        values = tl.inline_asm_elementwise(
            BYTES_TO_FP16 if KIND == 8 else FLOAT,
            "=&r,=&r,r",
            [words],
            dtype=(tl.float16, tl.float16),
            is_pure=True,
            pack=2,
        )
    return values


@triton.jit
def add_exactly(values, other, ASSEMBLY: tl.constexpr):
    """The sum, in the type of both, which can hold it. other: is broadcast to values."""
    if ASSEMBLY == 0:
        total = values + other
    else:
        total = tl.inline_asm_elementwise(
            ADD_BF16 if values.dtype == tl.bfloat16 else ADD_FP16,
            "=r,r,r",
            [values, other],
            dtype=values.dtype,
            is_pure=True,
            pack=2,
        )
    return total


@triton.jit
def code(wide, place, KIND: tl.constexpr, BASE: tl.constexpr, NATIVE: tl.constexpr):
    """As float32, one of the values of words that were made int32. NATIVE: as for `decode`."""
    if KIND == 4:
        value = (((wide >> (4 * place)) & 15) - BASE).to(tl.float32)
    elif KIND == 8:
        value = (((wide >> (8 * place)) & 255) - BASE).to(tl.float32)
    else:
        stored = ((wide >> (8 * place)) & 255).to(tl.uint8)
        value = decode(stored, E4M3, NATIVE).to(tl.float32)
    return value
