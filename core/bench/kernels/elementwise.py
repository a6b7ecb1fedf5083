"""What works on each token by itself: norms, rotation, gates, and storing keys and values."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from jackfield.core.api import AttnStep, HeadNorms, KvLayer, Projected
from jackfield.core.bench.kernels.attention import block_tables, decode_batch, filled_layers
from jackfield.core.bench.kernels.case import Case, Work
from jackfield.core.bench.kernels.latent import (
    heads_of,
    latent_sizes,
    projected_of,
    write_latent,
)
from jackfield.core.bench.kernels.subject import KernelSubject
from jackfield.core.bench.unloaded import BLOCK_SIZE

EPS = 1e-6
Call = Callable[[], object]


def elementwise_cases(subject: KernelSubject) -> Iterator[Case]:
    """Each at every number of tokens. Storing is an operation of attention: `attention.write`."""
    latent = subject.spec.latent is not None
    makers: dict[str, Callable[[KernelSubject, int], Work]] = {
        "rms_norm": _rms_norm, "add_rms_norm": _add_rms_norm,
        "rope": _latent_rope if latent else _rope, "attention": _write,
    }  # fmt: skip
    if not latent:
        makers["qk_norm_rope_write"] = _qk_norm_rope_write
    for name, make in makers.items():
        if name not in subject.plain.owners:
            continue  # optional, and nobody brings it
        for tokens in subject.sizes.tokens:
            size = f"write {tokens}" if make is _write else str(tokens)
            yield Case(name, size, subject.plain.owners[name], partial(make, subject, tokens))
    yield from _gate_cases(subject)


def _gate_cases(subject: KernelSubject) -> Iterator[Case]:
    """Of each width that the model has; none if all of its layers have experts only."""
    widths = subject.outline.gates
    for width in widths:
        for tokens in subject.sizes.tokens:
            size = str(tokens) if len(widths) == 1 else f"{tokens}x{width}"
            build = partial(_silu_mul, subject, tokens, width)
            yield Case("silu_mul", size, subject.plain.owners["silu_mul"], build)


class _Width(NamedTuple):
    """Numbers that one token has: of all heads, of queries, of keys and values; of rotation."""

    merged: int
    queries: int
    stored: int
    angles: int

    @classmethod
    def of(cls, subject: KernelSubject) -> "_Width":
        """In the model."""
        spec = subject.spec
        queries, stored = spec.num_heads * spec.head_dim, 2 * spec.num_kv_heads * spec.head_dim
        return cls(queries + stored, queries, stored, spec.head_dim)


def _rms_norm(subject: KernelSubject, tokens: int) -> Work:
    hidden, norm = subject.spec.hidden_size, subject.plain.operations.rms_norm

    def make() -> Call:
        x, weight = subject.random(tokens, hidden), subject.random(hidden)
        return lambda: norm(x, weight, EPS)

    return _work(subject, make, 2 * tokens * hidden, norm.capturable())


def _add_rms_norm(subject: KernelSubject, tokens: int) -> Work:
    hidden, norm = subject.spec.hidden_size, subject.plain.operations.add_rms_norm

    def make() -> Call:
        x, residual = subject.random(tokens, hidden), subject.random(tokens, hidden)
        weight = subject.random(hidden)
        return lambda: norm(x, residual, weight, EPS)

    return _work(subject, make, 4 * tokens * hidden, norm.capturable())


def _silu_mul(subject: KernelSubject, tokens: int, width: int) -> Work:
    gate = subject.plain.operations.silu_mul

    def make() -> Call:
        both = subject.random(tokens, 2 * width)
        return lambda: gate(both)

    return _work(subject, make, 3 * tokens * width, gate.capturable())


def _rope(subject: KernelSubject, tokens: int) -> Work:
    rope, width = subject.plain.operations.rope, _Width.of(subject)

    def make() -> Call:
        q_TNH, k_TKH, _ = _split(subject, _merged(subject, tokens))
        cos_TW, sin_TW = _angles(subject, tokens)
        return lambda: rope(q_TNH, k_TKH, cos_TW, sin_TW)

    numbers = 2 * tokens * (width.queries + width.stored // 2)
    return _work(subject, make, numbers, rope.capturable(), 4 * tokens * width.angles)


def _latent_rope(subject: KernelSubject, tokens: int) -> Work:
    """Of the rotated parts, which lie behind others."""
    rope, sizes = subject.plain.operations.rope, latent_sizes(subject)
    heads, width = subject.spec.num_heads, sizes.rotated

    def make() -> Call:
        q_TNQ = subject.random(tokens, heads, sizes.query)
        stored_T1H = subject.random(tokens, 1, sizes.stored)
        angles = torch.rand(tokens, width // 2, device=subject.device)
        cos_TW, sin_TW = angles.cos(), angles.sin()
        return lambda: rope(
            q_TNQ[..., sizes.plain :], stored_T1H[..., sizes.rank :], cos_TW, sin_TW
        )

    numbers = 2 * tokens * (heads + 1) * width
    return _work(subject, make, numbers, rope.capturable(), 4 * tokens * width)


def _write(subject: KernelSubject, tokens: int) -> Work:
    """Each token is a sequence of its own, as in a step of decodes."""
    kernel = subject.plain.operations.attention
    lens, device = [1] * tokens, subject.device
    batch = decode_batch(lens, block_tables(lens, device), device)
    [layer] = filled_layers(subject, kernel, None, tokens, 1)
    prepared: list[AttnStep] = []

    def prepare() -> None:
        prepared[:] = [kernel.prepare(batch)]

    make = _latent_write if subject.spec.latent else _dense_write
    build, numbers, more = make(subject, tokens, layer, prepared)
    work = _work(subject, build, numbers, kernel.capturable(tokens, BLOCK_SIZE), more)
    return work._replace(begin=prepare)


def _dense_write(
    subject: KernelSubject, tokens: int, layer: KvLayer, prepared: Sequence[AttnStep]
) -> tuple[Callable[[], Call], int, int]:
    kernel = subject.plain.operations.attention

    def make() -> Call:
        _, k_TKH, v_TKH = _split(subject, _merged(subject, tokens))
        return lambda: kernel.write(k_TKH, v_TKH, layer, prepared[0])

    return make, 2 * tokens * _Width.of(subject).stored, 0


def _latent_write(
    subject: KernelSubject, tokens: int, layer: KvLayer, prepared: Sequence[AttnStep]
) -> tuple[Callable[[], Call], int, int]:
    """With the norm and the rotation of what is stored, and of the rotated parts of queries."""
    kernel, sizes = subject.plain.operations.attention, latent_sizes(subject)
    heads = heads_of(subject)

    def make() -> Call:
        projected = projected_of(subject, tokens, heads)
        return lambda: write_latent(subject, kernel, projected, layer, prepared[0])

    rotated = subject.spec.num_heads * sizes.rotated
    return make, 2 * tokens * (sizes.stored + rotated), 4 * tokens * sizes.rotated


def _qk_norm_rope_write(subject: KernelSubject, tokens: int) -> Work:
    fused, width = subject.plain.operations.qk_norm_rope_write, _Width.of(subject)
    assert fused is not None
    spec, num_blocks = subject.spec, -(-tokens // BLOCK_SIZE)
    [layer] = filled_layers(subject, subject.plain.operations.attention, None, num_blocks, 1)
    slots_T = torch.arange(tokens, device=subject.device)

    def make() -> Call:
        norms = HeadNorms(subject.random(spec.head_dim), subject.random(spec.head_dim), EPS)
        projected = Projected(
            _merged(subject, tokens), spec.num_heads, spec.num_kv_heads,
            *_angles(subject, tokens), norms,
        )  # fmt: skip
        return lambda: fused(projected, layer, slots_T)

    return _work(
        subject, make, 2 * tokens * width.merged, fused.capturable(), 4 * tokens * width.angles
    )


def _work(
    subject: KernelSubject, make: Callable[[], Call], numbers: int, capturable: bool, more: int = 0
) -> Work:
    """numbers: that are read or written, in the model's type. more: bytes of others."""
    size = numbers * subject.dtype.itemsize + more
    return subject.work(make, size, capturable=capturable, bytes=size)


def _merged(subject: KernelSubject, tokens: int) -> Tensor:
    spec = subject.spec
    return subject.random(tokens, spec.num_heads + 2 * spec.num_kv_heads, spec.head_dim)


def _split(subject: KernelSubject, qkv_TMH: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    heads = [subject.spec.num_heads, *[subject.spec.num_kv_heads] * 2]
    q_TNH, k_TKH, v_TKH = torch.split(qkv_TMH, heads, 1)
    return q_TNH, k_TKH, v_TKH


def _angles(subject: KernelSubject, tokens: int) -> tuple[Tensor, Tensor]:
    shape = (tokens, subject.spec.head_dim // 2)
    angles = torch.rand(shape, device=subject.device, dtype=torch.float32)
    return angles.cos(), angles.sin()
