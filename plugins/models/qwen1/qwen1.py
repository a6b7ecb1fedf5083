"""Qwen, the first of the name."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from jackfield.core.api.kernel import Operations
from jackfield.core.api.model import Attend, ModelInputs, Shard, Weights
from jackfield.plugins.models.blocks.config_reader import ConfigReader
from jackfield.plugins.models.blocks.decoder_model import DecoderModel
from jackfield.plugins.models.blocks.rope import Rope, SteppedRope
from jackfield.plugins.models.blocks.shape import DecoderShape
from jackfield.plugins.models.qwen1.log_scaled import LogScaled
from jackfield.plugins.models.qwen1.names import qwen1_weights


class Qwen1(DecoderModel):
    """Serves `QWenLMHeadModel`: Llama with biases on query, key and value, a key head for each
    query head, and half of `intermediate_size`.

    `seq_length` is what it was trained for. With `use_dynamic_ntk` the base of the rotation depends
    on the length of the prompt, as in the original, and contexts reach to
    `max_position_embeddings`; without it they end at `seq_length`. With `use_logn_attn` queries
    behind `seq_length` grow with the logarithm of their position.
    """

    @staticmethod
    def read(reader: ConfigReader) -> DecoderShape:
        hidden_size, num_heads = reader.integer("hidden_size"), _heads(reader)
        head_dim = reader.integer("kv_channels", hidden_size // num_heads)
        num_layers = reader.integer("num_hidden_layers")
        biases = not reader.flag("no_bias", True)
        return DecoderShape(
            num_layers=num_layers,
            hidden_size=hidden_size,
            intermediate_size=_half(reader),
            num_heads=num_heads,
            num_kv_heads=num_heads,
            head_dim=head_dim,
            vocab_size=reader.integer("vocab_size"),
            norm_eps=reader.number("layer_norm_epsilon", 1e-6),
            tied=reader.flag("tie_word_embeddings", False),
            rope=_rope(reader, head_dim),
            windows=(None,) * num_layers,
            qkv_bias=True,
            output_bias=biases,
            mlp_bias=biases,
        )

    def __init__(
        self, config: Mapping[str, Any], ops: Operations, shard: Shard, weights: Weights
    ) -> None:
        super().__init__(config, ops, shard, qwen1_weights(weights, shard))
        reader = ConfigReader(config)
        scales = reader.flag("use_logn_attn", True)
        self._log_from = reader.integer("seq_length", minimum=2) if scales else None

    def forward(self, inputs: ModelInputs, attend: Attend) -> Tensor:
        if self._log_from is not None:
            attend = LogScaled(attend, inputs.positions_T, self._log_from)
        return super().forward(inputs, attend)


def _heads(reader: ConfigReader) -> int:
    num_heads, hidden_size = reader.integer("num_attention_heads"), reader.integer("hidden_size")
    if not reader.has("kv_channels") and hidden_size % num_heads:
        reader.refuse("num_attention_heads", f"a divisor of hidden_size, {hidden_size}")
    if not reader.flag("scale_attn_weights", True):
        reader.refuse("scale_attn_weights", "true")
    return num_heads


def _half(reader: ConfigReader) -> int:
    """Gate and up have half of what the config says."""
    both = reader.integer("intermediate_size", minimum=2)
    if both % 2:
        reader.refuse("intermediate_size", "an even number, twice the width of one product")
    return both // 2


def _rope(reader: ConfigReader, head_dim: int) -> Rope:
    theta, share = reader.number("rotary_emb_base", 10000.0), reader.number("rotary_pct", 1.0)
    dim = int(head_dim * share)
    if dim % 2 or not 2 < dim <= head_dim:
        reader.refuse("rotary_pct", f"a share that makes an even part of {head_dim}, above 2")
    trained = reader.integer("seq_length")
    if not reader.flag("use_dynamic_ntk", True):
        return Rope(theta, dim, trained)
    longest = reader.integer("max_position_embeddings", minimum=trained)
    return SteppedRope(theta, dim, trained, factor=1.0, longest=longest)
