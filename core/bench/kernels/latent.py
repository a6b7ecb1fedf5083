"""Latent attention as a step does it, and storing what it keeps of a token.

Shape suffixes as in `core.api.latent`.
"""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from jackfield.core.api import (
    AttentionKernel,
    AttnStep,
    KvLayer,
    LatentAttentionKernel,
    LatentHeads,
    LatentProjected,
    LatentSizes,
)
from jackfield.core.bench.kernels.subject import KernelSubject
from jackfield.core.engine.attend import latent_rotated


def latent_sizes(subject: KernelSubject) -> LatentSizes:
    """Of a model that has some."""
    assert subject.spec.latent is not None
    return subject.spec.latent


def heads_of(subject: KernelSubject) -> LatentHeads:
    """One layer's, as far as the rank has them."""
    sizes = latent_sizes(subject)
    shape = subject.spec.num_heads, sizes.value + sizes.plain, sizes.rank
    return LatentHeads.of(subject.random(*shape) * sizes.rank**-0.5, sizes.value)


def heads_numel(subject: KernelSubject) -> int:
    """Entries of these. Each is multiplied once with every token, expanded or absorbed."""
    sizes = latent_sizes(subject)
    return subject.spec.num_heads * (sizes.value + sizes.plain) * sizes.rank


def projected_of(subject: KernelSubject, tokens: int, heads: LatentHeads) -> LatentProjected:
    """As the model makes them: queries and what is to be stored lie side by side."""
    sizes, known = latent_sizes(subject), subject.outline.latent
    assert known is not None
    queries = subject.spec.num_heads * sizes.query
    both = subject.random(tokens, queries + sizes.stored)
    q, stored_TH = torch.split(both, [queries, sizes.stored], 1)
    angles_TW = torch.rand(tokens, sizes.rotated // 2, device=subject.device)
    return LatentProjected(
        q.view(tokens, -1, sizes.query), stored_TH,
        torch.ones(sizes.rank, device=subject.device, dtype=subject.dtype), known.eps,
        angles_TW.cos(), angles_TW.sin(), known.interleaved, heads,
    )  # fmt: skip


def write_latent(
    subject: KernelSubject,
    kernel: AttentionKernel,
    projected: LatentProjected,
    layer: KvLayer,
    step: AttnStep,
) -> None:
    """In one go where the kernel does that, else by operations."""
    if cast(LatentAttentionKernel, kernel).write_latent(projected, layer, step) is None:
        _, stored_T1H = latent_rotated(subject.plain.operations, projected)
        rank = latent_sizes(subject).rank
        kernel.write(stored_T1H, stored_T1H[..., :rank], layer, step)


def first_tokens(projected: LatentProjected, count: int) -> LatentProjected:
    """The same of fewer tokens."""
    parts = {name: getattr(projected, name)[:count] for name in
             ("q_TNQ", "stored_TH", "cos_TW", "sin_TW")}  # fmt: skip
    return projected._replace(**parts)


class LatentCalls:
    """Attention to layers that have heads of their own, over and over."""

    def __init__(self, subject: KernelSubject, kernel: AttentionKernel, layers: int) -> None:
        self._kernel: Any = kernel
        self._heads = [heads_of(subject) for _ in range(layers)]
        self._sizes, self._num_heads = latent_sizes(subject), subject.spec.num_heads
        self._random = subject.random

    def tensors(self, tokens: int) -> Sequence[Tensor]:
        """Queries and room for what comes out."""
        q_TNQ = self._random(tokens, self._num_heads, self._sizes.query)
        return q_TNQ, q_TNQ.new_empty(tokens, self._num_heads, self._sizes.value)

    def __call__(
        self, q_TNQ: Tensor, place: int, layer: KvLayer, step: AttnStep, out_TNV: Tensor
    ) -> Tensor:
        """place: of the layer among its pool."""
        made: Tensor = self._kernel.forward_latent(q_TNQ, self._heads[place], layer, step, out_TNV)
        return made
