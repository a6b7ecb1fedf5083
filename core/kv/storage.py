"""The memory behind the block pool: one set of tensors per layer, in its kernel's layout."""

from collections.abc import Mapping, Sequence

import torch

from jackfield.core.api import KvEncoding, KvLayer, KvLayout, KvScales, LayerGroup


def allocate(
    groups: Sequence[LayerGroup],
    layouts: Sequence[KvLayout],
    scale: float,
    num_blocks: int,
    device: torch.device,
    encodings: Sequence[KvEncoding | None],
    scales: Mapping[int, KvScales],
) -> list[KvLayer]:
    """One `KvLayer` per layer of the model, in the model's order. Contents are undefined.

    encodings: of the groups. scales: by layer, where there are some.
    """
    layers: dict[int, KvLayer] = {}
    for group, layout, encoding in zip(groups, layouts, encodings, strict=True):
        for layer in group.layers:
            tensors = {
                part.name: torch.empty((num_blocks, *part.shape), dtype=part.dtype, device=device)
                for part in layout.tensors
            }
            layers[layer] = KvLayer(tensors, scale, group.window, scales.get(layer), encoding)
    return [layers[index] for index in sorted(layers)]


def bytes_per_block(groups: Sequence[LayerGroup], layouts: Sequence[KvLayout]) -> int:
    """Bytes of one block over all layers."""
    return sum(
        len(group.layers) * layout.bytes_per_block
        for group, layout in zip(groups, layouts, strict=True)
    )
