"""Attention of decodes and of prompts, as a step does it: prepared once, then layer after layer."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from jackfield.core.api import (
    AttentionKernel,
    AttnBatch,
    ConfigError,
    KvEncoding,
    KvLayer,
    KvScales,
    LayerGroup,
)
from jackfield.core.api.kernel import SliceExtent
from jackfield.core.bench.kernels.case import Case, Work
from jackfield.core.bench.kernels.latent import (
    LatentCalls,
    first_tokens,
    heads_numel,
    heads_of,
    projected_of,
    write_latent,
)
from jackfield.core.bench.kernels.sizes import DecodeSize
from jackfield.core.bench.kernels.subject import KernelSubject, encoding_8_bits
from jackfield.core.bench.roofline import PairCost
from jackfield.core.bench.unloaded import BLOCK_SIZE
from jackfield.core.engine.operations import Table
from jackfield.core.kv.storage import allocate

OPERATION = "attention"
FILL_TOKENS = 8192
PROMPT_LAYERS = 2
SHORT = 4096
"""Up to here a prompt goes through as many layers as the model has, as decodes do."""
SEED = 0


def attention_cases(subject: KernelSubject) -> Iterator[Case]:
    """Decodes with keys and values in the model's type and in 8 bits; prompts in the first."""
    for encoding in (None, encoding_8_bits()):
        table = subject.plain if encoding is None else subject.encoded
        form = str(subject.dtype).removeprefix("torch.") if encoding is None else encoding.name
        for size in subject.sizes.decodes:
            build = partial(_decodes, subject, table, encoding, size)
            yield Case(OPERATION, f"decode {size.title} {form}", _owner(table), build)
    for length in subject.sizes.prompts:
        build = partial(_prompt, subject, length)
        yield Case(OPERATION, f"prompt {length}", _owner(subject.plain), build)


def _owner(table: Table | str) -> str:
    return "" if isinstance(table, str) else table.owners[OPERATION]


def _decodes(
    subject: KernelSubject, table: Table | str, encoding: KvEncoding | None, size: DecodeSize
) -> Work:
    if isinstance(table, str):
        raise ConfigError(table)
    kernel, lens = table.operations.attention, size.lens()
    tables_SB = block_tables(lens, subject.device)
    num_blocks = sum(map(_blocks, lens))
    layout = kernel.layout(subject.kv_spec(encoding))
    read = layout.bytes_per_block * num_blocks
    # As many layers as the model has, since preparing is done once for all of them.
    layers = min(subject.copies(read), subject.spec.num_layers)
    pool = filled_layers(subject, kernel, encoding, num_blocks, layers)
    batch = decode_batch(lens, tables_SB, subject.device)
    positions = sum(lens) * layout.bytes_per_block / BLOCK_SIZE
    calls, cost = _Calls(subject, kernel, batch, pool), AttentionCost.of(subject)
    return Work(
        calls.each(subject.spec.num_layers),
        kernel.capturable(len(lens), max(lens)),
        positions + cost.bytes(len(lens)),
        cost.decode * sum(lens) + cost.token * len(lens),
        layers * read < subject.rotated,
        calls.prepare,
    )


def _prompt(subject: KernelSubject, length: int) -> Work:
    kernel, spec = subject.plain.operations.attention, subject.spec
    pool = filled_layers(subject, kernel, None, _blocks(length), PROMPT_LAYERS)
    tables_SB = block_tables([length], subject.device)
    batch = prompt_batch(length, tables_SB, 0, subject.device)
    calls, cost = _Calls(subject, kernel, batch, pool), AttentionCost.of(subject)
    cached = kernel.layout(subject.kv_spec(None)).bytes_per_block / BLOCK_SIZE
    pairs = length * (length + 1) / 2
    count = spec.num_layers if length <= SHORT else PROMPT_LAYERS
    return Work(
        calls.each(count), False, length * cached + cost.bytes(length),
        cost.prompt * pairs + cost.token * length, False, calls.prepare,
    )  # fmt: skip


class AttentionCost(NamedTuple):
    """Of one layer, beside what is read of the pool. decode, prompt: operations of a pair of
    positions. token: of a token by itself. states: bytes of its query and of what comes out.
    weights: bytes that are read in any case."""

    decode: int
    prompt: int
    token: int
    states: int
    weights: int

    @classmethod
    def of(cls, subject: KernelSubject) -> "AttentionCost":
        """Heads of latent attention are expanded, or absorbed: either multiplies with them."""
        spec, itemsize = subject.spec, subject.dtype.itemsize
        prompt, decode = PairCost.of(spec)
        if spec.latent is None:
            return cls(decode, prompt, 0, 2 * spec.num_heads * spec.head_dim * itemsize, 0)
        numel, latent = heads_numel(subject), spec.latent
        states = spec.num_heads * (latent.query + latent.value) * itemsize
        return cls(decode, prompt, 2 * numel, states, numel * itemsize)

    def bytes(self, tokens: int) -> int:
        """That so many tokens bring."""
        return self.weights + tokens * self.states


class _Calls:
    """Attention of one batch, over and over."""

    def __init__(
        self,
        subject: KernelSubject,
        kernel: AttentionKernel,
        batch: AttnBatch,
        pool: Sequence[KvLayer],
    ) -> None:
        tokens, spec = batch.slots_T.shape[0], subject.spec
        self._latent = LatentCalls(subject, kernel, len(pool)) if spec.latent else None
        if self._latent is None:
            self._q = subject.random(tokens, spec.num_heads, spec.head_dim)
            self._out = torch.empty_like(self._q)
        else:
            self._q, self._out = self._latent.tensors(tokens)
        self._kernel, self._batch, self._pool = kernel, batch, pool
        self._step: Any = None

    def prepare(self) -> None:
        """Before the first layer."""
        self._step = self._kernel.prepare(self._batch)

    def each(self, least: int) -> list[Callable[[], object]]:
        """One call per layer, going around the pool."""
        rounds = -(-least // len(self._pool))
        calls: list[Callable[[], object]] = [
            partial(self._attend, place) for place in range(len(self._pool))
        ]
        return calls * rounds

    def _attend(self, place: int) -> Tensor:
        layer = self._pool[place]
        if self._latent is not None:
            return self._latent(self._q, place, layer, self._step, self._out)
        return self._kernel.forward(self._q, layer, self._step, self._out)


def filled_layers(
    subject: KernelSubject,
    kernel: AttentionKernel,
    encoding: KvEncoding | None,
    num_blocks: int,
    count: int,
) -> list[KvLayer]:
    """Layers whose blocks hold random keys and values, written by the kernel itself."""
    spec, device = subject.spec, subject.device
    layout = kernel.layout(subject.kv_spec(encoding))
    ones = torch.ones(spec.num_kv_heads, device=device)
    scales = {} if encoding is None else dict.fromkeys(range(count), KvScales(ones, ones))
    group = LayerGroup(tuple(range(count)))
    pool = allocate([group], [layout], spec.softmax_scale, num_blocks, device, [encoding], scales)
    tokens = min(FILL_TOKENS, num_blocks * BLOCK_SIZE)
    write = _writer(subject, kernel, tokens)
    every = torch.arange(num_blocks, device=device, dtype=torch.int32).unsqueeze(0)
    for first in range(0, num_blocks, tokens // BLOCK_SIZE):
        tables_SB = every[:, first : first + tokens // BLOCK_SIZE]
        length = tables_SB.shape[1] * BLOCK_SIZE
        step = kernel.prepare(prompt_batch(length, tables_SB, first * BLOCK_SIZE, device))
        for layer in pool:
            write(length, layer, step)
    return pool


def _writer(
    subject: KernelSubject, kernel: AttentionKernel, tokens: int
) -> Callable[[int, KvLayer, Any], None]:
    """Stores so many tokens at most."""
    spec = subject.spec
    if spec.latent is not None:
        projected = projected_of(subject, tokens, heads_of(subject))
        return lambda length, layer, step: write_latent(
            subject, kernel, first_tokens(projected, length), layer, step
        )
    keys, values = (subject.random(tokens, spec.num_kv_heads, spec.head_dim) for _ in range(2))
    return lambda length, layer, step: kernel.write(keys[:length], values[:length], layer, step)


def block_tables(lens: Sequence[int], device: torch.device) -> Tensor:
    """Blocks of sequences of these lengths, all different, in no order: `[S, B]`."""
    counts = [_blocks(length) for length in lens]
    order = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(SEED))
    found = torch.zeros(len(lens), max(counts), dtype=torch.int32)
    for row, part in zip(found, torch.split(order, counts), strict=True):
        row[: len(part)] = part
    return found.to(device)


def decode_batch(lens: Sequence[int], tables_SB: Tensor, device: torch.device) -> AttnBatch:
    """One more token for each."""
    lens_S = torch.tensor(lens, dtype=torch.int32, device=device)
    last_S = (lens_S - 1).long()
    blocks_S = tables_SB.gather(1, (last_S // BLOCK_SIZE).unsqueeze(1)).squeeze(1).long()
    starts = torch.arange(len(lens) + 1, dtype=torch.int32, device=device)
    slots = blocks_S * BLOCK_SIZE + last_S % BLOCK_SIZE
    return AttnBatch(starts, lens_S, tables_SB, slots, len(lens), 1, max(lens), ())


def prompt_batch(length: int, tables_SB: Tensor, slot: int, device: torch.device) -> AttnBatch:
    """One prompt that goes to the slots from `slot` on."""
    starts = torch.tensor([0, length], dtype=torch.int32, device=device)
    slots = torch.arange(slot, slot + length, device=device)
    extents = (SliceExtent(0, length, length),)
    return AttnBatch(starts, starts[1:], tables_SB, slots, 0, length, length, extents)


def _blocks(length: int) -> int:
    return -(-length // BLOCK_SIZE)
