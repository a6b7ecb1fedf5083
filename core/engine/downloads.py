"""Tokens on their way to the host, on a stream of their own: the next step does not wait for them.

Shape suffix: R rows that are sampled.
"""

from typing import Protocol

import torch
from torch import Tensor


class Download(Protocol):
    """Some tokens that will be on the host."""

    def read(self) -> list[int]:
        """Wait until they are. Called once."""

    def settle(self) -> None:
        """Wait until the device's tokens are read no more."""


class Downloads(Protocol):
    """Brings tokens to the host."""

    def start(self, tokens_R: Tensor) -> Download:
        """Called right after what computes them was submitted."""


class Direct:
    """Where the host can read them, as on a CPU."""

    def start(self, tokens_R: Tensor) -> Download:
        return Ready(tokens_R)


class Ready:
    """Tokens that are there."""

    def __init__(self, tokens_R: Tensor) -> None:
        self._tokens_R = tokens_R

    def read(self) -> list[int]:
        return self._tokens_R.tolist()

    def settle(self) -> None:
        pass


class Withheld:
    """For a rank whose tokens nobody asks for, since another one has the same."""

    def start(self, tokens_R: Tensor) -> Download:
        return Nothing()


class Nothing:
    """Tokens that stay where they are. Steps run in order, so nobody writes over them too soon."""

    def read(self) -> list[int]:
        return []

    def settle(self) -> None:
        pass


class Slot:
    """Locked memory for the tokens of one step."""

    def __init__(self, max_seqs: int) -> None:
        self.tokens = torch.empty(max_seqs, dtype=torch.int64, pin_memory=True)
        self.done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self.computed = torch.cuda.Event()  # type: ignore[no-untyped-call]


class SideStream:
    """Slots that a second stream copies to; as many as there are steps in flight."""

    def __init__(self, max_seqs: int, device: torch.device) -> None:
        self._device = device
        self._max_seqs = max_seqs
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._free: list[Slot] = []

    def start(self, tokens_R: Tensor) -> Download:
        slot = self._free.pop() if self._free else Slot(self._max_seqs)
        slot.computed.record(torch.cuda.current_stream(self._device))
        self._stream.wait_event(slot.computed)
        with torch.cuda.stream(self._stream):
            slot.tokens[: len(tokens_R)].copy_(tokens_R, non_blocking=True)
            slot.done.record(self._stream)
        return Copied(slot, tokens_R, self._free)


class Copied:
    """Tokens that a copy brings. They are held until then: nobody may write over them."""

    def __init__(self, slot: Slot, tokens_R: Tensor, free: list[Slot]) -> None:
        self._slot = slot
        self._tokens_R = tokens_R
        self._free = free
        self._is_read = False

    def read(self) -> list[int]:
        self.settle()
        self._is_read = True
        tokens = self._slot.tokens[: len(self._tokens_R)].tolist()
        self._free.append(self._slot)
        return tokens

    def settle(self) -> None:
        # Once it was read, the slot may be that of a step in flight.
        if not self._is_read:
            self._slot.done.synchronize()


def downloads_for(max_seqs: int, device: torch.device) -> Downloads:
    """What suits the device."""
    return SideStream(max_seqs, device) if device.type == "cuda" else Direct()
