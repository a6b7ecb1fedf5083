"""A ring's slot is given again only when nobody reads the tokens that were in it."""

import torch

from jackfield.core.engine.token_ring import NOBODYS, SLOTS, TokenRing


class Pending:
    """A copy that somebody may have to wait for."""

    def __init__(self) -> None:
        self.waited = 0

    def read(self) -> list[int]:
        return []

    def settle(self) -> None:
        self.waited += 1


def test_tokens_stay_until_their_slot_is_taken_again() -> None:
    ring = TokenRing(4, torch.device("cpu"))
    downloads = []
    for step in range(SLOTS):
        slot = ring.take()
        ring.write(torch.arange(3) + 10 * step, torch.from_numpy(ring.told(slot)))
        downloads.append(Pending())
        ring.copied_by(slot, downloads[-1])
    ring.write(torch.full((3,), -7), torch.from_numpy(ring.told(NOBODYS)))
    for step in range(SLOTS):
        assert ring.tokens(step, 3).tolist() == [10 * step, 10 * step + 1, 10 * step + 2]
    assert not any(download.waited for download in downloads)
    assert ring.take() == 0
    assert [download.waited for download in downloads] == [1] + [0] * (SLOTS - 1)
    assert ring.take() == 1
