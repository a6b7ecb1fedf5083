"""Blocks must hold whole tiles of the kernel that reads them."""

from collections.abc import Iterable

from jackfield.core.api import ConfigError, KvLayout, PluginContractError

MULTIPLES = (1, 2, 4)
"""Of the tile: the sizes that are offered instead."""


def check_tiles(kernel: str, layouts: Iterable[KvLayout], block_size: int) -> None:
    """Raises `ConfigError` for blocks that do not hold whole tiles. kernel: whose layouts."""
    for layout in layouts:
        tile = layout.tile
        if type(tile) is not int or tile < 1:
            raise PluginContractError(
                f"kernel plugin {kernel}: the tile of its layout is {tile!r}; expected how many "
                f"positions it reads at once, 1 or more"
            )
        if block_size % tile:
            sizes = ", ".join(str(factor * tile) for factor in MULTIPLES)
            raise ConfigError(
                f"block size {block_size} is not a multiple of {tile}, the tile of kernel "
                f"{kernel}; set cache.paged.block_size to one of {sizes}, or put another kernel "
                f"before it in kernel.stack"
            )
