"""Sums over ranks that are streams of one GPU: what runs there is what runs on several."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from jackfield.core.api import Ranks
from jackfield.plugins.kernels.triton.support import TritonConfig
from jackfield.plugins.kernels.triton.symmetric import (
    Memory,
    Peers,
    bytes_of,
    leave,
    leaving_word,
)
from jackfield.plugins.kernels.triton.symmetric_exchange import Exchange
from jackfield.plugins.kernels.triton.symmetric_trial import Trial

pytestmark = pytest.mark.gpu
graphs: Any = SimpleNamespace(**run_path(str(Path(__file__).with_name("all_reduce_graphs.py"))))
DEVICE = torch.device("cuda")
ROWS = (1, 8, 64, 65, 300)
"""None of them is left to a library, which would want a GPU for each rank."""


def places_of(size: int, waits: bool = True) -> list[Any]:
    """Memory of one GPU, as all ranks find each other's. All programs of a launch of each must run
    at once, so there are fewer of them where there are more ranks. waits: for each other."""
    sizes = graphs.SIZES._replace(programs=graphs.SIZES.programs * 2 // size)
    ranks = [Ranks(rank, size) for rank in range(size)]
    memory = [torch.empty(bytes_of(one, sizes), dtype=torch.uint8, device=DEVICE) for one in ranks]
    addresses = [one.data_ptr() for one in memory]
    places = []
    for one, own in zip(ranks, memory, strict=True):
        exchange = Exchange(TritonConfig(), sizes)
        leaving = leaving_word(DEVICE)
        if not waits:
            leave(leaving)
        exchange.peers = Peers(one, sizes, Memory(own, addresses, memory), leaving)
        places.append(graphs.Place(one, graphs.Operations.of(exchange), torch.cuda.Stream()))
    return places


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("copied", graphs.COPIES)
def test_graphs_in_any_order(size: int, copied: str) -> None:
    with DEVICE:
        # Loading a kernel may wait for all that run, and so for a rank that waits for the next.
        assert graphs.replayed(places_of(size, waits=False), ROWS, graphs.COPIES[copied])
        assert graphs.replayed(places_of(size), ROWS, graphs.COPIES[copied]) == {}


def passed(place: Any, ranks: Ranks) -> bool:
    exchange = place.ops.exchange
    config = exchange.configs.find("sum", torch.float32, DEVICE)
    leaving = exchange.peers._leaving
    with DEVICE, place.here():
        return Trial(ranks, exchange.peers, config, DEVICE, leaving).passed()


@pytest.mark.parametrize("wrong", [False, True])
def test_a_trial_tells_whether_sums_are_right(wrong: bool) -> None:
    """wrong: the second rank has what the first one has."""
    for place in places_of(2, waits=False):
        passed(place, place.ranks)
    places = places_of(2)
    ranks = [places[0].ranks, places[0 if wrong else 1].ranks]
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(passed, places, ranks)) == [not wrong] * 2
