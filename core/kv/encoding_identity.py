"""What tells blocks of one encoding from those of another."""

import hashlib
from collections.abc import Mapping, Sequence

import torch

from jackfield.core.api import KvScales, KvSpec

DIGEST_BYTES = 16


def encoding_identity(specs: Sequence[KvSpec], scales: Mapping[int, KvScales]) -> bytes:
    """16 bytes: equal if and only if the same keys and values would be stored as the same bits.

    specs: of the layer groups. scales: by layer. The layout of a block has no part in it.
    """
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for spec in specs:
        name = str(spec.dtype) if spec.encoding is None else spec.encoding.name
        digest.update(f"{spec.dtype} {name}\0".encode())
    for layer in sorted(scales):
        for scale_K in scales[layer]:
            values = scale_K.detach().to("cpu", torch.float32).contiguous()
            digest.update(f"{layer} {values.numel()}\0".encode() + values.numpy().tobytes())
    return digest.digest()


def joined_identity(identities: Sequence[bytes]) -> bytes:
    """Of the ranks, each of which stores a part: that of the only one, or one of all of them."""
    if len(identities) == 1:
        return identities[0]
    return hashlib.blake2b(b"".join(identities), digest_size=DIGEST_BYTES).digest()
