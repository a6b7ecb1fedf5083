"""What was found for one request is taken for another that begins alike, and for nobody else."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from jackfield.core.api import Chain, ReleaseCause, RequestContext
from jackfield.core.kv import beginnings, request_chain
from jackfield.core.kv.block_cache import BlockCache
from jackfield.core.kv.build import CacheSettings
from jackfield.core.kv.keys import token_bytes
from jackfield.core.kv.request_chain import RequestChain
from jackfield.core.testing.memory import CacheKit, make_memory
from jackfield.core.testing.namespace_laws import view_of
from jackfield.plugins.cache.lru import Lru
from jackfield.plugins.cache.prefix import HashChain, Prefix
from jackfield.plugins.cache.radix import Radix

SIZE = 2


class Asked(HashChain):
    """Notes where each question begins."""

    def __init__(self) -> None:
        super().__init__()
        self.starts: list[int] = []

    def match(self, chain: Chain, start: int, parent: int | None) -> Sequence[int]:
        self.starts.append(start)
        return super().match(chain, start, parent)


def cache_of(identity: Any = Prefix, num_blocks: int = 64, **settings: Any) -> BlockCache:
    kit = CacheKit([identity(identity.Config())], [Lru(Lru.Config())])
    return make_memory(num_blocks, SIZE, kit, CacheSettings(**settings)).cache


def chain_of(cache: BlockCache, tokens: list[int], tenant: str = "a") -> RequestChain:
    chain = cache.open(view_of(0, RequestContext(tenant)), token_bytes(tokens), b"")
    assert chain is not None
    return chain


def write(cache: BlockCache, tokens: list[int], tenant: str = "a") -> None:
    """A request takes what is there, computes the rest and ends."""
    chain = chain_of(cache, tokens, tenant)
    blocks = cache.acquire(chain, cache.find(chain)[: len(tokens) // SIZE])
    new = len(tokens) // SIZE - len(blocks)
    blocks += cache.pool.take(new) if new else []
    cache.publish(chain, blocks, len(tokens), 0)
    cache.release(chain, blocks, len(tokens), 0, ReleaseCause.FINISHED)


def found(cache: BlockCache, tokens: list[int], tenant: str = "a") -> int:
    return len(cache.find(chain_of(cache, tokens, tenant)))


def test_the_index_is_asked_for_the_rest_only() -> None:
    cache = cache_of()
    index = Asked()
    cache.finder._index = index
    head = list(range(20))
    write(cache, [*head, 50, 51])
    assert found(cache, head) == 10
    index.starts.clear()
    assert found(cache, [*head, 50, 51, 60, 61]) == 11
    assert found(cache, [*head, 70, 71]) == 10
    assert found(cache, [*head[:6], 80, 81, 82, 83]) == 3
    assert index.starts == [10, 10, 3]


def test_what_is_gone_is_not_found() -> None:
    cache = cache_of(num_blocks=12)
    head = list(range(20))
    write(cache, head)
    assert found(cache, head) == 10
    cache.pool.give(cache.pool.take_unheld(8))  # the last six of the head have left
    assert found(cache, head) == 4
    assert cache.reset() and found(cache, head) == 0


def test_tenants_keep_apart() -> None:
    cache = cache_of()
    head = list(range(20))
    write(cache, head, "a")
    assert found(cache, head, "a") == 10
    assert found(cache, head, "b") == 0


def test_tenants_share_no_more_than_the_beginning_that_is_no_secret() -> None:
    cache = cache_of(shared_prefix_tokens=6)
    head = list(range(20))
    write(cache, head, "a")
    assert found(cache, head, "a") == 10
    assert found(cache, head, "b") == 3


@pytest.mark.parametrize("identity", [Prefix, Radix])
def test_keys_that_meet_are_not_believed(identity: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        request_chain, "keys_of", lambda data, size, **more: bytes(16) * (len(data) // (4 * size))
    )
    cache = cache_of(identity)
    write(cache, [1, 2, 3, 4, 5, 6])
    assert found(cache, [1, 2, 3, 4, 5, 6]) == 3
    assert found(cache, [1, 2, 3, 9, 5, 6]) == 1
    assert found(cache, [9, 2, 3, 4, 5, 6]) == 0


def test_few_are_remembered() -> None:
    cache = cache_of(num_blocks=256)
    for number in range(100):
        write(cache, [number, number])
        assert found(cache, [number, number]) == 1
    assert len(cache._beginnings._last) == beginnings.REMEMBERED
    assert found(cache, [0, 0]) == 1


@pytest.mark.parametrize("identity", [Prefix, Radix])
@pytest.mark.parametrize("seed", range(4))
def test_it_finds_what_the_index_would_find(identity: Any, seed: int) -> None:
    """Whatever was written and has left, with and without the memory of beginnings."""
    random = Random(seed)
    cache = cache_of(identity, num_blocks=24)
    heads = [[random.randrange(3) for _ in range(16)] for _ in range(3)]
    for _ in range(150):
        tokens = random.choice(heads)[: random.randrange(17)]
        tokens = tokens + [random.randrange(3) for _ in range(random.randrange(6))]
        if random.random() < 0.5 and len(tokens) >= SIZE:
            write(cache, tokens)
        chain = chain_of(cache, tokens)
        assert cache.find(chain) == cache.finder.match(chain_of(cache, tokens), 0, None)
        cache.residency.check()


def test_an_index_is_asked_only_if_somebody_has_begun_alike() -> None:
    cache = cache_of()
    index = Asked()
    cache.finder._index = index
    write(cache, list(range(20)))
    index.starts.clear()
    assert found(cache, [50, *range(1, 20)]) == 0 and found(cache, list(range(20)), "b") == 0
    assert index.starts == []
    assert found(cache, [0, 1, 70, 71]) == 1
    assert cache.reset()
    cache.finder._index = index
    assert found(cache, list(range(20))) == 0 and index.starts == [0]


def test_one_of_two_whose_keys_have_met_stays_to_be_found() -> None:
    """The core compares tokens, so that both may be there."""
    cache = cache_of(Radix)
    entries = []
    for tokens in ([1, 2], [3, 4]):
        chain = cache.open(view_of(0, RequestContext()), token_bytes(tokens), b"k" * 16)
        assert chain is not None
        blocks = cache.pool.take(1)
        cache.publish(chain, blocks, 2, 0)
        entries.append(chain.entries[0])
        cache.release(chain, blocks, 2, 0, ReleaseCause.FINISHED)
    cache.residency.kill(entries[0])
    chain = cache.open(view_of(0, RequestContext()), token_bytes([3, 4]), b"k" * 16)
    assert chain is not None and cache.find(chain) == entries[1:]
