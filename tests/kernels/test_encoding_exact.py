"""The rule of encodings, bit by bit, against formats that are decoded here by their definition."""

from bisect import bisect_left
from itertools import pairwise

import numpy as np
import pytest
import torch

from jackfield.core.api.encoding import KvEncoding
from jackfield.plugins.cache.fp8 import Fp8
from jackfield.plugins.kernels.torch_ops.encoding import restore, store

CODES = range(256)


def encoding_of(name: str) -> KvEncoding:
    return Fp8(Fp8.Config(format=name)).encode(None)


def float_value(code: int, exponent_bits: int) -> float:
    """An 8-bit float of which `exponent_bits` are exponent; nan for what is no finite number."""
    mantissa_bits = 7 - exponent_bits
    bias = 2 ** (exponent_bits - 1) - 1
    sign = -1.0 if code & 0x80 else 1.0
    exponent, mantissa = (code & 0x7F) >> mantissa_bits, code & (2**mantissa_bits - 1)
    special = code & 0x7F == 0x7F if exponent_bits == 4 else exponent == 31
    if special:
        return float("nan")
    if exponent == 0:
        return sign * mantissa * 2.0 ** (1 - bias - mantissa_bits)
    return sign * (1 + mantissa / 2**mantissa_bits) * 2.0 ** (exponent - bias)


def values_of(name: str) -> list[tuple[float, int]]:
    """Every finite number that can be stored, ascending, and whether its last bit is set."""
    if name == "int8":
        return [(float(value), value & 1) for value in range(-127, 128)]
    found = {float_value(code, 4 if name == "e4m3" else 5): code & 1 for code in CODES}
    return sorted((value, odd) for value, odd in found.items() if value == value)


def nearest(wanted: float, values: list[tuple[float, int]]) -> float:
    """With ties to the even one; what is beyond the ends becomes the end."""
    index = bisect_left(values, (wanted, 0))
    around = values[max(index - 1, 0) : index + 1]
    return min(around, key=lambda entry: (abs(entry[0] - wanted), entry[1]))[0]


def stored(numbers: list[float], name: str, scale: float | None = None) -> list[float]:
    x = torch.tensor(numbers, dtype=torch.float32).view(-1, 1, 1)
    encoding = encoding_of(name)
    made = store(x, None if scale is None else torch.tensor([scale]), encoding)
    assert made.dtype is encoding.dtype and made.shape == x.shape
    return restore(made, None).flatten().tolist()


@pytest.mark.parametrize("name", ["e4m3", "e5m2", "int8"])
def test_every_number_of_the_format_is_kept(name: str) -> None:
    values = [value for value, _ in values_of(name)]
    assert len(values) == {"e4m3": 253, "e5m2": 247, "int8": 255}[name]
    assert values[-1] == encoding_of(name).limit
    assert stored(values, name) == values


@pytest.mark.parametrize("name", ["e4m3", "e5m2", "int8"])
def test_between_two_numbers_the_nearest_is_taken_and_ties_go_to_even(name: str) -> None:
    values = values_of(name)
    middles = [(a + b) / 2 for (a, _), (b, _) in pairwise(values)]
    numbers = [
        float(np.nextafter(np.float32(middle), np.float32(side)))
        for middle in middles
        for side in (-np.inf, middle, np.inf)
    ]
    assert stored(numbers, name) == [nearest(number, values) for number in numbers]


@pytest.mark.parametrize("name", ["e4m3", "e5m2", "int8"])
def test_random_numbers_of_all_sizes(name: str) -> None:
    generator = torch.Generator().manual_seed(3)
    sizes = 2.0 ** torch.randint(-20, 18, (4000,), generator=generator)
    numbers = (torch.randn(4000, generator=generator) * sizes).tolist()
    assert stored(numbers, name) == [nearest(number, values_of(name)) for number in numbers]


@pytest.mark.parametrize("name", ["e4m3", "e5m2", "int8"])
def test_what_is_too_large_becomes_the_limit(name: str) -> None:
    limit = encoding_of(name).limit
    large = [limit * 1.001, 65_000.0, 1e30, float("inf")]
    assert stored(large, name) == [limit] * 4
    assert stored([-number for number in large], name) == [-limit] * 4


def test_keys_of_600_saturate_in_e4m3() -> None:
    assert stored([600.0, -600.0, 449.0, 447.0], "e4m3") == [448.0, -448.0, 448.0, 448.0]


def test_what_is_no_number_stays_so_where_the_type_can_say_it() -> None:
    nan = float("nan")
    assert all(value != value for name in ("e4m3", "e5m2") for value in stored([nan], name))
    assert stored([nan, 3.0], "int8") == [0.0, 3.0]


@pytest.mark.parametrize("name", ["e4m3", "e5m2", "int8"])
def test_the_scale_divides_in_float32(name: str) -> None:
    """A product with the reciprocal would round some of these to the other neighbour."""
    generator = np.random.default_rng(5)
    values, numbers, scales = values_of(name), [], []
    for _ in range(3000):
        index = generator.integers(len(values) - 1)
        scale = np.float32(generator.uniform(0.001, 3.0))
        middle = np.float32((values[index][0] + values[index + 1][0]) / 2)
        numbers.append(np.float32(middle * scale))
        scales.append(scale)
    quotients = np.array(numbers) / np.array(scales)
    products = np.array(numbers) * (np.float32(1) / np.array(scales))
    want = [nearest(float(quotient), values) for quotient in quotients]
    assert want != [nearest(float(product), values) for product in products]
    x_1KH = torch.tensor(np.array(numbers)).view(1, -1, 1)
    made = store(x_1KH, torch.tensor(np.array(scales)), encoding_of(name))
    assert restore(made, None).flatten().tolist() == want


def test_each_head_has_its_own_scale() -> None:
    encoding = encoding_of("e4m3")
    x_TKH = torch.tensor([[[448.0, 1.0], [56.0, 0.5]], [[896.0, -448.0], [1.0, -56.0]]])
    scales_K = torch.tensor([2.0, 0.125])
    made_TKH = store(x_TKH, scales_K, encoding)
    assert made_TKH.float()[:, 1].tolist() == [[448.0, 4.0], [8.0, -448.0]]
    assert torch.equal(restore(made_TKH, scales_K), x_TKH)
    gathered_KLH = made_TKH.transpose(0, 1)
    assert torch.equal(restore(gathered_KLH, scales_K, -3), x_TKH.transpose(0, 1))


def test_half_types_are_widened_before_they_are_divided() -> None:
    x_TKH = torch.tensor([1.0078125, 3.015625, 100.5], dtype=torch.bfloat16).view(-1, 1, 1)
    scale_K, encoding = torch.tensor([0.3]), encoding_of("e5m2")
    assert torch.equal(
        store(x_TKH, scale_K, encoding).float(), store(x_TKH.float(), scale_K, encoding).float()
    )
    assert restore(store(x_TKH, scale_K, encoding), scale_K).dtype is torch.float32
