"""Turns of the event loop: few at once, first come first served, and nobody is forgotten."""

import asyncio

import pytest

from jackfield.server.http.turns import Turns


async def crowd(turns: Turns, count: int, cancelled: frozenset[int]) -> list[tuple[int, int]]:
    """Who went on in which turn of the loop, for callers that all came in the first one."""
    turn, went = 0, []

    async def caller(name: int) -> None:
        await turns.take()
        went.append((turn, name))

    tasks = [asyncio.create_task(caller(name)) for name in range(count)]
    await asyncio.sleep(0)
    for name in cancelled:
        tasks[name].cancel()
    while not all(task.done() for task in tasks):
        turn += 1
        await asyncio.sleep(0)
    return went


@pytest.mark.parametrize("count", [1, 3, 4, 17])
def test_everybody_goes_in_order_and_few_at_once(count: int) -> None:
    went = asyncio.run(crowd(Turns(3), count, frozenset()))
    assert [name for _, name in went] == list(range(count))
    for turn, _ in went:
        assert sum(other == turn for other, _ in went) <= 3


def test_who_left_takes_nobodys_turn() -> None:
    went = asyncio.run(crowd(Turns(2), 9, frozenset({3, 4, 5})))
    assert [name for _, name in went] == [0, 1, 2, 6, 7, 8]


def test_one_by_one_nobody_waits() -> None:
    async def alone() -> int:
        turns = Turns(2)
        for _ in range(20):
            await turns.take()
            await asyncio.sleep(0)
        return len(turns._waiting)

    assert asyncio.run(alone()) == 0
