"""Laws of a plugin that brings tiers: which ones, and what it copies to them."""

from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any

from jackfield.core.api import DEVICE, Move, MoveCandidate, MoveView, TierSpace, TierSpec
from jackfield.core.testing.tier_laws import SPACES, check_store

BLOCK_BYTES = (1, 4096, 1_835_008)
VIEWS = 300


def check_tiers(plugin: Any) -> None:
    """Distinct names, at least one slot each, and the same when asked again."""
    name = type(plugin).__name__
    for block_bytes in BLOCK_BYTES:
        first, second = list(plugin.tiers(block_bytes)), list(plugin.tiers(block_bytes))
        assert first == second, f"{name}.tiers says {first} and then {second}"
        for spec in first:
            _check_tier(name, spec)
        names = [spec.name for spec in first]
        assert len(set(names)) == len(names), f"{name}.tiers names a tier twice: {names}"


def _check_tier(name: str, spec: Any) -> None:
    assert isinstance(spec, TierSpec), f"{name}.tiers gave {spec!r}"
    fits = isinstance(spec.name, str) and spec.name and spec.name != DEVICE
    assert fits, f"{name}.tiers gave the name {spec.name!r}"
    slots = spec.num_slots
    assert type(slots) is int and slots > 0, f"M9: {name}.tiers gave {slots!r} slots"
    assert isinstance(spec.checked, bool), f"{name}.tiers gave checked {spec.checked!r}"


def check_stores(plugin: Any, spaces: tuple[TierSpace, ...] = SPACES) -> None:
    """Every tier has a store that keeps the laws of stores; a tier of somebody else has none."""
    name = type(plugin).__name__
    stranger = plugin.store("somebody else's", spaces[0])
    assert stranger is None, f"{name}.store opens a tier that it does not bring: {stranger!r}"
    for tier in names_of(plugin):
        opened = plugin.store(tier, spaces[0])
        assert opened is not None, f"{name}.store does not open its tier {tier!r}"
        opened.close()
        check_store(partial(plugin.store, tier), spaces=spaces)


def names_of(plugin: Any) -> list[str]:
    """Of the tiers that the plugin brings."""
    return [spec.name for spec in plugin.tiers(BLOCK_BYTES[0])]


def check_moves(plugin: Any, seed: int = 0) -> None:
    """E9: what is named is a candidate, once, and no more than the budget; for any view."""
    random, name = Random(seed), type(plugin).__name__
    tiers = names_of(plugin) if hasattr(plugin, "tiers") else ["host"]
    for _ in range(VIEWS):
        view = _any_view(random, [DEVICE, *tiers])
        budget = random.randrange(10) * view.block_bytes + random.randrange(view.block_bytes)
        _check_answer(name, view, budget, plugin.move(view, budget))


def _check_answer(name: str, view: MoveView, budget: int, answer: Any) -> None:
    assert answer is not None, f"E9: {name}.move gave None"
    moves = list(answer)
    for move in moves:
        fits = isinstance(move, Move) and type(move.priority) is int
        assert fits, f"E9: {name}.move gave {move!r}, which is no Move"
    blocks = [move.block for move in moves]
    candidates = {one.block for one in view.candidates}
    strangers = [block for block in blocks if block not in candidates]
    assert not strangers, f"E9: {name}.move names {strangers}, which are no candidates"
    assert len(set(blocks)) == len(blocks), f"E9: {name}.move names a block twice: {blocks}"
    size = len(moves) * view.block_bytes
    assert size <= budget, f"E9: {name}.move moves {size} bytes, {budget} may be"


def _any_view(random: Random, tiers: Sequence[str]) -> MoveView:
    place = random.randrange(len(tiers) - 1) if len(tiers) > 1 else 0
    above, below = tiers[place], tiers[min(place + 1, len(tiers) - 1)]
    capacity, below_capacity = random.randint(1, 50), random.randint(1, 50)
    free = random.randint(0, capacity)
    clean = random.randint(0, capacity - free)
    count = random.randint(0, capacity - free - clean)
    leased = random.randint(0, count)
    blocks = random.sample(range(1000), count)
    candidates = [
        MoveCandidate(block, random.randrange(9), place < leased)
        for place, block in enumerate(blocks)
    ]
    return MoveView(
        above, below, free, clean, capacity, random.randint(0, below_capacity), below_capacity,
        random.choice((1, 10, 4096)), candidates,
    )  # fmt: skip
