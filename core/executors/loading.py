"""From a model folder to an executor with its KV pool."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from jackfield.core.api import (
    BatchLimits,
    CapacityError,
    KernelPlugin,
    KvSpec,
    Model,
    ModelSpec,
    Operations,
    OpSpec,
    TierSpec,
)
from jackfield.core.checkpoint.dummy_quant_weights import made_up_weights
from jackfield.core.checkpoint.folder import ModelFolder
from jackfield.core.checkpoint.kv_scales import KV_SCALE_NAME
from jackfield.core.checkpoint.progress import Progress
from jackfield.core.checkpoint.quant_plan import read_quant_plan
from jackfield.core.checkpoint.quantized_weights import PlannedWeights
from jackfield.core.checkpoint.safetensors_weights import SafetensorsWeights
from jackfield.core.engine.downloads import Withheld
from jackfield.core.engine.expert_reader import ExpertReader
from jackfield.core.engine.operations import ATTENTION, Table, bind, uncapturable
from jackfield.core.engine.planner import Limits
from jackfield.core.engine.runner import SAMPLE, LoadedModel, Runner
from jackfield.core.executors.device import memory_of
from jackfield.core.executors.division import rank_spec
from jackfield.core.executors.encoder import encode
from jackfield.core.executors.kv_scales import FixedScales, Subject, fix_scales
from jackfield.core.executors.place import ALONE, Place, first_of_host_first, least, same
from jackfield.core.executors.profile import CudaProbe, profile
from jackfield.core.executors.profile_declared import declared_scratch
from jackfield.core.executors.profile_steps import blocks_needed
from jackfield.core.executors.prompt_alignment import prompt_alignment
from jackfield.core.executors.short_steps import short_steps
from jackfield.core.executors.single import SingleDevice
from jackfield.core.executors.tensor_parallel import TensorParallel
from jackfield.core.executors.tiers import NO_TIERS, TierHooks, open_tiers
from jackfield.core.executors.warm_up import rehearse, warm_up
from jackfield.core.host.config import Config
from jackfield.core.host.manager import Implementation
from jackfield.core.kv.copier import SCRATCH_BYTES, BlockCopier
from jackfield.core.kv.encoding_identity import encoding_identity, joined_identity
from jackfield.core.kv.sizing import (
    GIB,
    Budget,
    Memory,
    PoolWish,
    count_blocks,
    held_by_us,
    share_of,
)
from jackfield.core.kv.storage import allocate, bytes_per_block
from jackfield.core.kv.tiles import check_tiles

CPU_POOL = 4 * GIB
CPU_SHARE = 0.4
CPU_ORIGIN = f"the pool takes {CPU_SHARE:g} of what is free, at most {CPU_POOL // GIB} GiB"
FLOAT32_BYTES = 4


class Loaded(NamedTuple):
    """An executor, and what was decided while it was made.

    pool_bytes, bytes_per_token: of keys and values of all layers, over all ranks. encoding: of
    them, in words; "" = none. encoding_id: 16 bytes, as `encoding_identity` makes them. notices:
    what users should know. tiers: below the device, the fastest first.
    """

    executor: SingleDevice | TensorParallel
    table: Table
    limits: Limits
    num_blocks: int
    pool_bytes: int
    bytes_per_token: int
    encoding: str
    encoding_id: bytes
    notices: tuple[str, ...]
    tiers: tuple[TierSpec, ...] = ()


class Order(NamedTuple):
    """What is to be loaded, and on what. limits: before the pool is sized. encoder: who says how
    keys and values are stored.

    tier_hooks: who brings and opens tiers. scratch_hooks: who holds memory beside the pool. place:
    of this process among the ranks, which all load at the same time.
    """

    folder: ModelFolder
    model_class: type[Model]
    spec: ModelSpec
    kernels: Sequence[tuple[str, KernelPlugin]]
    block_size: int
    device: torch.device
    dtype: torch.dtype
    limits: Limits
    encoder: Implementation | None = None
    tier_hooks: TierHooks = NO_TIERS
    scratch_hooks: Sequence[Implementation] = ()
    place: Place = ALONE


def load(order: Order, config: Config, progress: Progress) -> Loaded:
    """Bind kernels, take the weights, allocate the pool. Raises `JackfieldError`s that say why."""
    spec = order.spec
    before = memory_of(order.device)
    here = order._replace(spec=rank_spec(spec, order.place.shard))
    kv_specs = [encode(kv_spec(here, group.window), order.encoder) for group in spec.groups]
    op_spec = OpSpec(
        order.dtype, spec.hidden_size, spec.head_dim, spec.vocab_size, order.place.ranks
    )  # fmt: skip
    agree = order.place.agree
    table = bind(order.kernels, op_spec, kv_specs, order.device, _asker(order))
    same(agree, "who serves which operation", dict(table.owners))
    model = _build(order, table, config, progress)
    attention = table.operations.attention
    layouts = [attention.layout(kv_spec) for kv_spec in kv_specs]
    block_bytes = bytes_per_block(spec.groups, layouts)
    check_tiles(table.owners[ATTENTION], layouts, order.block_size)
    alignment = prompt_alignment(table.owners[ATTENTION], layouts)
    limits = order.limits._replace(prompt_alignment=alignment)
    fixed = _fix_scales(order, model, table.operations, kv_specs, config)
    encodings = [kv_spec.encoding for kv_spec in kv_specs]
    eager = uncapturable(table, limits.max_seqs, limits.max_model_len, unused(order))
    short = short_steps(table.owners[ATTENTION], layouts)
    eager = eager if config.engine.graphs else frozenset(table.owners)

    def loaded_with(num_blocks: int) -> LoadedModel:
        layers = allocate(
            spec.groups, layouts, spec.softmax_scale, num_blocks, order.device, encodings,
            fixed.by_layer,
        )  # fmt: skip
        return LoadedModel(
            model, table.operations, layers, spec.groups, spec.vocab_size, spec.uses_prompt_lens,
            eager, short,
        )  # fmt: skip

    scratch = _scratch(order, limits, attention.workspace, loaded_with)
    num_blocks = _count(order, config, limits, block_bytes, scratch, before)
    num_blocks = least(agree, "num_blocks", num_blocks)
    limits = _fit_context(config, limits, num_blocks * order.block_size)
    loaded = loaded_with(num_blocks)
    copier = BlockCopier(loaded.layers, order.device)
    downloads = Withheld() if order.place.shard.rank else None
    runner = Runner(loaded, limits, order.block_size, order.device, copier, downloads)
    warm_up(runner, limits, order.block_size, num_blocks, order.device)
    experts = ExpertReader.of(model)
    shard = order.place.shard
    tiers = open_tiers(
        order.tier_hooks, copier, rank=shard.rank, size=shard.size,
        pinned=order.device.type == "cuda",
    )  # fmt: skip
    same(agree, "what the tiers hold", [list(tier) for tier in tiers.specs])
    executor = SingleDevice(runner, order.device, tiers.transfers, experts)
    return Loaded(
        executor, table, limits, num_blocks, num_blocks * block_bytes * shard.size,
        block_bytes * shard.size // order.block_size, fixed.origin,
        joined_identity(agree.gather("encoding", encoding_identity(kv_specs, fixed.by_layer))),
        (*fixed.notices, *graph_notices(table, eager, order.device, config.engine.graphs)),
        tiers.specs,
    )  # fmt: skip


def unused(order: Order) -> frozenset[str]:
    """Operations that this model never calls, whoever serves them."""
    plan = read_quant_plan(order.folder.config)
    quantized = {"quant_matmul", "quant_experts", "quant_matmul_silu_mul"}
    found = quantized if plan is None else set()
    experts = {"experts", "route", "quant_experts"}
    return frozenset(found if order.spec.uses_experts else found | experts)


def graph_notices(
    table: Table, eager: frozenset[str], device: torch.device, wanted: bool = True
) -> tuple[str, ...]:
    """Why steps of decodes are not, or not wholly, launched as CUDA graphs."""
    if device.type != "cuda" or not eager:
        return ()
    if not wanted:
        return ("no step is launched as a CUDA graph, because engine.graphs is off",)
    names = ", ".join(f"{name} of {table.owners.get(name, 'nobody')}" for name in sorted(eager))
    what = "sampling is not part of" if eager == {SAMPLE} else "no step is launched as"
    return (f"{what} a CUDA graph, because these operations cannot be captured: {names}",)


def _asker(order: Order) -> str:
    return order.encoder.plugin if order.encoder else ""


def _fix_scales(
    order: Order,
    model: Model,
    operations: Operations,
    kv_specs: Sequence[KvSpec],
    config: Config,
) -> FixedScales:
    dummy = config.model.load_format == "dummy"
    files = None if dummy else order.folder.tensor_files()
    shard = order.place.shard
    return fix_scales(Subject(model, operations, order.spec, kv_specs, files, order.device, shard))


def kv_spec(order: Order, window: int | None) -> KvSpec:
    spec = order.spec
    return KvSpec(
        spec.num_heads, spec.num_kv_heads, spec.head_dim, order.dtype, order.block_size, window,
        latent=spec.latent,
    )  # fmt: skip


def _build(order: Order, table: Table, config: Config, progress: Progress) -> Model:
    shard = order.place.shard
    settings: Mapping[str, Any] = order.folder.config
    plan = read_quant_plan(settings)
    with torch.inference_mode():
        if config.model.load_format == "dummy":
            random = made_up_weights(order.dtype, order.device, shard, config.model.seed, plan)
            return order.model_class(settings, table.operations, shard, random)
        files = order.folder.tensor_files()
        with SafetensorsWeights(files, order.dtype, order.device, shard, progress) as stored:
            weights = stored if plan is None else PlannedWeights(stored, plan)
            model = order.model_class(settings, table.operations, shard, weights)
            weights.ignore(KV_SCALE_NAME)
            weights.finish()
            return model


def _count(
    order: Order,
    config: Config,
    limits: Limits,
    block_bytes: int,
    scratch: int,
    before: Memory,
) -> int:
    blocks_per_seq = -(-limits.max_model_len // order.block_size)
    memory = memory_of(order.device)
    if order.device.type == "cpu":
        memory = memory._replace(free=memory.free // order.place.local_size)
        budget = Budget(min(CPU_POOL, int(memory.free * CPU_SHARE)), CPU_ORIGIN)
    else:
        own = held_by_us(before, memory)
        budget = share_of(memory, config.cache.memory_fraction, own, scratch)
    wish = PoolWish(config.cache.num_blocks, config.cache.memory)
    return count_blocks(wish, memory, block_bytes, blocks_per_seq * limits.max_seqs, budget)


def _scratch(
    order: Order, limits: Limits, workspace: Any, loaded_with: Callable[[int], LoadedModel]
) -> int:
    """Bytes beside weights and pool: measured on a GPU, estimated where a run costs too long."""
    device, size = order.device, order.block_size
    largest = BatchLimits(limits.max_tokens, limits.max_seqs, -(-limits.max_model_len // size))
    scratch: int = workspace(largest) + declared_scratch(order.scratch_hooks, largest)
    if device.type != "cuda":
        return scratch + activations(order.spec, limits)
    kernels = [plugin for _, plugin in order.kernels]
    first_of_host_first(
        order.place,
        "compiled kernels",
        lambda: rehearse(kernels, loaded_with(blocks_needed(limits, size)), limits, size, device),
    )
    peak = profile(loaded_with, limits, size, device, CudaProbe(device))
    torch.cuda.empty_cache()
    return scratch + peak + (SCRATCH_BYTES if order.tier_hooks.tiers else 0)


def activations(spec: ModelSpec, limits: Limits) -> int:
    """A generous estimate of what one step holds beside weights and pool, in bytes."""
    per_token = 16 * spec.hidden_size + 4 * spec.num_heads * spec.head_dim
    return FLOAT32_BYTES * (limits.max_tokens * per_token + 3 * limits.max_seqs * spec.vocab_size)


def _fit_context(config: Config, limits: Limits, pool_tokens: int) -> Limits:
    """Lower a context that nobody asked for to what the pool holds.

    A pool that was sized by hand below a context set by hand is meant: each request is then
    checked against both.
    """
    if pool_tokens >= limits.max_model_len:
        return limits
    sized_by_hand = config.cache.num_blocks is not None or config.cache.memory is not None
    if sized_by_hand and config.model.max_model_len is not None:
        return limits
    if config.model.max_model_len is not None:
        raise CapacityError(
            f"model.max_model_len is {limits.max_model_len}, but the KV pool holds "
            f"{pool_tokens} tokens; lower it, or raise cache.memory or cache.num_blocks"
        )
    return limits._replace(max_model_len=pool_tokens)
