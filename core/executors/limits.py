"""The largest step and the longest sequence of an engine."""

import torch

from jackfield.core.api import ConfigError, ModelSpec
from jackfield.core.engine.planner import Limits
from jackfield.core.executors.device import memory_of
from jackfield.core.host.config import Config
from jackfield.core.kv.sizing import GIB

CPU_TOKENS = 2048
STREAMED_TOKENS = 8192
WHOLE_TOKENS = 16384
LARGE_DEVICE = 64 * GIB
"""Memory from which on a device has room for steps of WHOLE_TOKENS."""


def limits_for(config: Config, spec: ModelSpec, device: torch.device, *, streamed: bool) -> Limits:
    """The largest step and the longest sequence, before the pool is sized. streamed: whether
    somebody waits for single tokens, which a large step holds up."""
    engine = config.engine
    default = _default_tokens(device, streamed, engine.max_num_seqs)
    max_tokens = engine.max_num_batched_tokens or max(default, engine.max_num_seqs)
    if max_tokens < engine.max_num_seqs:
        raise ConfigError(
            f"engine.max_num_batched_tokens is {max_tokens}, less than engine.max_num_seqs "
            f"{engine.max_num_seqs}: a step could not hold one token of each; raise the first or "
            f"lower the second"
        )
    wanted = config.model.max_model_len
    if wanted is not None and wanted > spec.max_positions:
        raise ConfigError(
            f"model.max_model_len is {wanted}, but the model was made for {spec.max_positions} "
            f"positions; lower it, or set rope scaling in the model's config.json"
        )
    return Limits(max_tokens, engine.max_num_seqs, wanted or spec.max_positions)


def _default_tokens(device: torch.device, streamed: bool, max_seqs: int) -> int:
    """On a GPU beside a token of everybody, so that decodes do not shorten parts of prompts."""
    if device.type == "cpu":
        return CPU_TOKENS
    large = not streamed and memory_of(device).total >= LARGE_DEVICE
    return (WHOLE_TOKENS if large else STREAMED_TOKENS) + max_seqs
