"""The serial roofline: the time that a workload takes if nothing but memory and products counts.

A decode step reads all weights once, or computes its products, whichever takes longer; of experts,
those that somebody in it is expected to choose. Then it reads the keys and values of everybody in
it, or attends to them, whichever takes longer. A prompt costs its products and its attention. No
two of these overlap; host, launches and sampling cost nothing, nor does what ranks tell each other:
all is counted for one of them. Every answer's first token comes from its prompt; a beginning that
two prompts share is computed once.
"""

from collections.abc import Sequence
from typing import NamedTuple

from jackfield.core.api import LayerGroup, ModelSpec
from jackfield.core.bench.expert_cost import ExpertCost
from jackfield.core.bench.expert_loads import Counts
from jackfield.core.bench.model_outline import ModelOutline
from jackfield.core.bench.workloads import Workload
from jackfield.core.executors.division import rank_spec


class Machine(NamedTuple):
    """What a device does at best: bytes per second from memory, operations per second."""

    bandwidth: float
    flops: float


class PairCost(NamedTuple):
    """Operations of one query position with one key position, all heads of one layer: of a prompt,
    and of a decode."""

    prompt: int
    decode: int

    @classmethod
    def of(cls, spec: ModelSpec) -> "PairCost":
        """spec: of the rank. Latent attention of prompts has expanded heads, that of decodes
        absorbed ones."""
        latent = spec.latent
        if latent is None:
            return cls(*[4 * spec.num_heads * spec.head_dim] * 2)
        prompt, decode = latent.query + latent.value, latent.stored + latent.rank
        return cls(2 * spec.num_heads * prompt, 2 * spec.num_heads * decode)


class ModelCost(NamedTuple):
    """Of one rank of a decoder. body, head: weights in products, per token and per sampled token.

    weight_bytes: that every step reads. kv_bytes: per token and layer. experts: of which a step
    reads some; a token's are in `body`.
    """

    body: int
    head: int
    weight_bytes: int
    kv_bytes: float
    pairs: PairCost
    groups: tuple[LayerGroup, ...]
    experts: ExpertCost | None = None

    @classmethod
    def of(cls, outline: ModelOutline, kv_bytes: float) -> "ModelCost":
        """kv_bytes: per token and layer of one rank."""
        experts = ExpertCost.of(outline)
        return cls(
            outline.weights + (0 if experts is None else experts.active),
            outline.head,
            outline.weight_bytes + outline.head_bytes,
            kv_bytes,
            PairCost.of(rank_spec(outline.spec, outline.shard)),
            outline.spec.groups,
            experts,
        )

    @classmethod
    def plain(cls, spec: ModelSpec, itemsize: int, kv_bytes: float, ranks: int) -> "ModelCost":
        """Of a model of which nothing else is known: each token needs all of it, but for the
        embedding. itemsize: bytes of a weight."""
        head = spec.vocab_size * spec.hidden_size
        pairs = PairCost(*(each // ranks for each in PairCost.of(spec)))
        body, size = (spec.num_parameters - head) // ranks, spec.num_parameters * itemsize // ranks
        return cls(body, head // ranks, size, kv_bytes, pairs, spec.groups)

    def counted(self, before: Counts, after: Counts) -> "ModelCost":
        """With experts as likely as they were chosen between the two."""
        if self.experts is None:
            return self
        return self._replace(experts=self.experts.counted(before, after))

    def step_bytes(self, tokens: int) -> float:
        """Of the weights that so many tokens need."""
        return self.weight_bytes + (self.experts.read(tokens) if self.experts else 0)


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
    return (products + cost.pairs.prompt * pairs) / machine.flops


def decode_seconds(contexts: Sequence[int], cost: ModelCost, machine: Machine) -> float:
    """One step that adds a token to sequences of these lengths."""
    products = 2 * (cost.body + cost.head) * len(contexts)
    cached = sum(len(group.layers) * _seen(contexts, group.window) for group in cost.groups)
    read = cost.step_bytes(len(contexts))
    weights = max(read / machine.bandwidth, products / machine.flops)
    per_pair = max(cost.kv_bytes / machine.bandwidth, cost.pairs.decode / machine.flops)
    return weights + per_pair * cached


def _pairs(start: int, end: int, window: int | None) -> float:
    """Key positions that the query positions see, summed."""
    edge = end if window is None else min(end, window)
    growing = (edge**2 - min(start, edge) ** 2) / 2
    return growing if window is None else growing + window * (end - max(start, edge))


def _seen(contexts: Sequence[int], window: int | None) -> int:
    return sum(contexts) if window is None else sum(min(length, window) for length in contexts)
