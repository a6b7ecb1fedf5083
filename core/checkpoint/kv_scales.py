"""The scales that a checkpoint brings for keys and values, under all names that are in use."""

import re
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from jackfield.core.api.encoding import KvScales
from jackfield.core.api.errors import CheckpointError
from jackfield.core.checkpoint.safetensors_header import StoredTensor
from jackfield.core.checkpoint.safetensors_reader import SafetensorsReader
from jackfield.core.checkpoint.safetensors_weights import FLOATS, locate
from jackfield.core.checkpoint.tensor_files import TensorFiles

LAYER = r"(?:.+\.)?layers\.(?P<layer>\d+)\.(?:self_attn|attn)\.(?:attn\.)?"
ENDINGS: Mapping[str, tuple[str, ...]] = {
    "k": (r"(?:k_proj\.|qkv_proj\.)?k_scale", r"k_proj\.output_scale"),
    "v": (r"(?:v_proj\.|qkv_proj\.)?v_scale", r"v_proj\.output_scale"),
    "kv": (r"kv_scale",),
    "unused": (r"(?:q_proj\.|qkv_proj\.)?q_scale", r"prob_scale", r"prob_output_scale"),
}
"""What is scaled -> ends of names. Queries and probabilities are never stored."""
KV_SCALE_NAME = LAYER + "(?:{})".format(
    "|".join(f"(?P<{part}>{'|'.join(ends)})" for part, ends in ENDINGS.items())
)
"""Matches the name of every such tensor, which no model takes."""


class StoredScales(NamedTuple):
    """by_layer: where there are both. halves: layer -> the one tensor of two that is there."""

    by_layer: Mapping[int, KvScales]
    halves: Mapping[int, str]


class _Found(NamedTuple):
    name: str
    scale_K: Tensor


def read_kv_scales(files: TensorFiles, num_layers: int, num_kv_heads: int) -> StoredScales:
    """One scale per head, float32 on the CPU; a single one stands for all heads.

    Reads headers and the scales only. Raises CheckpointError that names the tensor for one of
    another shape or type, for a value that is no positive number, and for two that mean the same.
    """
    found: dict[tuple[int, str], _Found] = {}
    reader = SafetensorsReader(torch.float32, torch.device("cpu"))
    try:
        for name, stored in sorted(locate(files).items()):
            match = re.fullmatch(KV_SCALE_NAME, name)
            if match is None or match["unused"]:
                continue
            _require_layer(name, stored, int(match["layer"]), num_layers)
            scale_K = _read(reader, name, stored, num_kv_heads)
            for part in "kv" if match["kv"] else ("k" if match["k"] else "v"):
                _put(found, (int(match["layer"]), part), _Found(name, scale_K))
    finally:
        reader.close()
    return _paired(found)


def _require_layer(name: str, stored: StoredTensor, layer: int, num_layers: int) -> None:
    if layer >= num_layers:
        raise CheckpointError(
            f"{stored.file}, tensor {name!r}: the model has {num_layers} layers, counted from 0; "
            f"config.json does not fit these weights."
        )


def _read(reader: SafetensorsReader, name: str, stored: StoredTensor, num_heads: int) -> Tensor:
    if stored.shape not in ((), (1,), (num_heads,)):
        raise CheckpointError(
            f"{stored.file}, tensor {name!r}: shape is {list(stored.shape)}; expected one scale, "
            f"or one for each of the {num_heads} key/value heads."
        )
    if stored.dtype not in FLOATS:
        raise CheckpointError(
            f"{stored.file}, tensor {name!r}: element type is {stored.dtype}; expected one of "
            f"{', '.join(FLOATS)}."
        )
    scale = reader.read(name, stored, tuple(slice(0, size) for size in stored.shape))
    if not bool((scale.isfinite() & (scale > 0)).all()):
        raise CheckpointError(
            f"{stored.file}, tensor {name!r} holds {scale.flatten().tolist()}; a scale is a "
            f"positive number. Calibrate instead of taking the checkpoint's scales."
        )
    return scale.expand(num_heads).clone()


def _put(found: dict[tuple[int, str], _Found], key: tuple[int, str], new: _Found) -> None:
    other = found.get(key)
    if other is not None:
        raise CheckpointError(
            f"The tensors {other.name!r} and {new.name!r} both scale the "
            f"{'keys' if key[1] == 'k' else 'values'} of layer {key[0]}; remove one of them."
        )
    found[key] = new


def _paired(found: Mapping[tuple[int, str], _Found]) -> StoredScales:
    by_layer: dict[int, KvScales] = {}
    halves: dict[int, str] = {}
    for layer in sorted({layer for layer, _ in found}):
        k, v = found.get((layer, "k")), found.get((layer, "v"))
        if k is not None and v is not None:
            by_layer[layer] = KvScales(k.scale_K, v.scale_K)
        else:
            halves[layer] = (k or found[layer, "v"]).name
    return StoredScales(by_layer, halves)
