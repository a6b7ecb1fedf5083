"""What one rank of a model holds and multiplies, told by the model itself, without its weights.

The model is built on torch's device "meta", where tensors have a shape and no content, and runs one
step with operations that note what they are asked for. So what is counted is what is computed,
whatever the architecture: merged and quantized products, experts, and what ranks divide.

Shape suffixes: T tokens of the step, N query heads, K key/value heads, M heads of queries, keys and
values together, H head size, Q entries of a query, R and V as in `LatentHeads`.
"""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from jackfield.core.api import (
    CountsExperts,
    LatentProjected,
    ModelError,
    ModelInputs,
    ModelSpec,
    Operations,
    Projected,
    Shard,
)
from jackfield.core.bench.outline_experts import ExpertLayer, OutlineExperts, OutlineQuantExperts
from jackfield.core.bench.outline_products import OutlineProducts, Product
from jackfield.core.checkpoint.outline_weights import META, OutlineWeights
from jackfield.core.checkpoint.quant_plan import read_quant_plan

TOKENS = 2
"""Of the step that is run."""
GATED = "quant_matmul_silu_mul"
QUANTIZED = frozenset({"quant_matmul", "quant_experts"})
WHOLE = Shard()


class ModelOutline(NamedTuple):
    """weights, weight_bytes: of one rank, without embedding, head and routed experts. head,
    head_bytes: of the output head. gates: widths of `silu(gate) * up`. products: all that are
    packed. gated: those of them that `quant_matmul_silu_mul` multiplies. latent: what attention was
    given, if it is latent."""

    spec: ModelSpec
    shard: Shard
    dtype: torch.dtype
    weights: int
    weight_bytes: int
    head: int
    head_bytes: int
    products: tuple[Product, ...]
    gated: tuple[Product, ...]
    gates: tuple[int, ...]
    experts: tuple[ExpertLayer, ...]
    latent: LatentProjected | None

    @classmethod
    def of(
        cls,
        model_class: Any,
        config: Mapping[str, Any],
        dtype: torch.dtype,
        shard: Shard = WHOLE,
        served: Collection[str] = QUANTIZED,
    ) -> "ModelOutline":
        """config: a config.json. shard: of the rank. served: operations that multiply quantized
        weights as they are stored; of others they are in `dtype`. Raises what the model raises."""
        spec: ModelSpec = model_class.describe(config)
        weights = OutlineWeights(dtype, shard, read_quant_plan(config))
        notes = _Notes(weights, spec)
        with torch.inference_mode():
            model = model_class(config, notes.operations(served), shard, weights)
            model.forward(_inputs(), notes)
        counted = model.expert_histogram() if isinstance(model, CountsExperts) else None
        experts = notes.experts.layers(None if counted is None else counted.layers)
        latent = notes.latents[0] if notes.latents else None
        return cls(
            spec, shard, dtype, *_counted(weights, spec, experts), tuple(notes.products),
            tuple(notes.gated), tuple(dict.fromkeys(notes.gates)), experts, latent,
        )  # fmt: skip


def _counted(
    weights: OutlineWeights, spec: ModelSpec, experts: tuple[ExpertLayer, ...]
) -> tuple[int, int, int, int]:
    """A model that has one table of all ids has its embedding as its head."""
    taken, table = weights.taken.values(), (spec.vocab_size, spec.hidden_size)
    tables = [one for one in taken if (one.rows, *one.shape[1:]) == table]
    if not tables:
        raise ModelError(f"the model takes no weight of {table[0]} x {table[1]}, such as its head")
    others = [one for one in taken if one not in tables]
    return (
        sum(one.numel for one in others) - sum(one.held * one.weights for one in experts),
        sum(one.nbytes for one in others) - sum(one.held * one.weight_bytes for one in experts),
        tables[-1].numel,
        tables[-1].nbytes,
    )


def _inputs() -> ModelInputs:
    ids, positions, lens = (torch.empty(TOKENS, dtype=torch.int64, device=META) for _ in range(3))
    return ModelInputs(ids, positions, lens)


class _Notes:
    """The operations and the attention of an outline."""

    def __init__(self, weights: OutlineWeights, spec: ModelSpec) -> None:
        self.products: list[Product] = []
        self.gated: list[Product] = []
        self.gates: list[int] = []
        self.latents: list[LatentProjected] = []
        self.experts = OutlineExperts()
        self._product = OutlineProducts(weights, spec.vocab_size, self.products)

    def operations(self, served: Collection[str]) -> Operations:
        """Whatever a model may ask for."""
        experts, none = self.experts, None
        serves: dict[str, Any] = {
            "attention": none, "sample": none, "linear": self._product, "silu_mul": self._gate,
            "rms_norm": lambda x, *_: torch.empty_like(x),
            "add_rms_norm": lambda x, residual, *_: (torch.empty_like(x), residual),
            "rope": lambda q, k, *_: (q, k), "experts": experts, "route": experts.route,
            "all_reduce": lambda x: x, "all_gather": lambda x: x.unsqueeze(0),
            "quant_matmul": self._product if "quant_matmul" in served else None,
            "quant_experts": OutlineQuantExperts(experts) if "quant_experts" in served else None,
            GATED: self._gated if GATED in served else None,
        }  # fmt: skip
        return Operations(**serves)

    def _gate(self, gate_up: Tensor) -> Tensor:
        width = gate_up.shape[-1] // 2
        self.gates.append(width)
        return gate_up.new_empty(*gate_up.shape[:-1], width)

    def _gated(self, x_TI: Tensor, packed: Product) -> Tensor:
        self.gated.append(packed)
        return self._gate(self._product(x_TI, packed))

    def __call__(self, layer: int, q_TNH: Tensor, k_TKH: Tensor, v_TKH: Tensor) -> Tensor:
        return torch.empty_like(q_TNH)

    def projected(self, layer: int, projected: Projected) -> Tensor:
        qkv_TMH = projected.qkv_TMH
        return qkv_TMH.new_empty(len(qkv_TMH), projected.num_heads, qkv_TMH.shape[2])

    def latent(self, layer: int, projected: LatentProjected) -> Tensor:
        self.latents.append(projected)
        heads, _, value = projected.heads.values_NRV.shape
        return projected.q_TNQ.new_empty(len(projected.q_TNQ), heads, value)
