"""What tells one decoder of the Llama family from another."""

from dataclasses import dataclass

from jackfield.core.api.model import ModelSpec
from jackfield.plugins.models.blocks.config_reader import ConfigReader
from jackfield.plugins.models.blocks.latent import Latent
from jackfield.plugins.models.blocks.mixture import Mixture
from jackfield.plugins.models.blocks.rope import DynamicRope, Rope
from jackfield.plugins.models.blocks.rope_reader import read_rope
from jackfield.plugins.models.blocks.windows import Windows, layer_groups

ACTIVATIONS = ("silu", "swish")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderShape:
    """Sizes, and which of the optional parts an architecture has.

    tied: the embedding is the output head too. windows: one entry per layer, None = all positions.
    mixture: of layers with experts; None = there are none. latent: where attention is latent;
    num_kv_heads is 1 then, and head_dim what is stored of a token.
    """

    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    norm_eps: float
    tied: bool
    rope: Rope
    windows: Windows
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    mixture: Mixture | None = None
    latent: Latent | None = None

    def spec(self) -> ModelSpec:
        """What the engine must know."""
        return ModelSpec(
            num_layers=self.num_layers,
            hidden_size=self.hidden_size,
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            vocab_size=self.vocab_size,
            max_positions=self.rope.max_positions,
            softmax_scale=self.latent.softmax_scale if self.latent else self.head_dim**-0.5,
            groups=layer_groups(self.windows),
            num_parameters=self._num_parameters(),
            uses_prompt_lens=isinstance(self.rope, DynamicRope),
            alike_prompts=self.rope.trained if isinstance(self.rope, DynamicRope) else None,
            latent=self.latent.sizes if self.latent else None,
            uses_experts=self.mixture is not None,
            divides=True,
            widths=self._widths(),
            num_experts=self.mixture.routing.num_experts if self.mixture else 0,
            expert_width=self.mixture.width if self.mixture else 0,
        )

    def _widths(self) -> tuple[tuple[str, int], ...]:
        found = []
        if self.mixture is None or len(self.mixture.layers) < self.num_layers:
            found.append(("feed-forward width", self.intermediate_size))
        if self.mixture is not None and self.mixture.shared_width:
            found.append(("width of the shared expert", self.mixture.shared_width))
        return tuple(found)

    def _num_parameters(self) -> int:
        tables = 1 if self.tied else 2
        layer = self._attention_parameters() + 2 * self.hidden_size
        vocabulary = tables * self.vocab_size * self.hidden_size
        feed_forward = self._feed_forward_parameters()
        return self.num_layers * layer + feed_forward + self.hidden_size + vocabulary

    def _attention_parameters(self) -> int:
        if self.latent:
            hidden, heads = self.hidden_size, self.num_heads
            return self.latent.num_parameters(hidden, heads, bias=self.output_bias)
        query = self.num_heads * self.head_dim
        merged = query + 2 * self.num_kv_heads * self.head_dim
        biases = self.qkv_bias * merged + self.output_bias * self.hidden_size
        return (merged + query) * self.hidden_size + biases + self.qk_norm * 2 * self.head_dim

    def _feed_forward_parameters(self) -> int:
        """Of all layers."""
        if self.mixture is None:
            return self.num_layers * self._mlp_parameters()
        sparse = len(self.mixture.layers)
        plain = (self.num_layers - sparse) * self._mlp_parameters()
        return plain + sparse * self.mixture.num_parameters(self.hidden_size)

    def _mlp_parameters(self) -> int:
        biases = self.mlp_bias * (2 * self.intermediate_size + self.hidden_size)
        return 3 * self.intermediate_size * self.hidden_size + biases


def read_shape(reader: ConfigReader) -> DecoderShape:
    """What the whole family writes alike; all optional parts absent, every layer full.

    Raises ModelError for what does not fit together or is not supported.
    """
    _reject_unsupported(reader)
    hidden_size, num_heads = reader.integer("hidden_size"), reader.integer("num_attention_heads")
    num_layers = reader.integer("num_hidden_layers")
    num_kv_heads = reader.integer("num_key_value_heads", num_heads)
    if num_heads % num_kv_heads:
        reader.refuse("num_key_value_heads", f"a divisor of num_attention_heads, {num_heads}")
    head_dim = _head_dim(reader, hidden_size, num_heads)
    return DecoderShape(
        num_layers=num_layers,
        hidden_size=hidden_size,
        intermediate_size=reader.integer("intermediate_size"),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        vocab_size=reader.integer("vocab_size"),
        norm_eps=reader.number("rms_norm_eps", 1e-6),
        tied=reader.flag("tie_word_embeddings", False),
        rope=read_rope(reader, head_dim, reader.integer("max_position_embeddings")),
        windows=(None,) * num_layers,
    )


def _reject_unsupported(reader: ConfigReader) -> None:
    if reader.text("hidden_act", "silu") not in ACTIVATIONS:
        reader.refuse("hidden_act", " or ".join(repr(name) for name in ACTIVATIONS))


def _head_dim(reader: ConfigReader, hidden_size: int, num_heads: int) -> int:
    if not reader.has("head_dim") and hidden_size % num_heads:
        reader.refuse("num_attention_heads", f"a divisor of hidden_size, {hidden_size}")
    return reader.integer("head_dim", max(hidden_size // num_heads, 1))
