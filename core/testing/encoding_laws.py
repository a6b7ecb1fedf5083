"""Laws of an encoding: for every layer group it says how numbers are stored, always the same."""

import math
from itertools import product
from typing import Any

import torch

from jackfield.core.api import KvEncoding, KvSpec, ScaleSource


def check_encodings(plugin: Any) -> None:
    """For layer groups of all shapes and element types. None = they are stored as they are."""
    name = type(plugin).__name__
    dtypes = (torch.float32, torch.bfloat16, torch.float16)
    shapes = ((32, 8, 128), (4, 1, 64), (1, 1, 16))
    for shape, dtype, size, window in product(shapes, dtypes, (8, 64), (None, 128)):
        spec = KvSpec(*shape, dtype, size, window)
        first, second = plugin.encode(spec), plugin.encode(spec)
        assert first == second, f"{name}.encode says {first} and then {second} for {spec}"
        if first is not None:
            check_encoding(name, first, spec)


def check_encoding(name: str, encoding: Any, spec: KvSpec) -> None:
    """Every field has a value that the core can work with."""
    assert isinstance(encoding, KvEncoding), f"{name}.encode returned {encoding!r}"
    what = f"{name}.encode has the"
    text = encoding.name
    assert isinstance(text, str) and text, f"{what} name {text!r}"
    dtype = encoding.dtype
    assert isinstance(dtype, torch.dtype), f"{what} dtype {dtype!r}"
    assert dtype.itemsize <= spec.dtype.itemsize, f"{what} dtype {dtype}, larger than {spec.dtype}"
    largest = (torch.finfo if dtype.is_floating_point else torch.iinfo)(dtype).max
    limit = encoding.limit
    fits = _is_number(limit) and 0 < limit <= largest
    assert fits, f"{what} limit {limit!r}; {dtype} holds {largest:g}"
    assert isinstance(encoding.scaled, bool), f"{what} scaled {encoding.scaled!r}"
    assert isinstance(encoding.source, ScaleSource), f"{what} source {encoding.source!r}"
    margin = encoding.margin
    assert _is_number(margin) and margin > 0, f"{what} margin {margin!r}"


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)
