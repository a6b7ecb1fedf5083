"""Fairness inside the event loop: few requests begin at once, the others wait their turn."""

import asyncio
from collections import deque


class Turns:
    """Lets `per_turn` callers go on in one turn of the loop, first come first served.

    When very many requests come at once, answers under way and health checks come in between.
    """

    def __init__(self, per_turn: int) -> None:
        self._per_turn = per_turn
        self._left = per_turn
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_ending = False

    async def take(self) -> None:
        """Return when it is the caller's turn; at once when few have come."""
        if self._left and not self._waiting:
            self._use()
            return
        mine = asyncio.get_running_loop().create_future()
        self._waiting.append(mine)
        await mine

    def _use(self) -> None:
        self._left -= 1
        if not self._is_ending:
            self._is_ending = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self._left, self._is_ending = self._per_turn, False
        while self._waiting and self._left:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
                self._use()
