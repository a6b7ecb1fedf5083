"""The serial roofline: the time that a workload takes if nothing but memory and products counts.

A decode step reads all weights once, or computes its products, whichever takes longer, and then
reads the keys and values of everybody in it. A prompt costs its products and its attention. No
two of these overlap; host, launches and sampling cost nothing. Every answer's first token comes
from its prompt; a beginning that two prompts share is computed once.
"""

from collections.abc import Sequence
from typing import NamedTuple

from jackfield.core.api import LayerGroup, ModelSpec
from jackfield.core.bench.workloads import Workload


class Machine(NamedTuple):
    """What a device does at best: bytes per second from memory, operations per second."""

    bandwidth: float
    flops: float


class ModelCost(NamedTuple):
    """Of a dense decoder. body, head: weights in products, per token and per sampled token.

    kv_bytes: per token and layer. pair_flops: of one query position with one key position, all
    heads of one layer.
    """

    body: int
    head: int
    weight_bytes: int
    kv_bytes: float
    pair_flops: int
    groups: tuple[LayerGroup, ...]

    @classmethod
    def of(
        cls,
        spec: ModelSpec,
        *,
        tied: bool,
        itemsize: int,
        kv_bytes: float,
        body_itemsize: float | None = None,
    ) -> "ModelCost":
        """tied: the embedding is the output head. itemsize: bytes of a weight. body_itemsize: of
        one that is not the head's, where those are quantized."""
        head = spec.vocab_size * spec.hidden_size
        body = spec.num_parameters - (1 if tied else 2) * head
        pair_flops = 4 * spec.num_heads * spec.head_dim
        weight_bytes = int(body * (body_itemsize or itemsize)) + head * itemsize
        return cls(body, head, weight_bytes, kv_bytes, pair_flops, spec.groups)


def ideal_seconds(workload: Workload, cost: ModelCost, machine: Machine) -> float:
    """The roofline of a whole workload, its waves one after the other."""
    return sum(_wave_seconds(workload, wave, cost, machine) for wave in workload.waves())


def _wave_seconds(workload: Workload, wave: slice, cost: ModelCost, machine: Machine) -> float:
    prompts = [len(prompt) for prompt in workload.prompts[wave]]
    lengths = workload.lengths[wave]
    seconds = sum(
        prefill_seconds(start, end, cost, machine)
        for start, end in zip(workload.shared[wave], prompts, strict=True)
    )
    for step in range(1, max(lengths)):
        contexts = [p + step for p, n in zip(prompts, lengths, strict=True) if n > step]
        seconds += decode_seconds(contexts, cost, machine)
    return seconds


def prefill_seconds(start: int, end: int, cost: ModelCost, machine: Machine) -> float:
    """Positions `start` to `end` of a prompt, and its first token."""
    products = 2 * cost.body * (end - start) + 2 * cost.head
    pairs = sum(len(group.layers) * _pairs(start, end, group.window) for group in cost.groups)
    return (products + cost.pair_flops * pairs) / machine.flops


def decode_seconds(contexts: Sequence[int], cost: ModelCost, machine: Machine) -> float:
    """One step that adds a token to sequences of these lengths."""
    products = 2 * (cost.body + cost.head) * len(contexts)
    cached = sum(len(group.layers) * _seen(contexts, group.window) for group in cost.groups)
    weights = max(cost.weight_bytes / machine.bandwidth, products / machine.flops)
    return weights + cost.kv_bytes * cached / machine.bandwidth


def _pairs(start: int, end: int, window: int | None) -> float:
    """Key positions that the query positions see, summed."""
    edge = end if window is None else min(end, window)
    growing = (edge**2 - min(start, edge) ** 2) / 2
    return growing if window is None else growing + window * (end - max(start, edge))


def _seen(contexts: Sequence[int], window: int | None) -> int:
    return sum(contexts) if window is None else sum(min(length, window) for length in contexts)
