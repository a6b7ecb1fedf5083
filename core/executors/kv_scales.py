"""Fixes, before anything is served, what keys and values are divided by when they are stored."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from jackfield.core.api import (
    CheckpointError,
    KvEncoding,
    KvScales,
    KvSpec,
    Model,
    ModelSpec,
    Operations,
    ScaleSource,
    Shard,
)
from jackfield.core.checkpoint.kv_scales import StoredScales, read_kv_scales
from jackfield.core.checkpoint.tensor_files import TensorFiles
from jackfield.core.executors.calibration import Peaks, measure_peaks

LISTED = 8


class Subject(NamedTuple):
    """What scales are for. spec: of the whole model. kv_specs: of its groups. files: None = random
    weights. shard: which heads are here."""

    model: Model
    operations: Operations
    spec: ModelSpec
    kv_specs: Sequence[KvSpec]
    files: TensorFiles | None
    device: torch.device
    shard: Shard = Shard()

    def encodings(self) -> dict[int, KvEncoding]:
        """By layer, where there is one."""
        pairs = zip(self.spec.groups, self.kv_specs, strict=True)
        return {layer: kv.encoding for group, kv in pairs if kv.encoding for layer in group.layers}


class FixedScales(NamedTuple):
    """by_layer: on the device. origin: where they are from, in words; "" = nothing is encoded."""

    by_layer: Mapping[int, KvScales]
    origin: str
    notices: tuple[str, ...]


def fix_scales(subject: Subject) -> FixedScales:
    """Read or calibrate what the encodings ask for. Raises CheckpointError for what is missing."""
    encodings = subject.encodings()
    scaled = {layer: encoding for layer, encoding in encodings.items() if encoding.scaled}
    stored = _stored(subject, scaled)
    taken = {
        layer: stored.by_layer[layer]
        for layer, encoding in scaled.items()
        if encoding.source is not ScaleSource.CALIBRATION and layer in stored.by_layer
    }
    rest = {layer: encoding for layer, encoding in scaled.items() if layer not in taken}
    _require_none_missing(rest, stored, len(encodings))
    made = _calibrated(subject, rest) if rest else {}
    by_layer = {layer: _placed(scales, subject.device) for layer, scales in (taken | made).items()}
    notices = (*_without(encodings), *_partial(rest, taken, stored))
    return FixedScales(by_layer, _origin(encodings, taken, made), notices)


def _stored(subject: Subject, scaled: Mapping[int, KvEncoding]) -> StoredScales:
    wanted = any(one.source is not ScaleSource.CALIBRATION for one in scaled.values())
    if subject.files is None or not wanted:
        return StoredScales({}, {})
    heads = subject.spec.num_kv_heads
    stored = read_kv_scales(subject.files, subject.spec.num_layers, heads)
    here = subject.shard.part(heads)
    part = slice(here.start, here.stop)
    return stored._replace(by_layer={
        layer: KvScales(scales.k_K[part], scales.v_K[part])
        for layer, scales in stored.by_layer.items()
    })  # fmt: skip


def _require_none_missing(
    rest: Mapping[int, KvEncoding], stored: StoredScales, num_layers: int
) -> None:
    missing = [layer for layer, one in rest.items() if one.source is ScaleSource.CHECKPOINT]
    if missing:
        raise CheckpointError(
            f"the checkpoint has no scales of keys and values for {len(missing)} of {num_layers} "
            f"layers: {_listed(missing)}{_half(stored)}; have them calibrated, or store keys and "
            f"values as the model computes them"
        )


def _calibrated(subject: Subject, rest: Mapping[int, KvEncoding]) -> dict[int, KvScales]:
    peaks = measure_peaks(subject.model, subject.operations, subject.spec, subject.device)
    return {layer: _scales_of(layer, peaks[layer], encoding) for layer, encoding in rest.items()}


def _scales_of(layer: int, peaks: Peaks, encoding: KvEncoding) -> KvScales:
    if not all(bool(peak_K.isfinite().all()) for peak_K in peaks):
        raise CheckpointError(
            f"calibration met keys or values in layer {layer} that are no numbers; the checkpoint "
            f"holds such weights, or they overflow in this dtype"
        )
    return KvScales(*(_scale_of(peak_K, encoding) for peak_K in peaks))


def _scale_of(peak_K: Tensor, encoding: KvEncoding) -> Tensor:
    scale_K = peak_K * (encoding.margin / encoding.limit)
    return torch.where(scale_K > 0, scale_K, 1.0)


def _placed(scales: KvScales, device: torch.device) -> KvScales:
    return KvScales(*(scale_K.to(device) for scale_K in scales))


def _without(encodings: Mapping[int, KvEncoding]) -> list[str]:
    bare = [layer for layer, encoding in encodings.items() if not encoding.scaled]
    if not bare:
        return []
    encoding = encodings[bare[0]]
    return [
        f"ATTENTION: keys and values of {len(bare)} of {len(encodings)} layers are stored as "
        f"{encoding.name} without scales: what is beyond +-{encoding.limit:g} is cut off there, "
        f"and answers may be much worse; scales of the checkpoint or calibrated ones cost nothing"
    ]


def _partial(
    rest: Mapping[int, KvEncoding], taken: Mapping[int, KvScales], stored: StoredScales
) -> list[str]:
    asked = [layer for layer, one in rest.items() if one.source is ScaleSource.EITHER]
    if not asked or not (taken or stored.halves):
        return []
    return [
        f"the checkpoint has scales of keys and values for {len(taken)} of "
        f"{len(taken) + len(asked)} layers; calibrated are {_listed(asked)}{_half(stored)}"
    ]


def _half(stored: StoredScales) -> str:
    names = list(stored.halves.values())
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f" ({names[0]}{more} has no counterpart)" if names else ""


def _listed(layers: Sequence[int]) -> str:
    shown = ", ".join(map(str, layers[:LISTED]))
    return f"{shown} and {len(layers) - LISTED} more" if len(layers) > LISTED else shown


def _origin(
    encodings: Mapping[int, KvEncoding],
    taken: Mapping[int, KvScales],
    made: Mapping[int, KvScales],
) -> str:
    if not encodings:
        return ""
    names = ", ".join(sorted({encoding.name for encoding in encodings.values()}))
    if taken and made:
        return f"{names}, scales of the checkpoint and calibrated ones"
    if taken or made:
        return f"{names}, scales {'of the checkpoint' if taken else 'calibrated'}"
    return f"{names}, no scales"
