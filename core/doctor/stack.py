"""What the configured stack makes of a model, before anything of it is loaded."""

from typing import Any, NamedTuple

import torch

from jackfield.core.api import BatchLimits, CacheAxis, ModelSpec, OpSpec
from jackfield.core.assemble import block_size_of, contexts
from jackfield.core.engine.clock import SystemClock
from jackfield.core.engine.operations import Table, bind
from jackfield.core.engine.planner import Limits
from jackfield.core.engine.services import Services
from jackfield.core.executors.encoder import encode, encoder_of
from jackfield.core.executors.limits import limits_for
from jackfield.core.executors.loading import activations, kv_spec
from jackfield.core.executors.profile_declared import declared_scratch
from jackfield.core.host.sources import Resolved
from jackfield.core.host.stack import build_caches
from jackfield.core.kv.storage import bytes_per_block


class Served(NamedTuple):
    """scratch: bytes that a step needs at most beside weights and pool, by estimate. encoding: of
    keys and values, in a word."""

    table: Table
    limits: Limits
    block_size: int
    block_bytes: int
    scratch: int
    encoding: str

    @property
    def bytes_per_token(self) -> int:
        """Of keys and values of all layers."""
        return self.block_bytes // self.block_size


class _Shape(NamedTuple):
    """As much of an `Order` as sizes of keys and values need."""

    spec: ModelSpec
    dtype: torch.dtype
    block_size: int


def serve(
    resolved: Resolved, spec: ModelSpec, device: torch.device, dtype: torch.dtype
) -> Served:
    """Raises `JackfieldError` for what would stop the start."""
    config = resolved.config
    limits = limits_for(config, spec, device, streamed=True)
    caches = build_caches(config, origins=resolved.origins)
    owner = caches.by_axis[CacheAxis.ALLOCATOR][0].found
    size = block_size_of(owner, caches.manager, limits.max_model_len)
    stack = caches.build(contexts(config, limits, SystemClock(), Services(), size))
    encoder = encoder_of(caches.manager)
    order: Any = _Shape(spec, dtype, size)
    kv_specs = [encode(kv_spec(order, group.window), encoder) for group in spec.groups]
    kernels = [(kernel.name, kernel.plugin) for kernel in stack.kernels]
    wanted = OpSpec(dtype, spec.hidden_size, spec.head_dim, spec.vocab_size)
    table = bind(kernels, wanted, kv_specs, device, encoder.plugin if encoder else "")
    attention = table.operations.attention
    layouts = [attention.layout(each) for each in kv_specs]
    largest = BatchLimits(limits.max_tokens, limits.max_seqs, -(-limits.max_model_len // size))
    scratch = attention.workspace(largest) + activations(spec, limits)
    scratch += declared_scratch(caches.manager.implementations("scratch"), largest)
    names = {each.encoding.name for each in kv_specs if each.encoding is not None}
    encoding = " and ".join(sorted(names)) or str(dtype).removeprefix("torch.")
    block = bytes_per_block(spec.groups, layouts)
    return Served(table, limits, size, block, scratch, encoding)
