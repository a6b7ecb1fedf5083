"""The bound operation table, and the sizes of the model that it is measured for."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from jackfield.core.api import ConfigError, KvEncoding, KvSpec, ModelSpec, OpSpec, Shard
from jackfield.core.assemble import contexts
from jackfield.core.bench.kernels.case import Work
from jackfield.core.bench.kernels.sizes import MIB, Sizes
from jackfield.core.bench.model_outline import ModelOutline
from jackfield.core.bench.unloaded import BLOCK_SIZE
from jackfield.core.engine.clock import SystemClock
from jackfield.core.engine.operations import ATTENTION, Table, bind
from jackfield.core.engine.planner import Limits
from jackfield.core.engine.services import Services
from jackfield.core.executors.device import choose_device, choose_dtype
from jackfield.core.executors.division import check_ranks, rank_spec
from jackfield.core.host.sources import Resolved
from jackfield.core.host.stack import build_stack, load_model_class
from jackfield.core.kv.tiles import check_tiles

ROTATED = {"cpu": 64 * MIB, "cuda": 200 * MIB}
"""Bytes to go around if the device does not tell how large its cache is."""
CACHES = 4
LEAST_CALLS = 16


class KernelSubject(NamedTuple):
    """spec: of one rank. outline: what it multiplies. encoded: the table with keys and values in 8
    bits, or why nobody serves that."""

    device: torch.device
    dtype: torch.dtype
    spec: ModelSpec
    outline: ModelOutline
    plain: Table
    encoded: Table | str
    sizes: Sizes

    @classmethod
    def of(cls, resolved: Resolved, config: Mapping[str, Any], sizes: Sizes) -> "KernelSubject":
        """Bind the kernel stack of a configuration, at the sizes of its first rank. config: a
        config.json. Raises `JackfieldError`s."""
        settings = resolved.config
        device = choose_device(settings.engine.device)
        stored = config.get("dtype") or config.get("torch_dtype")
        dtype = choose_dtype(settings.model.dtype, stored, device)
        model: Any = load_model_class(config["architectures"][0]).cls
        shard = Shard(0, settings.parallel.tensor, settings.parallel.experts)
        whole: ModelSpec = model.describe(config)
        check_ranks(whole, shard.size, whole_experts=shard.whole_experts)
        spec = rank_spec(whole, shard)
        make_context = contexts(settings, Limits(1, 1, 1), SystemClock(), Services(), BLOCK_SIZE)
        stack = build_stack(settings, make_context=make_context, origins=resolved.origins)
        kernels = [(kernel.name, kernel.plugin) for kernel in stack.kernels]
        op_spec = OpSpec(dtype, spec.hidden_size, spec.head_dim, spec.vocab_size)

        def table(encoding: KvEncoding | None) -> Table:
            kv_spec = _kv_spec(spec, dtype, encoding)
            return bind(kernels, op_spec, [kv_spec], device)

        try:
            encoded: Table | str = table(encoding_8_bits())
        except ConfigError:
            encoded = f"no kernel of the stack reads {encoding_8_bits().name}"
        plain = table(None)
        layout = plain.operations.attention.layout(_kv_spec(spec, dtype, None))
        check_tiles(plain.owners[ATTENTION], [layout], BLOCK_SIZE)
        outline = ModelOutline.of(model, config, dtype, shard, plain.owners)
        return cls(device, dtype, spec, outline, plain, encoded, sizes)

    def kv_spec(self, encoding: KvEncoding | None) -> KvSpec:
        """How attention is asked for."""
        return _kv_spec(self.spec, self.dtype, encoding)

    def random(self, *shape: int) -> Tensor:
        """Numbers around 0, in the model's type."""
        return torch.randn(shape, device=self.device, dtype=torch.float32).to(self.dtype)

    def copies(self, size: int) -> int:
        """How many things of so many bytes it takes to go beyond the device's cache."""
        return min(max(-(-self.rotated // max(size, 1)), 1), self.sizes.most_copies)

    def work(
        self,
        make: Callable[[], Callable[[], object]],
        read: int,
        *,
        capturable: bool,
        bytes: float,
        flops: float = 0,
    ) -> Work:
        """Calls in turn on copies, as many as there must be. make: one, with tensors of its own.

        read: bytes that a call reads or writes and that lie in memory between two calls.
        """
        copies = self.copies(read)
        return Work(
            cycled([make() for _ in range(copies)]), capturable, bytes, flops,
            copies * read < self.rotated,
        )  # fmt: skip

    @property
    def rotated(self) -> int:
        """Bytes to go around, so that no cache holds them."""
        if self.device.type != "cuda":
            return ROTATED[self.device.type]
        properties = torch.cuda.get_device_properties(self.device)
        size: int = getattr(properties, "L2_cache_size", 0)
        return CACHES * size or ROTATED["cuda"]


def encoding_8_bits() -> KvEncoding:
    """The usual one."""
    return KvEncoding("fp8_e4m3", torch.float8_e4m3fn, 448.0)


def cycled(calls: Sequence[Callable[[], object]]) -> list[Callable[[], object]]:
    """At least so many that what one launch costs does not count."""
    rounds = -(-LEAST_CALLS // len(calls))
    return [*calls] * rounds


def _kv_spec(spec: ModelSpec, dtype: torch.dtype, encoding: KvEncoding | None) -> KvSpec:
    heads = (spec.num_heads, spec.num_kv_heads, spec.head_dim)
    return KvSpec(*heads, dtype, BLOCK_SIZE, None, encoding, spec.latent)
