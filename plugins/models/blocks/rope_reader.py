"""Which rotary embedding a config.json asks for, in either of the forms it is written in."""

from collections.abc import Callable
from typing import NamedTuple

from jackfield.core.api.errors import ModelError
from jackfield.plugins.models.blocks.config_reader import ConfigReader
from jackfield.plugins.models.blocks.rope import (
    DynamicRope,
    LinearRope,
    Llama3Rope,
    Rope,
    YarnRope,
    yarn_magnitude,
)

DEFAULT_THETA = 10000.0


class _Source(NamedTuple):
    """The unscaled embedding, and where the parameters of the scaling are read."""

    plain: Rope
    section: ConfigReader
    original: int


def read_rope(reader: ConfigReader, head_dim: int, max_position_embeddings: int) -> Rope:
    """Reads `rope_scaling` with `rope_theta` beside it, or `rope_parameters` that hold it all."""
    section = reader.section("rope_scaling" if reader.has("rope_scaling") else "rope_parameters")
    _reject_nested(section)
    theta = section.number("rope_theta", reader.number("rope_theta", DEFAULT_THETA))
    dim = _rotated(reader, section, head_dim)
    kind = section.text("rope_type", section.text("type", "default"))
    if kind not in VARIANTS:
        section.refuse("rope_type" if section.has("rope_type") else "type", f"one of {_KNOWN}")
    original = section.integer("original_max_position_embeddings", max_position_embeddings)
    original = reader.integer("original_max_position_embeddings", original)
    plain = Rope(theta, dim, max_position_embeddings)
    return VARIANTS[kind](_Source(plain, section, original))


def _reject_nested(section: ConfigReader) -> None:
    nested = section.nested()
    if nested:
        section.refuse(nested[0], "one set of parameters for all layers")


def _rotated(reader: ConfigReader, section: ConfigReader, head_dim: int) -> int:
    key = "partial_rotary_factor"
    dim = int(head_dim * section.number(key, reader.number(key, 1.0)))
    if dim < 2 or dim + dim % 2 > head_dim:
        raise ModelError(
            f"config.json: {key} makes {dim} of {head_dim} entries of a head rotate; expected "
            f"at least 2 and pairs that fit into head_dim."
        )
    return dim


def _default(source: _Source) -> Rope:
    return source.plain


def _linear(source: _Source) -> Rope:
    plain, section, _ = source
    return LinearRope(plain.theta, plain.dim, plain.trained, section.number("factor"))


def _dynamic(source: _Source) -> Rope:
    plain, section, _ = source
    if plain.dim <= 2:
        raise ModelError(
            f"config.json: rope type 'dynamic' needs more than 2 rotated entries of a head, "
            f"and head_dim with partial_rotary_factor gives {plain.dim}."
        )
    return DynamicRope(plain.theta, plain.dim, plain.trained, section.number("factor"))


def _llama3(source: _Source) -> Rope:
    plain, section, original = source
    low, high = section.number("low_freq_factor"), section.number("high_freq_factor")
    if high <= low:
        section.refuse("high_freq_factor", f"more than low_freq_factor, which is {low}")
    factor = section.number("factor")
    return Llama3Rope(plain.theta, plain.dim, plain.trained, factor, low, high, original)


def _yarn(source: _Source) -> Rope:
    plain, section, original = source
    factor = section.number("factor", plain.trained / original)
    return YarnRope(
        plain.theta,
        plain.dim,
        plain.trained,
        factor,
        original,
        magnitude=section.number("attention_factor", _magnitude(section, factor)),
        beta_fast=section.number("beta_fast", 32.0),
        beta_slow=section.number("beta_slow", 1.0),
        truncate=section.flag("truncate", True),
    )


def _magnitude(section: ConfigReader, factor: float) -> float:
    if not (section.has("mscale") and section.has("mscale_all_dim")):
        return yarn_magnitude(factor)
    mscale, mscale_all_dim = section.number("mscale"), section.number("mscale_all_dim")
    return yarn_magnitude(factor, mscale) / yarn_magnitude(factor, mscale_all_dim)


VARIANTS: dict[str, Callable[[_Source], Rope]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "yarn": _yarn,
    "llama3": _llama3,
}
_KNOWN = ", ".join(repr(kind) for kind in VARIANTS)
