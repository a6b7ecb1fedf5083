"""Experts that tokens chose at random, and the choice itself.

Shape suffixes: T tokens, E experts, K experts of a token, D model width, F feed-forward width.
"""

from collections.abc import Callable, Iterator
from functools import partial
from math import ceil
from typing import Any, NamedTuple

import torch
from torch import Tensor

from jackfield.core.api import QuantExpert
from jackfield.core.bench.kernels.case import Case, Work
from jackfield.core.bench.kernels.products import made_up
from jackfield.core.bench.kernels.subject import LEAST_CALLS, KernelSubject
from jackfield.core.bench.outline_experts import ExpertLayer

PLAIN, QUANTIZED, ROUTE = "experts", "quant_experts", "route"
LEAST_LAYERS, MOST_LAYERS = 2, 4
"""Whose weights are held: one layer's can be a gigabyte or two. With two, no call finds in a cache
what the one before it read last."""
MOST_CAPTURED = 512
"""Tokens of a step that a CUDA graph may hold."""
CHOICE_BYTES = 12
"""Of an expert's id and its weight."""
SEED = 0
Multiply = Callable[[Tensor, "Chosen", Tensor | None], object]


class Chosen(NamedTuple):
    """By the tokens of one call; -1 = an expert of another rank."""

    ids_TK: Tensor
    weights_TK: Tensor

    @property
    def distinct(self) -> set[int]:
        """Experts that are read."""
        return set(self.ids_TK.flatten().tolist()) - {-1}

    @property
    def assignments(self) -> int:
        """Pairs of a token and an expert that is here."""
        return int((self.ids_TK >= 0).sum())


def expert_cases(subject: KernelSubject) -> Iterator[Case]:
    """Layers that are alike once, at every number of tokens."""
    for layer in _layers(subject):
        name = PLAIN if layer.packed is None else QUANTIZED
        owner = subject.plain.owners.get(name, "")
        for tokens in subject.sizes.products:
            yield Case(name, _size(layer, tokens), owner, partial(_experts, subject, layer, tokens))


def route_cases(subject: KernelSubject) -> Iterator[Case]:
    """At every number of tokens; none if nobody serves it, since models choose by themselves."""
    owner = subject.plain.owners.get(ROUTE)
    for layer in _layers(subject) if owner is not None else ():
        routing = layer.choice.routing
        for tokens in subject.sizes.tokens:
            size = f"{tokens}, {routing.top_k} of {routing.num_experts}"
            yield Case(ROUTE, size, owner or "", partial(_route, subject, layer, tokens))


def _layers(subject: KernelSubject) -> list[ExpertLayer]:
    found = {
        (one.held, one.hidden, one.width, one.weight_bytes, one.choice): one
        for one in subject.outline.experts
    }
    return list(found.values())


def _size(layer: ExpertLayer, tokens: int) -> str:
    routing = layer.choice.routing
    form = "" if layer.packed is None else f" {layer.packed.down.kind.value}"
    some = f"{routing.top_k} of {routing.num_experts}"
    return f"{tokens}, {some} {layer.hidden}x{layer.width}{form}"


def _experts(subject: KernelSubject, layer: ExpertLayer, tokens: int) -> Work:
    """Each call has a choice of its own, and goes to the next layer."""
    choices = list(choices_of(layer, tokens, LEAST_CALLS))
    distinct = [len(chosen.distinct) for chosen in choices]
    read = sum(distinct) / len(choices) * layer.weight_bytes
    layers = min(max(subject.copies(ceil(read)), LEAST_LAYERS), MOST_LAYERS)
    make = _plain if layer.packed is None else _packed
    held = [make(subject, layer) for _ in range(layers)]
    counts_E = None
    if layer.held == layer.choice.routing.num_experts:  # otherwise the model counts by itself
        counts_E = torch.zeros(layer.held, dtype=torch.int64, device=subject.device)
    calls: list[Callable[[], object]] = []
    for place, chosen in enumerate(choices):
        there = Chosen(*(part.to(subject.device) for part in chosen))
        x_TD = subject.random(tokens, layer.hidden)
        calls.append(partial(held[place % layers], x_TD, there, counts_E))
    flops = 2 * layer.weights * sum(one.assignments for one in choices) / len(choices)
    states = 2 * tokens * layer.hidden * subject.dtype.itemsize
    return Work(
        calls, _capturable(subject, layer, tokens), read + states, flops,
        _touched(choices, layers) * layer.weight_bytes < subject.rotated,
    )  # fmt: skip


def choices_of(layer: ExpertLayer, tokens: int, count: int) -> Iterator[Chosen]:
    """All experts are equally likely. The same ones each time."""
    generator, routing = torch.Generator().manual_seed(SEED), layer.choice.routing
    for _ in range(count):
        scores_TE = torch.rand(tokens, routing.num_experts, generator=generator)
        ids_TK = scores_TE.topk(routing.top_k, sorted=False).indices
        weights_TK = torch.rand(tokens, routing.top_k, generator=generator)
        yield Chosen(ids_TK.masked_fill(ids_TK >= layer.held, -1), weights_TK)


def _touched(choices: list[Chosen], layers: int) -> int:
    """Different experts of all calls together."""
    return len({
        (place % layers, expert)
        for place, chosen in enumerate(choices)
        for expert in chosen.distinct
    })  # fmt: skip


def _capturable(subject: KernelSubject, layer: ExpertLayer, tokens: int) -> bool:
    operations = subject.plain.operations
    serves: Any = operations.experts if layer.packed is None else operations.quant_experts
    return tokens <= MOST_CAPTURED and bool(serves.capturable())


def _plain(subject: KernelSubject, layer: ExpertLayer) -> Multiply:
    experts = subject.plain.operations.experts
    assert experts is not None
    gate_up_E2FD = torch.stack(
        [subject.random(2 * layer.width, layer.hidden) for _ in range(layer.held)]
    )
    down_EDF = torch.stack([subject.random(layer.hidden, layer.width) for _ in range(layer.held)])
    return lambda x_TD, chosen, counts_E: experts(x_TD, *chosen, gate_up_E2FD, down_EDF, counts_E)


def _packed(subject: KernelSubject, layer: ExpertLayer) -> Multiply:
    experts, one = subject.plain.operations.quant_experts, layer.packed
    assert experts is not None and one is not None
    made = (
        QuantExpert(*(made_up(weight, subject.device) for weight in one)) for _ in range(layer.held)
    )
    packed = experts.pack(made, layer.held)
    return lambda x_TD, chosen, counts_E: experts(x_TD, *chosen, packed, counts_E)


def _route(subject: KernelSubject, layer: ExpertLayer, tokens: int) -> Work:
    route, choice = subject.plain.operations.route, layer.choice
    assert route is not None
    count, top_k = choice.routing.num_experts, choice.routing.top_k

    def make() -> Callable[[], object]:
        logits_TE = subject.random(tokens, count).to(choice.logits)
        bias_E = torch.zeros(count, device=subject.device) if choice.bias else None
        return lambda: route(logits_TE, choice.routing, bias_E)

    size = tokens * (count * choice.logits.itemsize + top_k * CHOICE_BYTES)
    return subject.work(make, size, capturable=route.capturable(), bytes=size)
