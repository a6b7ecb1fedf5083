"""Asks the plugin that says how keys and values are stored."""

from math import isfinite

from jackfield.core.api import KvEncoding, KvSpec, PluginContractError
from jackfield.core.host.manager import Implementation, Manager


def encoder_of(manager: Manager) -> Implementation | None:
    """Who implements the hook; None = keys and values are stored as the model computes them."""
    implementations = manager.implementations("encode")
    return implementations[0] if implementations else None


def encode(spec: KvSpec, encoder: Implementation | None) -> KvSpec:
    """The layer group with its encoding, if it gets one."""
    if encoder is None:
        return spec
    encoding = encoder.call(spec)
    if encoding is not None and not isinstance(encoding, KvEncoding):
        raise PluginContractError(
            f"cache plugin {encoder.plugin}: encode returned {encoding!r}, not a KvEncoding"
        )
    if encoding is not None and not (isfinite(encoding.limit) and encoding.limit > 0):
        raise PluginContractError(
            f"cache plugin {encoder.plugin}: the limit of {encoding.name} is {encoding.limit}; "
            f"expected the largest magnitude that is stored"
        )
    return spec._replace(encoding=encoding)
