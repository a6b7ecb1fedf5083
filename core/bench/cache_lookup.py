"""Time of finding a long prompt in a full cache, and the memory that knowing blocks takes."""

import gc
import tracemalloc
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from random import Random
from statistics import median
from time import thread_time
from typing import Any, NamedTuple

from jackfield.core.api import ReleaseCause, RequestContext, SamplingParams
from jackfield.core.bench.cache_pair import Configure, check_numbers
from jackfield.core.bench.provenance import versions
from jackfield.core.bench.unloaded import BLOCK_SIZE, unloaded
from jackfield.core.bench.workloads import LARGEST_ID
from jackfield.core.checkpoint.progress import Progress
from jackfield.core.engine.clock import SystemClock
from jackfield.core.engine.planner import Limits
from jackfield.core.engine.request import Request
from jackfield.core.kv.block_cache import BlockCache
from jackfield.core.kv.keys import block_keys, token_bytes
from jackfield.core.kv.request_chain import RequestChain

INDEXES = ("prefix", "radix")
SEQUENCES = 1
MICROSECONDS = 1e6


class LookupWork(NamedTuple):
    """A prompt of so many blocks, in a cache of so many, looked up so often."""

    prompt_blocks: int = 2048
    cached_blocks: int = 100_000
    lookups: int = 50


class Lookup(NamedTuple):
    """Medians of the index of that name, in microseconds, and bytes per cached token.

    open_us: to make the request's chain of its tokens and keys, before. found: blocks. fault: the
    last one of the plugin; one that was switched off was not measured.
    """

    name: str
    find_us: float
    open_us: float
    bytes_per_token: float
    found: int
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Lookups:
    """hash_us: to make the keys of the prompt, where its request is made, not in the loop."""

    prompt_tokens: int
    cached_blocks: int
    hash_us: float
    indexes: list[Lookup]
    versions: dict[str, str]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"indexes": [one._asdict() for one in self.indexes]}


def measure_lookup(configure: Configure, work: LookupWork, progress: Progress) -> Lookups:
    """Fill a cache with other prompts, and find the last one. No model is loaded.

    Times are those of the processor, so that others on the machine do not count. Bytes are those
    that Python gives to entries, index and evictor. Raises `ConfigError`.
    """
    check_numbers("lookup", work._asdict())
    prompt = _prompt(work, _sequences(work) - 1)
    hashing = [_timed(partial(block_keys, prompt, BLOCK_SIZE)) for _ in range(work.lookups)]
    progress.start("Looking up", len(INDEXES) * _sequences(work))
    try:
        found = [_measure(configure, work, index, progress) for index in INDEXES]
    finally:
        progress.finish()
    return Lookups(
        prompt_tokens=len(prompt),
        cached_blocks=_sequences(work) * work.prompt_blocks,
        hash_us=round(MICROSECONDS * median(hashing), 1),
        indexes=found,
        versions=versions(),
    )


def _sequences(work: LookupWork) -> int:
    return max(-(-work.cached_blocks // work.prompt_blocks), 1)


def _prompt(work: LookupWork, number: int) -> list[int]:
    random = Random(number)
    return [random.randint(0, LARGEST_ID) for _ in range(work.prompt_blocks * BLOCK_SIZE)]


def _measure(configure: Configure, work: LookupWork, index: str, progress: Progress) -> Lookup:
    num_blocks = _sequences(work) * work.prompt_blocks
    limits = Limits(BLOCK_SIZE, SEQUENCES, work.prompt_blocks * BLOCK_SIZE)
    resolved = configure({"cache.stack": ["paged", index]})
    parts = unloaded(resolved, limits, SystemClock(), num_blocks)
    cache = parts.memory.cache
    bytes_held = _fill(cache, work, progress)
    prompt = _prompt(work, _sequences(work) - 1)
    keys = block_keys(prompt, BLOCK_SIZE)
    opening = [_timed(partial(_open, cache, prompt, keys)) for _ in range(work.lookups)]
    chains = [_open(cache, prompt, keys) for _ in range(work.lookups)]
    finding = [_timed(partial(cache.find, chain)) for chain in chains]
    return Lookup(
        name=index,
        find_us=round(MICROSECONDS * median(finding), 1),
        open_us=round(MICROSECONDS * median(opening), 1),
        bytes_per_token=round(bytes_held / (num_blocks * BLOCK_SIZE), 2),
        found=len(chains[0].found),
        fault=next((guard.last_fault for guard in parts.guards if guard.plugin == index), None),
    )


def _fill(cache: BlockCache, work: LookupWork, progress: Progress) -> int:
    """Bytes that the cache takes for what it knows afterwards."""
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(_sequences(work)):
            _publish(cache, _prompt(work, number))
            progress.advance(1)
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def _publish(cache: BlockCache, prompt: list[int]) -> None:
    """As a request does that computes its prompt and ends."""
    chain = _open(cache, prompt, block_keys(prompt, BLOCK_SIZE))
    cache.acquire(chain, ())
    blocks = cache.pool.take(chain.num_blocks)
    cache.publish(chain, blocks, len(prompt), 0)
    cache.release(chain, blocks, len(prompt), 0, ReleaseCause.FINISHED)


def _open(cache: BlockCache, prompt: list[int], keys: bytes) -> RequestChain:
    request = Request(
        0, "request", 0, prompt, SamplingParams(), RequestContext(),
        arrival=0.0, seed=0, max_tokens=1, eos_ids=frozenset(),
    )  # fmt: skip
    chain = cache.open(request.view, token_bytes(prompt), keys)
    assert chain is not None, "the stack has an index"
    return chain


def _timed(call: Callable[[], object]) -> float:
    started = thread_time()
    call()
    return thread_time() - started
