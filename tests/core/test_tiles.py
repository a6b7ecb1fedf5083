"""Blocks hold whole tiles of the kernel that reads them."""

import pytest

from jackfield.core.api import ConfigError, KvLayout, PluginContractError
from jackfield.core.kv.tiles import check_tiles


def test_whole_tiles_are_fine() -> None:
    check_tiles("fast", [KvLayout(()), KvLayout((), tile=8), KvLayout((), tile=16)], 16)


def test_parts_of_tiles_are_refused_with_the_way_out() -> None:
    with pytest.raises(ConfigError) as refused:
        check_tiles("fast", [KvLayout(()), KvLayout((), tile=16)], 8)
    assert str(refused.value).startswith(
        "block size 8 is not a multiple of 16, the tile of kernel fast; set "
        "cache.paged.block_size to one of 16, 32, 64"
    )


@pytest.mark.parametrize("tile", [0, -1, 1.5, True, None])
def test_a_tile_is_a_number_of_positions(tile: object) -> None:
    with pytest.raises(PluginContractError, match="kernel plugin fast: the tile of its layout"):
        check_tiles("fast", [KvLayout((), tile=tile)], 16)  # type: ignore[arg-type]
