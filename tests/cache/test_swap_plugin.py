"""The plugin `swap`: which tiers it brings, and what it copies ahead of need."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from jackfield.core.api import (
    CapacityError,
    ConfigError,
    Move,
    MoveCandidate,
    MoveView,
    TierSpace,
    TierSpec,
)
from jackfield.core.host.config import CacheConfig, Config
from jackfield.core.testing.tier_laws import check_store
from jackfield.plugins.cache.swap import Swap, SwapConfig, host_store
from jackfield.plugins.cache.swap.host_store import HostStore

MIB = 2**20


def swap(**settings: Any) -> Swap:
    return Swap(SwapConfig(**settings))


def test_memory_and_disk_are_cut_into_blocks() -> None:
    plugin = swap(memory="10 MiB", disk="1GiB")
    assert plugin.tiers(3 * MIB) == [TierSpec("host", 3, False), TierSpec("disk", 341, False)]
    assert swap(memory=3 * MIB).tiers(3 * MIB) == [TierSpec("host", 1, False)]
    assert swap().tiers(MIB) == [TierSpec("host", 4096, False)]
    assert swap(checked=True).tiers(MIB) == [TierSpec("host", 4096)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"memory": "1 MiB"}, "cache.swap.memory is 1 MiB, less than one block of 3 MiB"),
        ({"disk": "1.5 MiB"}, "cache.swap.disk is 1.5 MiB, less than one block of 3 MiB"),
    ],
)
def test_less_than_a_block_is_an_error(settings: Mapping[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        swap(**settings).tiers(3 * MIB)


@pytest.mark.parametrize(
    "settings",
    [{"memory": 0}, {"memory": "much"}, {"disk": -1}, {"clean_share": 1.1}, {"folders": "x"}],
)
def test_settings_are_checked(settings: Mapping[str, Any]) -> None:
    with pytest.raises(ValidationError):
        swap(**settings)


def test_other_tiers_are_none_of_its_business() -> None:
    assert swap().store("remote", TierSpace(0, 8, 1)) is None
    assert swap().move(view(below="remote", candidates=range(9)), 10**9) == ()


def view(
    *,
    tier: str = "device",
    below: str = "host",
    free: int = 0,
    clean: int = 0,
    candidates: Sequence[int] = (),
    leased: int = 0,
) -> MoveView:
    """A tier of 100 blocks of 10 bytes. leased: so many of the first candidates are."""
    listed = [MoveCandidate(block, 0, at < leased) for at, block in enumerate(candidates)]
    return MoveView(tier, below, free, clean, 100, 50, 200, 10, listed)


@pytest.mark.parametrize(
    ("seen", "budget", "moved"),
    [
        (view(free=6, clean=4, candidates=range(9)), 1000, []),
        (view(free=6, clean=1, candidates=range(9)), 1000, [0, 1, 2]),
        (view(free=0, clean=0, candidates=range(30)), 1000, list(range(10))),
        (view(free=0, clean=0, candidates=range(3)), 1000, [0, 1, 2]),
        (view(free=0, clean=0, candidates=range(9)), 49, [0, 1, 2, 3]),
        (view(free=0, clean=0, candidates=range(9)), 9, []),
        (view(free=100, candidates=range(9), leased=2), 1000, [0, 1]),
        (view(free=100, candidates=range(9), leased=5), 20, [0, 1]),
        (view(free=9, candidates=range(9), leased=4), 1000, [0, 1, 2, 3]),
        (view(tier="host", below="disk", free=100, candidates=range(9), leased=4), 1000, []),
        (view(tier="host", below="disk", free=8, candidates=range(9), leased=4), 1000, [0, 1]),
        (view(), 1000, []),
    ],
)
def test_a_tenth_is_kept_free_or_clean_and_leased_blocks_are_copied(
    seen: MoveView, budget: int, moved: list[int]
) -> None:
    moves = list(swap(clean_share=0.1).move(seen, budget))
    leased = {one.block for one in seen.candidates if one.leased}
    assert moves == [Move(block, int(block in leased)) for block in moved]


def test_every_block_of_the_device_gets_a_copy_unless_somebody_wants_less() -> None:
    assert len(swap().move(view(free=10, clean=30, candidates=range(90)), 1000)) == 60


def test_the_share_is_a_setting() -> None:
    assert len(swap(clean_share=0.5).move(view(candidates=range(90)), 1000)) == 50
    assert swap(clean_share=0).move(view(candidates=range(90)), 1000) == ()


def test_memory_keeps_the_laws_of_a_store() -> None:
    check_store(HostStore)


def test_an_empty_slot_of_the_memory_is_not_read() -> None:
    store, into_B = HostStore(TierSpace(0, 8, 2)), torch.zeros(8, dtype=torch.uint8)
    store.put(0, into_B)
    store.drop(0)
    for slot in (0, 1):
        with pytest.raises(LookupError):
            store.get(slot, into_B)


def test_more_memory_than_is_free_is_an_error_before_it_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9999999 kB\nMemAvailable: 2048 kB\n")
    monkeypatch.setattr(host_store, "MEMINFO", meminfo)
    HostStore(TierSpace(0, MIB, 2)).close()
    with pytest.raises(CapacityError) as caught:
        HostStore(TierSpace(0, MIB, 3))
    assert "takes 3 MiB, but only 2 MiB of" in str(caught.value)
    assert "set cache.swap.memory to less" in str(caught.value)


def run(script: str) -> str:
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout


def test_memory_is_taken_as_it_is_used() -> None:
    script = """
import psutil, torch
from jackfield.core.api import TierSpace
from jackfield.plugins.cache.swap.host_store import HostStore
torch.zeros(1)
process = psutil.Process()
before = process.memory_info().rss
store = HostStore(TierSpace(0, 2**20, 512))
opened = process.memory_info().rss - before
data = torch.ones(2**20, dtype=torch.uint8)
for slot in range(64):
    store.put(slot, data)
print(opened // 2**20, (process.memory_info().rss - before) // 2**20)
"""
    opened, used = map(int, run(script).split())
    assert opened < 32
    assert 64 <= used < 128


def test_the_plugin_loads_without_torch() -> None:
    script = "import sys, jackfield.plugins.cache.swap; print('torch' in sys.modules)"
    assert run(script).strip() == "False"


def test_sizes_of_the_core_and_of_plugins_are_written_alike() -> None:
    config = Config(cache=CacheConfig.model_validate({"memory": "1.5GiB"}))
    assert config.cache.memory == swap(memory="1.5GiB").config.memory == 3 * 2**29
