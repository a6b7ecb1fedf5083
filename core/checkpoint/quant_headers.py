"""Which tensors stand for a quantized weight, for whoever looks at headers only."""

from collections.abc import Iterator, Mapping
from math import ceil
from typing import NamedTuple

from jackfield.core.checkpoint.quant_reader import BYTES, PRIMARY
from jackfield.core.checkpoint.quant_scheme import QuantLayout, Scheme
from jackfield.core.checkpoint.quant_tensors import INTEGERS
from jackfield.core.checkpoint.safetensors_header import StoredTensor
from jackfield.core.checkpoint.safetensors_weights import FLOATS


class Part(NamedTuple):
    """One tensor, by the end of its name. shapes: that it may have. optional: it may be absent."""

    suffix: str
    shapes: tuple[tuple[int, ...], ...]
    types: tuple[str, ...]
    optional: bool = False


def parts_of(
    scheme: Scheme, shape: tuple[int, int], module: str, stored: Mapping[str, StoredTensor]
) -> Iterator[Part]:
    """As the readers of each layout want them for a weight of that shape."""
    (outputs, inputs), words = shape, scheme.words
    groups = 1 if scheme.group is None else ceil(inputs / scheme.group)
    if scheme.layout is QuantLayout.AWQ:
        packed = ceil(outputs / words)
        yield Part("qweight", ((inputs, packed),), INTEGERS)
        yield Part("qzeros", ((groups, packed),), INTEGERS)
        yield Part("scales", ((groups, outputs),), FLOATS)
    elif scheme.layout is QuantLayout.GPTQ:
        yield Part("qweight", ((ceil(inputs / words), outputs),), INTEGERS)
        yield Part("qzeros", ((groups, ceil(outputs / words)),), INTEGERS)
        yield Part("scales", ((groups, outputs),), FLOATS)
        yield Part("g_idx", ((inputs,),), INTEGERS, not _is_ordered(scheme))
    else:
        yield from _scaled(scheme, shape, groups, module, stored)


def _scaled(
    scheme: Scheme,
    shape: tuple[int, int],
    groups: int,
    module: str,
    stored: Mapping[str, StoredTensor],
) -> Iterator[Part]:
    """Of a layout whose tensors are named after the weight."""
    outputs, inputs = shape
    full: tuple[int, ...] = (ceil(outputs / scheme.rows), groups)
    spread = (full,) if scheme.group is not None else (full, (outputs,), (), (1,), (1, 1))
    if scheme.layout is QuantLayout.PACKED:
        yield Part("weight_packed", ((outputs, ceil(inputs / scheme.words)),), INTEGERS)
        yield Part("weight_scale", spread, FLOATS)
        zeros = (ceil(outputs / scheme.words), groups)
        if not scheme.symmetric:
            yield Part("weight_zero_point", (zeros,), INTEGERS)
        yield Part("weight_g_idx", ((inputs,),), INTEGERS, not _is_ordered(scheme))
        yield Part("weight_shape", ((2,),), INTEGERS, True)
        return
    inverse = f"{module}.weight_scale_inv" in stored
    kind = (BYTES[scheme.kind],)
    yield Part(PRIMARY[scheme.layout], (shape,), kind)
    yield Part("weight_scale_inv" if inverse else "weight_scale", spread, FLOATS)
    yield Part("weight_zero_point", spread, kind, scheme.symmetric)


def _is_ordered(scheme: Scheme) -> bool:
    return scheme.act_order and scheme.group is not None
