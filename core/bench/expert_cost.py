"""How much of the experts' weights a step reads.

Shape suffixes: L layers that have experts, E experts of each, over all ranks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from jackfield.core.api import Shard
from jackfield.core.bench.expert_loads import Counts
from jackfield.core.bench.model_outline import ModelOutline
from jackfield.core.bench.outline_experts import ExpertLayer


@dataclass(frozen=True, slots=True, eq=False)
class ExpertCost:
    """Of one rank. chosen: how likely a token is to choose each expert. sizes_L: bytes of one
    expert. active: weights of the experts of one token, in all layers.

    Where ranks hold whole experts, `active` is the mean over them, and a step waits for the one
    that reads most.
    """

    layers: tuple[int, ...]
    chosen_LE: Tensor
    sizes_L: Tensor
    active: int
    parts: tuple[range, ...]

    @classmethod
    def of(cls, outline: ModelOutline) -> "ExpertCost | None":
        """All experts of a layer are equally likely. None = there are none."""
        experts = outline.experts
        if not experts:
            return None
        count = experts[0].choice.routing.num_experts
        assert all(one.choice.routing.num_experts == count for one in experts)
        rows = [[one.choice.routing.top_k / count] * count for one in experts]
        return cls(
            tuple(one.layer for one in experts),
            torch.tensor(rows, dtype=torch.float64),
            torch.tensor([one.weight_bytes for one in experts], dtype=torch.float64),
            round(sum(map(_active, experts))),
            _parts(outline.shard, count),
        )

    def counted(self, before: Counts, after: Counts) -> "ExpertCost":
        """As likely as they were between the two; equally, in a layer that nothing is known of."""
        rows = [
            _shares(row, before.get(layer, ()), after.get(layer, ()))
            for layer, row in zip(self.layers, self.chosen_LE, strict=True)
        ]
        return replace(self, chosen_LE=torch.stack(rows))

    def distinct(self, tokens: int) -> Tensor:
        """How many experts of each layer so many tokens are expected to choose, as if each chose by
        itself: of the rank that has most of them, float64 `[L]`."""
        some_LE = 1 - (1 - self.chosen_LE) ** tokens
        sums = [some_LE[:, part.start : part.stop].sum(1) for part in self.parts]
        return torch.stack(sums).amax(0)

    def read(self, tokens: int) -> float:
        """Bytes of those."""
        return float((self.distinct(tokens) * self.sizes_L).sum())


def _active(layer: ExpertLayer) -> float:
    """Where a rank holds some of the experts, so many of a token's are its own on average."""
    routing = layer.choice.routing
    return routing.top_k * layer.weights * layer.held / routing.num_experts


def _parts(shard: Shard, count: int) -> tuple[range, ...]:
    """Experts whose weights one rank reads."""
    if not shard.whole_experts:
        return (range(count),)
    return tuple(shard._replace(rank=rank).share(count) for rank in range(shard.size))


def _shares(row_E: Tensor, before: Sequence[int], after: Sequence[int]) -> Tensor:
    found_E = torch.tensor([end - begin for begin, end in zip(before, after, strict=True)])
    if len(found_E) == 0 or int(found_E.sum()) == 0:
        return row_E
    tokens = float(found_E.sum()) / float(row_E.sum())
    return (found_E / tokens).clamp(max=1.0).double()
