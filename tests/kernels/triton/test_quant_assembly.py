"""The assembly that makes numbers of codes, carried out instruction by instruction on the host.

The interpreter has no assembly, so only a GPU would notice what is wrong in it.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from jackfield.plugins.kernels.triton import quant_values_kernel as kernel
from jackfield.plugins.kernels.triton.encode_kernel import FROM_E4M3_BITS

FULL = 0xFFFFFFFF
PAIRS = {"f16x2": torch.float16, "bf16x2": torch.bfloat16}


def halves(word: int, dtype: torch.dtype) -> torch.Tensor:
    """Two numbers in a register, exactly."""
    pair = torch.tensor([word & 0xFFFF, word >> 16]).to(torch.uint16)
    return pair.view(dtype).double()


def joined(pair: torch.Tensor, dtype: torch.dtype) -> int:
    low, high = pair.to(dtype).view(torch.uint16).tolist()
    return low | high << 16


def real(word: int) -> torch.Tensor:
    return torch.tensor([word], dtype=torch.uint32).view(torch.float32).double()


def prmt(a: int, b: int, selector: int) -> int:
    bytes_ = [(a | b << 32) >> (8 * i) & 255 for i in range(8)]
    return sum(bytes_[selector >> (4 * i) & 7] << (8 * i) for i in range(4))


def arithmetic(name: str, given: list[int]) -> int:
    """add, mul and fma; of two halves or of a float."""
    parts = name.split(".")
    if parts[-1] == "f32":
        total = (real(given[0]) + real(given[1])).float()
        return int(total.view(torch.uint32).item())
    dtype = PAIRS[parts[-1]]
    a, b, *rest = [halves(word, dtype) for word in given]
    result = {"add": a + b, "mul": a * b, "fma": a * b + (rest[0] if rest else 0)}[parts[0]]
    return joined(result, dtype)


BITS: Mapping[str, Callable[..., int]] = {
    "mov": lambda a: a,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "shl": lambda a, b: a << b & FULL,
    "shr": lambda a, b: a >> b,
    "lop3": lambda a, b, c, table: {0xEA: a & b | c}[table],
    "prmt": prmt,
}


def carried_out(assembly: Any, outputs: int, *words: int) -> list[int]:
    """What is in the first registers when `words` are in those behind them."""
    registers = {f"${outputs + place}": word for place, word in enumerate(words)}

    def value(text: str) -> int:
        return registers[text] if text in registers else int(text, 0)

    for line in re.findall(r"^([a-z]\S+) (.*);", assembly.value, re.MULTILINE):
        name, (into, *given) = line[0], line[1].split(", ")
        values = [value(text) for text in given]
        short = name.split(".")[0]
        if short == "add" and name.endswith("u32"):
            registers[into] = sum(values) & FULL
        elif short in BITS:
            registers[into] = BITS[short](*values)
        else:
            registers[into] = arithmetic(name, values)
    return [registers[f"${i}"] for i in range(outputs)]


def e4m3(code: int) -> float:
    return torch.tensor([code], dtype=torch.uint8).view(torch.float8_e4m3fn).double().item()


CASES = {
    "four bits to bfloat16": (kernel.FOUR_BITS_TO_BF16, 4, "bf16x2", lambda code: code + 128),
    "four bits to float16": (kernel.FOUR_BITS_TO_FP16, 4, "f16x2", lambda code: code - 8),
    "bytes to bfloat16": (kernel.BYTES_TO_BF16, 8, "bf16x2", lambda code: code - 128),
    "bytes to float16": (kernel.BYTES_TO_FP16, 8, "f16x2", lambda code: code - 128),
    "e4m3 to bfloat16": (kernel.E4M3_TO_BF16, 8, "bf16x2", e4m3),
    "e4m3 to float16": (FROM_E4M3_BITS, 8, "f16x2", e4m3),
}


@pytest.mark.parametrize("case", CASES)
def test_every_code_in_every_place(case: str) -> None:
    assembly, bits, type_, meant = CASES[case]
    count = 16 // bits
    for code in range(1 << bits):
        if meant is e4m3 and code & 127 == 127:
            continue  # no number
        others = [(code * 7 + 3 * place + 1) % (1 << bits) & 0x77 for place in range(2 * count)]
        for place in range(2 * count):
            codes = [*others]
            codes[place] = code
            word = sum(one << (bits * i) for i, one in enumerate(codes))
            found = carried_out(assembly, count, word)
            numbers = [halves(register, PAIRS[type_]).tolist() for register in found]
            # The second word of 16 bits is in the upper half of each register.
            wanted = [[meant(codes[i]), meant(codes[i + count])] for i in range(count)]
            assert numbers == wanted, (code, place)


SUMS = {
    "bfloat16": (kernel.ADD_BF16, torch.bfloat16),
    "float16": (kernel.ADD_FP16, torch.float16),
}


@pytest.mark.parametrize("case", SUMS)
def test_zero_points_are_taken_off(case: str) -> None:
    assembly, dtype = SUMS[case]
    given, other = torch.tensor([128.0 + 7, -128.0]), torch.tensor([-128.0 - 15, -127.0])
    found = carried_out(assembly, 1, joined(given, dtype), joined(other, dtype))
    assert halves(found[0], dtype).tolist() == [-8, -255]
