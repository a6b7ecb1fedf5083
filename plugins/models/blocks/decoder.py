"""The stack of layers that the architectures of the Llama family share."""

import torch
from torch import Tensor

from jackfield.core.api.experts import ExpertHistogram
from jackfield.core.api.kernel import Operations
from jackfield.core.api.model import Attend, LogitsPart, ModelInputs, Shard, Weights
from jackfield.plugins.models.blocks.attention import Attention
from jackfield.plugins.models.blocks.experts import ExpertMlp, ignore_others
from jackfield.plugins.models.blocks.latent_attention import LatentAttention
from jackfield.plugins.models.blocks.linear_loader import LinearLoader
from jackfield.plugins.models.blocks.mlp import Mlp
from jackfield.plugins.models.blocks.quant_linear import quantized_too
from jackfield.plugins.models.blocks.ranks import summed
from jackfield.plugins.models.blocks.rotary import make_rotary
from jackfield.plugins.models.blocks.shape import DecoderShape
from jackfield.plugins.models.blocks.vocabulary import make_vocabulary

OLD_FREQUENCIES = r".*\.rotary_emb\.inv_freq"
"""Buffers that early checkpoints stored beside the weights."""


class DecoderLayer:
    """Attention and feed-forward, each with a norm before and a sum after."""

    def __init__(
        self,
        layer: int,
        shape: DecoderShape,
        ops: Operations,
        load: LinearLoader,
        histogram: ExpertHistogram | None,
    ) -> None:
        prefix, hidden = f"model.layers.{layer}", shape.hidden_size
        self._add_norm, self._eps = ops.add_rms_norm, shape.norm_eps
        self.input_norm_D = load.vector(f"{prefix}.input_layernorm.weight", hidden)
        attention = LatentAttention if shape.latent else Attention
        self._attention = attention(layer, shape, ops, load)
        self._norm_D = load.vector(f"{prefix}.post_attention_layernorm.weight", hidden)
        self._mlp = _feed_forward(layer, shape, ops, load, histogram)

    def __call__(
        self,
        x_TD: Tensor,
        residual_TD: Tensor,
        cos_TW: Tensor,
        sin_TW: Tensor,
        attend: Attend,
        slots_T: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Takes a normed input; (output, residual) are yet to be summed by the norm after it."""
        x_TD = self._attention(x_TD, cos_TW, sin_TW, attend)
        x_TD, residual_TD = self._add_norm(x_TD, residual_TD, self._norm_D, self._eps)
        return self._mlp(x_TD, slots_T), residual_TD


def _feed_forward(
    layer: int,
    shape: DecoderShape,
    ops: Operations,
    load: LinearLoader,
    histogram: ExpertHistogram | None,
) -> Mlp | ExpertMlp:
    if shape.mixture is None or histogram is None or layer not in histogram.layers:
        return Mlp(layer, shape, ops, load)
    counts_E = histogram.counts_LE[histogram.layers.index(layer)]
    return ExpertMlp(layer, shape.hidden_size, shape.mixture, ops, load, counts_E)


def _histogram(shape: DecoderShape, device: torch.device) -> ExpertHistogram | None:
    """Without any token yet."""
    if shape.mixture is None:
        return None
    layers = sorted(layer for layer in shape.mixture.layers if layer < shape.num_layers)
    size = len(layers), shape.mixture.routing.num_experts
    return ExpertHistogram(layers, torch.zeros(size, dtype=torch.int64, device=device))


class Decoder:
    """A whole model of the family, or a rank's part of it: embedding, layers, last norm, head."""

    def __init__(
        self, shape: DecoderShape, ops: Operations, shard: Shard, weights: Weights
    ) -> None:
        ops = quantized_too(summed(ops, shard), weights)
        load = LinearLoader(ops.linear, shard, weights, ops.quant_experts)
        self._ops, self._eps = ops, shape.norm_eps
        self._vocabulary = make_vocabulary(shape, ops, shard, weights)
        self._rotary = make_rotary(shape.rope, self._vocabulary.device)
        self.expert_histogram = _histogram(shape, self._vocabulary.device)
        self._layers = [
            DecoderLayer(i, shape, ops, load, self.expert_histogram)
            for i in range(shape.num_layers)
        ]
        last_D = load.vector("model.norm.weight", shape.hidden_size)
        self._first_norm_D = self._layers[0].input_norm_D
        self._norms_after = [layer.input_norm_D for layer in self._layers[1:]] + [last_D]
        if shape.mixture is not None:
            ignore_others(shape.mixture, shard, weights)
        weights.ignore(OLD_FREQUENCIES)

    def forward(self, inputs: ModelInputs, attend: Attend) -> Tensor:
        """Hidden states after the last norm, `[T, D]`."""
        cos_TW, sin_TW = self._rotary.gather(inputs)
        residual_TD = self._vocabulary.embed(inputs.ids_T)
        x_TD = self._ops.rms_norm(residual_TD, self._first_norm_D, self._eps)
        for layer, norm_D in zip(self._layers, self._norms_after, strict=True):
            x_TD, residual_TD = layer(x_TD, residual_TD, cos_TW, sin_TW, attend, inputs.slots_T)
            x_TD, residual_TD = self._ops.add_rms_norm(x_TD, residual_TD, norm_D, self._eps)
        return x_TD

    def logits(self, hidden_RD: Tensor) -> Tensor:
        """`[R, V]`."""
        return self._vocabulary.logits(hidden_RD)

    def logits_part(self, hidden_RD: Tensor) -> LogitsPart:
        """The columns that this rank computes."""
        return self._vocabulary.logits_part(hidden_RD)
