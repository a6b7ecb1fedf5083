"""What the processes that hold one model must have alike."""

import hashlib
import json
import platform
from typing import Any

import torch

from jackfield import __version__
from jackfield.core.executors.place import Agree, same
from jackfield.core.host.config import Config
from jackfield.core.host.fingerprint import Fingerprint, Identity

RENDEZVOUS = "the rendezvous"
"""The first thing that ranks agree on: that they are there."""
OWN: Any = {
    "model": {"name", "revision", "tokenizer"},
    "parallel": {"node_rank", "token"},
    "server": True,
}
"""What each host may have otherwise: where it finds the model, and which one it is. The secret has
been compared before."""


def check_same(agree: Agree, plugins: Fingerprint, config: Config) -> None:
    """All ranks call this. Raises on all of them, naming one that differs, and in what."""
    same(agree, "the version of Jackfield", __version__)
    same(agree, "the version of Python", platform.python_version())
    same(agree, "the version of torch", torch.__version__)
    same_plugins(agree, plugins)
    same(agree, "the digest of the configuration", digest_of(config))


def same_plugins(agree: Agree, plugins: Fingerprint) -> None:
    """Raises `PluginError` that names what another rank has otherwise."""
    mine = [plugins.digest, [list(one) for one in plugins.plugins]]
    found = [_fingerprint(told) for told in agree.gather("the plugins", mine)]
    for rank, other in enumerate(found):
        try:
            found[0].check_same(other)
        except Exception as error:
            error.args = (f"rank {rank} does not fit rank 0 (which is here): {error}",)
            raise


def _fingerprint(told: Any) -> Fingerprint:
    digest, plugins = told
    return Fingerprint(digest, tuple(Identity(*one) for one in plugins))


def values_of(config: Config) -> dict[str, Any]:
    """By dotted key, those that all hosts should have alike."""
    sections = config.model_dump(mode="json", exclude=OWN)
    return {f"{name}.{key}": one for name, keys in sections.items() for key, one in keys.items()}


def digest_of(config: Config) -> str:
    """Equal on all hosts that were started alike."""
    text = json.dumps(values_of(config), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
