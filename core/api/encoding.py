"""How keys and values are stored: their element type, and what they are divided by."""

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class ScaleSource(StrEnum):
    """Where the scales of an encoding come from. All are fixed before the first request.

    checkpoint: from the model's files; one that is missing is an error. calibration: from the
    largest keys and values of one pass over a fixed sequence of tokens. either: the files', and
    calibration for layers that have none.
    """

    CHECKPOINT = "checkpoint"
    CALIBRATION = "calibration"
    EITHER = "either"


class KvEncoding(NamedTuple):
    """A lossy form of keys and values. They are divided by the scale of their layer and head,
    clamped to +-limit, and cast to the nearest.

    name: for messages and for the identity of blocks. dtype: of what is stored. limit: the largest
    magnitude that is stored. scaled: whether there are scales; without them all are 1. source:
    where they come from. margin: of calibration, how much larger than the largest number it saw
    is the largest that can be stored.
    """

    name: str
    dtype: "torch.dtype"
    limit: float
    scaled: bool = True
    source: ScaleSource = ScaleSource.EITHER
    margin: float = 1.0


class KvScales(NamedTuple):
    """What the keys and values of one layer are divided by when they are stored: float32, one per
    key/value head, fixed before the first request."""

    k_K: "Tensor"
    v_K: "Tensor"
