"""What a config.json says of latent attention."""

from dataclasses import replace

from jackfield.plugins.models.blocks.config_reader import ConfigReader
from jackfield.plugins.models.blocks.latent import Latent
from jackfield.plugins.models.blocks.rope import Rope, YarnRope, yarn_magnitude
from jackfield.plugins.models.blocks.rope_reader import read_rope
from jackfield.plugins.models.blocks.shape import DecoderShape, read_shape


def read_latent_shape(reader: ConfigReader, *, interleaved: bool) -> DecoderShape:
    """Of a decoder whose attention is latent. interleaved: as in `Latent`."""
    shape = read_shape(reader)
    rotated = reader.integer("qk_rope_head_dim", minimum=2)
    if rotated % 2:
        reader.refuse("qk_rope_head_dim", "an even number")
    rope = read_rope(reader, rotated, reader.integer("max_position_embeddings"))
    latent = _read_latent(reader, rope, rotated, interleaved)
    bias = _read_bias(reader, latent)
    return replace(
        shape,
        num_kv_heads=1,
        head_dim=latent.stored,
        rope=rope,
        latent=latent,
        qkv_bias=bias,
        output_bias=bias,
    )


def _read_latent(reader: ConfigReader, rope: Rope, rotated: int, interleaved: bool) -> Latent:
    plain = reader.integer("qk_nope_head_dim")
    return Latent(
        rank=reader.integer("kv_lora_rank"),
        rotated=rotated,
        plain=plain,
        value=reader.integer("v_head_dim"),
        query_rank=None if reader.is_null("q_lora_rank") else reader.integer("q_lora_rank"),
        interleaved=interleaved,
        softmax_scale=(plain + rotated) ** -0.5 * _sharpening(reader, rope),
    )


def _sharpening(reader: ConfigReader, rope: Rope) -> float:
    """YaRN's, of queries and keys as a whole, while `mscale` is that of their rotated part."""
    section = reader.section("rope_scaling" if reader.has("rope_scaling") else "rope_parameters")
    if not (isinstance(rope, YarnRope) and section.has("mscale_all_dim")):
        return 1.0
    return yarn_magnitude(rope.factor, section.number("mscale_all_dim")) ** 2


def _read_bias(reader: ConfigReader, latent: Latent) -> bool:
    bias = reader.flag("attention_bias", False)
    if bias and latent.query_rank is None:
        reader.refuse("attention_bias", "false where q_lora_rank is null")
    return bias
