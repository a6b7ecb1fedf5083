"""Reads what stands for one quantized weight, and checks it against the `quantization_config`.

Shape suffixes: O and I outputs and inputs, W words, R and G how many scales there are along them.
"""

from collections.abc import Callable, Mapping
from math import ceil

import torch
from torch import Tensor

from jackfield.core.api.errors import CheckpointError
from jackfield.core.api.quant import QuantKind, QuantWeight
from jackfield.core.checkpoint.quant_layouts import (
    awq_values,
    held,
    held_from_rows,
    sorted_inputs,
    unsigned,
    values_of_words,
)
from jackfield.core.checkpoint.quant_scheme import QuantLayout
from jackfield.core.checkpoint.quant_tensors import INTEGERS, QuantTensors
from jackfield.core.checkpoint.safetensors_header import StoredTensor

PRIMARY = {
    QuantLayout.AWQ: "qweight",
    QuantLayout.GPTQ: "qweight",
    QuantLayout.PACKED: "weight_packed",
    QuantLayout.PLAIN: "weight",
}
"""The tensor whose presence says that a weight is quantized; PLAIN: if its entries are bytes."""
BYTES = {QuantKind.FP8: "F8_E4M3", QuantKind.INT8: "I8"}


def is_quantized(module: str, layout: QuantLayout, stored: Mapping[str, StoredTensor]) -> bool:
    """Whether the files hold the weight in this layout."""
    found = stored.get(f"{module}.{PRIMARY[layout]}")
    return found is not None and (layout is not QuantLayout.PLAIN or found.bytes == _count(found))


def read_quant_weight(tensors: QuantTensors) -> QuantWeight:
    """The whole weight, on the device. Raises CheckpointError that names file and tensor."""
    scheme, (_, inputs) = tensors.scheme, tensors.shape
    if scheme.kind is QuantKind.INT4 and inputs % 2:
        raise CheckpointError(
            f"{tensors.name('weight')} has {inputs} inputs; weights of 4 bits are served with an "
            f"even number."
        )
    return READERS[scheme.layout](tensors)


def _awq(tensors: QuantTensors) -> QuantWeight:
    (outputs, inputs), groups = tensors.shape, _groups(tensors)
    words = ceil(outputs / 8)
    words_IW = tensors.need("qweight", (inputs, words), INTEGERS)
    zeros_GW = tensors.need("qzeros", (groups, words), INTEGERS)
    scales_GR = tensors.need("scales", (groups, outputs))
    values = held(awq_values(words_IW)[:, :outputs].t(), QuantKind.INT4)
    zeros_RG = awq_values(zeros_GW)[:, :outputs].t().contiguous()
    return _weight(tensors, values, scales_GR.t().contiguous(), zeros_RG)


def _gptq(tensors: QuantTensors) -> QuantWeight:
    (outputs, inputs), groups, scheme = tensors.shape, _groups(tensors), tensors.scheme
    words_WO = tensors.need("qweight", (ceil(inputs / scheme.words), outputs), INTEGERS)
    zeros_GW = tensors.need("qzeros", (groups, ceil(outputs / scheme.words)), INTEGERS)
    scales_GR = tensors.need("scales", (groups, outputs))
    values = held_from_rows(words_WO.t(), inputs, scheme.kind)
    order_I = _order(tensors, "g_idx")
    # Formats before the second store zero points less one, so that 0 is the largest value.
    most = 2 * scheme.kind.middle - 1
    zeros_GR = (values_of_words(zeros_GW, scheme.kind)[:, :outputs] + scheme.zero_shift) & most
    zeros_RG = _if_needed(tensors, "qzeros", zeros_GR.t().contiguous())
    return _weight(tensors, values, scales_GR.t().contiguous(), zeros_RG, order_I)


def _packed(tensors: QuantTensors) -> QuantWeight:
    (outputs, inputs), groups, scheme = tensors.shape, _groups(tensors), tensors.scheme
    words_OW = tensors.need("weight_packed", (outputs, ceil(inputs / scheme.words)), INTEGERS)
    values = held_from_rows(words_OW, inputs, scheme.kind)
    scales_RG, zeros_RG = _scales(tensors, "weight_scale"), None
    if not scheme.symmetric:
        shape = (ceil(outputs / scheme.words), groups)
        zeros_WG = tensors.need("weight_zero_point", shape, INTEGERS)
        zeros_GR = values_of_words(zeros_WG.t(), scheme.kind)[:, :outputs]
        zeros_RG = zeros_GR.t().contiguous()
    _check_stated_shape(tensors)
    return _weight(tensors, values, scales_RG, zeros_RG, _order(tensors, "weight_g_idx"))


def _plain(tensors: QuantTensors) -> QuantWeight:
    scheme = tensors.scheme
    values = tensors.need("weight", tensors.shape, (BYTES[scheme.kind],))
    inverse = tensors.has("weight_scale_inv")
    scales_RG = _scales(tensors, "weight_scale_inv" if inverse else "weight_scale")
    zeros_RG = _plain_zeros(tensors, scales_RG)
    values = values if scheme.kind is QuantKind.FP8 else unsigned(values)
    return _weight(tensors, values, scales_RG, zeros_RG)


def _plain_zeros(tensors: QuantTensors, scales_RG: Tensor) -> Tensor | None:
    """Symmetric weights may have them too, and then as zeros only."""
    suffix, kind = "weight_zero_point", tensors.scheme.kind
    if tensors.scheme.symmetric and not tensors.has(suffix):
        return None
    stored = tensors.need_one_of(suffix, _scale_shapes(tensors), (BYTES[kind],))
    if not bool(stored.float().any()):
        return None
    if tensors.scheme.symmetric or kind is QuantKind.FP8:
        raise CheckpointError(
            f"{tensors.where(suffix)} holds more than zeros, but quantization_config in "
            f"config.json says that weights are symmetric."
        )
    return unsigned(_per_output(stored, scales_RG))


READERS: Mapping[QuantLayout, Callable[[QuantTensors], QuantWeight]] = {
    QuantLayout.AWQ: _awq,
    QuantLayout.GPTQ: _gptq,
    QuantLayout.PACKED: _packed,
    QuantLayout.PLAIN: _plain,
}


def _weight(
    tensors: QuantTensors,
    values: Tensor,
    scales_RG: Tensor,
    zeros_RG: Tensor | None,
    order_I: Tensor | None = None,
) -> QuantWeight:
    scheme, shape = tensors.scheme, tensors.shape
    if order_I is not None:
        values = sorted_inputs(values, order_I, scheme.kind)
    group = shape[1] if scheme.group is None else scheme.group
    return QuantWeight(
        scheme.kind, values, scales_RG, zeros_RG, group, scheme.rows, shape, order_I
    )


def _groups(tensors: QuantTensors) -> int:
    group = tensors.scheme.group
    return 1 if group is None else ceil(tensors.shape[1] / group)


def _scale_shapes(tensors: QuantTensors) -> list[tuple[int, ...]]:
    """The one that the scheme asks for first; a single scale stands for all outputs."""
    (outputs, _), groups, scheme = tensors.shape, _groups(tensors), tensors.scheme
    full: tuple[int, ...] = (ceil(outputs / scheme.rows), groups)
    return [full] if scheme.group is not None else [full, (outputs,), (), (1,), (1, 1)]


def _scales(tensors: QuantTensors, suffix: str) -> Tensor:
    stored = tensors.need_one_of(suffix, _scale_shapes(tensors))
    full = (ceil(tensors.shape[0] / tensors.scheme.rows), _groups(tensors))
    return _per_output(stored, stored.new_empty(full))


def _per_output(stored: Tensor, like_RG: Tensor) -> Tensor:
    table = stored if stored.dim() == 2 else stored.reshape(-1, 1)
    return table.expand(like_RG.shape).contiguous()


def _order(tensors: QuantTensors, suffix: str) -> Tensor | None:
    """Which inputs come first when they are sorted by group; None if they are."""
    if not tensors.has(suffix):
        if tensors.scheme.act_order and tensors.scheme.group is not None:
            tensors.need(suffix, tensors.shape[1:], INTEGERS)
        return None
    groups_I = tensors.need(suffix, tensors.shape[1:], INTEGERS).long()
    group = tensors.scheme.group or tensors.shape[1]
    regular_I = torch.arange(tensors.shape[1], device=groups_I.device) // group
    if torch.equal(groups_I, regular_I):
        return None
    sorted_I, order_I = groups_I.sort(stable=True)
    if not torch.equal(sorted_I, regular_I):
        raise CheckpointError(
            f"{tensors.where(suffix)} does not give each group {group} inputs; such an order of "
            f"activations is not served, one with full groups is."
        )
    return order_I


def _if_needed(tensors: QuantTensors, suffix: str, zeros_RG: Tensor) -> Tensor | None:
    """None where all zero points are in the middle, as they are of symmetric weights."""
    middle = tensors.scheme.kind.middle
    odd = zeros_RG[zeros_RG != middle]
    if not odd.numel():
        return None
    if tensors.scheme.symmetric:
        raise CheckpointError(
            f"{tensors.where(suffix)} holds the zero point {int(odd[0])}, but quantization_config "
            f"in config.json says that weights are symmetric, which makes each {middle}."
        )
    return zeros_RG


def _check_stated_shape(tensors: QuantTensors) -> None:
    if not tensors.has("weight_shape"):
        return
    stated = tuple(tensors.need("weight_shape", (2,), INTEGERS).tolist())
    if stated != tensors.shape:
        raise CheckpointError(
            f"{tensors.where('weight_shape')} says {list(stated)}, but config.json makes the "
            f"weight {list(tensors.shape)}."
        )


def _count(stored: StoredTensor) -> int:
    count = 1
    for size in stored.shape:
        count *= size
    return count
