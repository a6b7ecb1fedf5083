"""From a configuration to what is to be loaded: the part of a start that every rank does."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from jackfield.core.api import CacheAxis, CacheLayout, KernelPlugin, ModelSpec, PluginContractError
from jackfield.core.checkpoint.folder import ModelFolder
from jackfield.core.engine.planner import Limits
from jackfield.core.executors.device import choose_dtype, device_of_rank, set_threads
from jackfield.core.executors.division import check_ranks
from jackfield.core.executors.encoder import encoder_of
from jackfield.core.executors.limits import limits_for
from jackfield.core.executors.loading import Order
from jackfield.core.executors.place import Place
from jackfield.core.executors.tiers import TierHooks
from jackfield.core.host.config import Config
from jackfield.core.host.discover import Found
from jackfield.core.host.manager import Manager
from jackfield.core.host.sources import Resolved
from jackfield.core.host.stack import Caches, Named, build_caches, load_model_class

TIER_HOOKS = ("tiers", "store")


class Prepared(NamedTuple):
    """What is known before anything is loaded. model: the plugin."""

    folder: ModelFolder
    model: Found
    model_class: Any
    spec: ModelSpec
    device: torch.device
    dtype: torch.dtype
    limits: Limits
    caches: Caches
    block_size: int

    def order(self, kernels: Sequence[Named[KernelPlugin]], place: Place) -> Order:
        """What `load` takes."""
        manager = self.caches.manager
        return Order(
            self.folder,
            self.model_class,
            self.spec,
            [(kernel.name, kernel.plugin) for kernel in kernels],
            self.block_size,
            self.device,
            self.dtype,
            self.limits,
            encoder_of(manager),
            TierHooks(*(manager.implementations(hook) for hook in TIER_HOOKS)),
            manager.implementations("scratch"),
            place,
        )


def rank_device(config: Config, rank: int) -> torch.device:
    """What a process computes on, with which its threads are limited, too. rank: of its host."""
    size = local_size(config)
    set_threads(config.engine.threads, size)
    return device_of_rank(config.engine.device, rank, size)


def local_size(config: Config) -> int:
    """Ranks of each host."""
    return config.parallel.tensor // config.parallel.nodes


def prepare(resolved: Resolved, path: Path, device: torch.device, *, streamed: bool) -> Prepared:
    """Read the model's configuration, import the plugins, and check that all fits together.

    path: of the model. streamed: whether somebody will wait for single tokens. Raises
    `JackfieldError`s that name what is wrong.
    """
    config = resolved.config
    folder = ModelFolder(path)
    chosen = load_model_class(config.model.architecture or folder.architecture)
    model_class: Any = chosen.cls
    spec: ModelSpec = model_class.describe(folder.config)
    check_ranks(spec, config.parallel.tensor, whole_experts=config.parallel.experts)
    limits = limits_for(config, spec, device, streamed=streamed)
    caches = build_caches(config, origins=resolved.origins)
    owner = caches.by_axis[CacheAxis.ALLOCATOR][0].found
    block_size = block_size_of(owner, caches.manager, limits.max_model_len)
    dtype = choose_dtype(config.model.dtype, folder.dtype_name, device)
    return Prepared(
        folder, chosen.found, model_class, spec, device, dtype, limits, caches, block_size
    )


def block_size_of(owner: Found, manager: Manager, max_model_len: int) -> int:
    """What the owner of the allocator says. Raises `PluginContractError` for nonsense."""
    implementations = manager.implementations("layout")
    if not implementations:
        raise PluginContractError(f"{owner} owns the allocator but implements no layout hook")
    layout = implementations[0].call(max_model_len)
    if not isinstance(layout, CacheLayout) or type(layout.block_size) is not int:
        raise PluginContractError(f"{owner}: layout returned {layout!r}, not a CacheLayout")
    if layout.block_size < 1:
        raise PluginContractError(f"{owner}: layout has blocks of {layout.block_size} positions")
    return layout.block_size
