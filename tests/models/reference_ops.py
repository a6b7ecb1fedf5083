"""The operations and the attention of the tests: as plain as they can be written."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear, silu

from jackfield.core.api.errors import CheckpointError
from jackfield.core.api.kernel import Operations, Projected
from jackfield.core.api.latent import LatentProjected
from jackfield.core.api.model import Model, ModelInputs, ModelSpec, Shard, Split
from jackfield.core.engine.attend import latent_rotated, rotated


class PlainLinear:
    def pack(self, weight_OI: Tensor, bias_O: Tensor | None) -> Any:
        return weight_OI, bias_O

    def __call__(self, x_TI: Tensor, packed: Any) -> Tensor:
        return linear(x_TI, *packed)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))


def add_rms_norm(
    x_TD: Tensor, residual_TD: Tensor, weight_D: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    residual_TD += x_TD
    return rms_norm(residual_TD, weight_D, eps), residual_TD


def rope(q_TNH: Tensor, k_TKH: Tensor, cos_TW: Tensor, sin_TW: Tensor) -> tuple[Tensor, Tensor]:
    for heads in (q_TNH, k_TKH):
        width = cos_TW.shape[1]
        first, second = heads[..., :width].clone(), heads[..., width : 2 * width].clone()
        cos, sin = cos_TW[:, None], sin_TW[:, None]
        heads[..., :width] = first * cos - second * sin
        heads[..., width : 2 * width] = second * cos + first * sin
    return q_TNH, k_TKH


def silu_mul(gate_up_T2F: Tensor) -> Tensor:
    gate, up = gate_up_T2F.chunk(2, dim=-1)
    return silu(gate) * up


def operations() -> Operations:
    nothing: Any = None
    serving: Any = (nothing, rms_norm, add_rms_norm, rope, silu_mul, PlainLinear(), nothing)
    return Operations(*serving)


class GrowingCache:
    """Attention of one sequence over lists that grow with each step."""

    def __init__(self, spec: ModelSpec) -> None:
        self._scale = spec.softmax_scale
        self._windows = {layer: group.window for group in spec.groups for layer in group.layers}
        self._kept: dict[int, tuple[Tensor, Tensor]] = {}

    def __call__(self, layer: int, q_TNH: Tensor, k_TKH: Tensor, v_TKH: Tensor) -> Tensor:
        if layer in self._kept:
            keys, values = self._kept[layer]
            k_TKH, v_TKH = torch.cat([keys, k_TKH]), torch.cat([values, v_TKH])
        self._kept[layer] = (k_TKH.clone(), v_TKH.clone())
        repeats = q_TNH.shape[1] // k_TKH.shape[1]
        keys, values = (x.repeat_interleave(repeats, dim=1) for x in (k_TKH, v_TKH))
        scores = torch.einsum("tnh,snh->nts", q_TNH, keys) * self._scale
        scores = scores.masked_fill(~self._visible(layer, len(q_TNH), len(keys)), -torch.inf)
        return torch.einsum("nts,snh->tnh", scores.softmax(-1), values)

    def projected(self, layer: int, projected: Projected) -> Tensor:
        return self(layer, *rotated(operations(), projected))

    def latent(self, layer: int, projected: LatentProjected) -> Tensor:
        q_TNQ, stored_T1H = latent_rotated(operations(), projected)
        return self(layer, q_TNQ, *projected.heads.expanded(stored_T1H[:, 0]))

    def _visible(self, layer: int, queries: int, total: int) -> Tensor:
        distance = torch.arange(total - queries, total)[:, None] - torch.arange(total)
        window = self._windows[layer]
        return (distance >= 0) & (distance < (total if window is None else window))


class DictWeights:
    """Tensors of a dictionary; `left` are those that were neither taken nor ignored."""

    def __init__(self, tensors: Mapping[str, Tensor], shard: Shard | None = None) -> None:
        self.left = dict(tensors)
        self._tensors = dict(tensors)
        self._shard = shard or Shard()

    def take(
        self,
        name: str,
        shape: tuple[int, ...],
        split: Split = Split.NONE,
        part: range | None = None,
    ) -> Tensor:
        if name not in self._tensors:
            raise CheckpointError(f"no tensor {name}")
        self.left.pop(name, None)
        tensor = self._tensors[name]
        assert tuple(tensor.shape) == shape, name
        if split is Split.NONE:
            return tensor.clone()
        if part is not None:
            return tensor.narrow(split.value, part.start, len(part)).clone()
        return tensor.chunk(self._shard.size, dim=split.value)[self._shard.rank].clone()

    def take_exact(self, name: str, shape: tuple[int, ...]) -> Tensor:
        return self.take(name, shape).float()

    def has(self, name: str) -> bool:
        return name in self._tensors

    def ignore(self, pattern: str) -> None:
        self.left = {k: v for k, v in self.left.items() if not re.fullmatch(pattern, k)}


def run(
    model: Model, spec: ModelSpec, ids: list[int], cuts: Iterable[int], prompt_len: int
) -> Tensor:
    """Logits of every token, the steps ending at each of `cuts` and at the end."""
    cache, rows, start = GrowingCache(spec), [], 0
    lens = torch.full((len(ids),), prompt_len)
    with torch.inference_mode():
        for end in [*cuts, len(ids)]:
            span = slice(start, end)
            positions = torch.arange(start, end)
            inputs = ModelInputs(torch.tensor(ids[span]), positions, lens[span])
            rows.append(model.logits(model.forward(inputs, cache)))
            start = end
    return torch.cat(rows)
