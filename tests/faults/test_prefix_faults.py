"""What goes wrong with shared prefixes: edges, half-written blocks, keys that meet, numbers."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from jackfield import LLM, SamplingParams
from jackfield.core.api import KEY_BYTES, TOKEN_BYTES, CacheHints, RequestContext
from jackfield.core.kv import request_chain
from jackfield.core.kv.build import CacheSettings
from jackfield.core.kv.namespaces import Namespaces
from jackfield.core.testing.cache_lives import TierMood
from jackfield.core.testing.cache_machine import watched
from jackfield.core.testing.cache_watch import CacheWatch
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import GREEDY, Sizes, request
from jackfield.core.testing.memory import CacheKit
from jackfield.core.testing.namespace_laws import view_of
from jackfield.plugins.cache.lru import Lru
from jackfield.plugins.cache.prefix import Prefix
from jackfield.plugins.cache.radix import Radix

ONE = SamplingParams(max_tokens=1, temperature=0)
STACKS = (
    ["paged", "prefix"], ["paged", "radix"], ["paged", "prefix", "swap"],
    ["paged", "prefix", "fp8"], ["paged", "radix", "fp8", "swap"],
)  # fmt: skip
SWAP = {"cache.swap.memory": "1MiB"}


def watch_of(*plugins: Any, **sizes: Any) -> CacheWatch:
    size = Sizes(**{"num_blocks": 64, "block_size": 4, "max_tokens": 16, **sizes})
    kit = CacheKit(plugins or [Prefix(Prefix.Config())], [Lru(Lru.Config())])
    return watched(kit, size, ManualClock(), CacheSettings(), TierMood())


def hits(watch: CacheWatch, prompt: list[int], context: RequestContext | None = None) -> int:
    name = f"r{len(watch.answers)}"
    params = GREEDY.with_(max_tokens=1, ignore_eos=True)
    watch.add(request(name, prompt, params, context=context or RequestContext()))
    watch.drain()
    return watch.answers[(name, 0)].request.first_cached or 0


@pytest.mark.parametrize("stack", STACKS, ids="+".join)
def test_a_prompt_that_is_cached_as_a_whole(
    tiny: Path, load: Callable[..., LLM], stack: list[str]
) -> None:
    """One position at least is computed again, on a copy of the last block."""
    swap = SWAP if "swap" in stack else {}
    llm = load(tiny, **{"cache.stack": stack, "block_size": 16, **swap})
    for length, cached in ((15, 0), (16, 15), (17, 16), (32, 31), (33, 32)):
        prompt = {"prompt_token_ids": [(7 * place + length) % 250 + 5 for place in range(length)]}
        first, second, third = (llm.generate(prompt, ONE, use_tqdm=False)[0] for _ in range(3))
        assert first.num_cached_tokens == 0
        assert second.num_cached_tokens == third.num_cached_tokens == cached, f"{length} tokens"
        tokens = [one.outputs[0].token_ids for one in (first, second, third)]
        assert tokens[0] == tokens[1] == tokens[2], f"{length} tokens"


@pytest.mark.parametrize("overlap", [0, 1, 2])
@pytest.mark.parametrize("identity", ["prefix", "radix"])
def test_two_equal_prompts_in_one_step(
    tiny: Path, load: Callable[..., LLM], identity: str, overlap: int
) -> None:
    """The second one waits, or computes its own: it never reads what is not written yet."""
    settings: dict[str, Any] = {"cache.stack": ["paged", identity], "engine.overlap": overlap}
    prompt = {"prompt_token_ids": [(11 * place) % 250 + 5 for place in range(64)]}
    params = SamplingParams(max_tokens=12, temperature=0, ignore_eos=True)
    alone = load(tiny, **settings).generate(prompt, params, use_tqdm=False)[0]
    llm = load(tiny, max_num_batched_tokens=16, **settings)
    for output in llm.generate([prompt] * 3, params, use_tqdm=False):
        assert output.outputs[0].token_ids == alone.outputs[0].token_ids


@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("overlap", [0, 1, 2])
def test_who_computes_for_others_is_aborted(overlap: int, steps: int) -> None:
    """The watch compares what is cached with what was written, and answers with the right ones."""
    watch = watch_of(overlap=overlap)
    prompt = list(range(64))
    for name in "abc":
        watch.add(request(name, prompt, GREEDY.with_(ignore_eos=True)))
    for _ in range(steps):
        watch.step()
    watch.abort("a")
    watch.drain()
    assert watch.answers[("b", 0)].ended and watch.answers[("c", 0)].ended
    assert hits(watch, prompt) == 63


class Adapters:
    """Names the weights that a request adds by their content."""

    def __init__(self) -> None:
        self.digests: dict[str, bytes] = {}

    def salt(self, view: Any) -> bytes:
        name = view.context.labels.get("adapter", "")
        return self.digests.get(name, name.encode())


def with_adapter(name: str, salt: str = "") -> RequestContext:
    return RequestContext(labels={"adapter": name} if name else {}, cache=CacheHints(salt=salt))


def test_other_weights_of_the_same_name_are_told_apart() -> None:
    plugin = Adapters()
    watch = watch_of(Prefix(Prefix.Config()), plugin)
    prompt = list(range(20))
    found = []
    for digest in (b"one", b"one", b"two", b"two"):
        plugin.digests = {"mine": digest}
        found.append(hits(watch, prompt, with_adapter("mine")))
    assert found == [0, 19, 0, 19]


def test_parts_of_a_key_that_read_alike_are_told_apart() -> None:
    watch = watch_of(Prefix(Prefix.Config()), Adapters())
    prompt = list(range(20))
    contexts = [with_adapter("X"), with_adapter("", "X"), with_adapter("X", "X")]
    contexts += [RequestContext("X"), RequestContext("X", cache=CacheHints(salt="X"))]
    assert [hits(watch, prompt, one) for one in contexts] == [0] * 5
    assert [hits(watch, prompt, one) for one in contexts] == [19] * 5


def test_parts_do_not_run_into_each_other() -> None:
    def space(**parts: bytes) -> bytes:
        ((_, found),) = Namespaces(parts, 4).of(view_of(0, RequestContext("t")))
        return found

    spaces = [
        space(a=b"xy"), space(a=b"x", b=b"y"), space(a=b"x", y=b""), space(ax=b"y"), space(),
        space(model=b"1", encoding=b"2"), space(model=b"2", encoding=b"1"),
    ]  # fmt: skip
    assert len(set(spaces)) == len(spaces)


def test_keys_are_wide_enough_that_nobody_makes_two_meet() -> None:
    assert KEY_BYTES * 8 >= 128


@pytest.mark.parametrize("identity", [Prefix, Radix])
def test_keys_that_meet_cost_a_hit_and_nothing_else(
    identity: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the hash, tokens are compared."""

    def constant(data: bytes, block_size: int, *, start: int = 0, parent: bytes = b"") -> bytes:
        return bytes(KEY_BYTES) * (len(data) // (block_size * TOKEN_BYTES) - start)

    monkeypatch.setattr(request_chain, "keys_of", constant)
    watch = watch_of(identity(identity.Config()), num_blocks=256)
    random = Random(0)
    for _ in range(20):
        assert hits(watch, [random.randrange(13) for _ in range(20)]) < 8
    same = [random.randrange(13) for _ in range(20)]
    hits(watch, same)
    if identity is Prefix:
        assert watch.engine.lifecycle.planner.cache.finder.collisions > 0
        assert hits(watch, same) < 20, "only the first of all is found under its key"
    else:
        assert hits(watch, same) == 19
    assert not watch.engine.fault_counts()


def test_what_is_computed_again_is_no_hit() -> None:
    """Random prompts have nothing in common; who lost its seat finds its own blocks."""
    watch = watch_of(num_blocks=14, max_seqs=6, max_model_len=48)
    for number in range(12):
        prompt = [number, *range(9)]
        watch.add(request(f"r{number}", prompt, GREEDY.with_(max_tokens=20, ignore_eos=True)))
    watch.drain()
    metrics = watch.engine.lifecycle.planner.cache.metrics
    assert watch.engine.metrics.preemptions > 5
    assert metrics.queried_tokens == 120 and metrics.hit_tokens == 0
    assert metrics.resumed_queried_tokens > 0
    assert all(one.request.first_cached == 0 for one in watch.answers.values())


@pytest.mark.parametrize("identity", [Prefix, Radix])
def test_blocks_that_nobody_can_use_push_nothing_out(identity: Any) -> None:
    watch = watch_of(
        identity(identity.Config()), num_blocks=16, block_size=16, max_tokens=256,
        max_model_len=256,
    )  # fmt: skip
    prefix = list(range(161))
    hits(watch, prefix)
    for number in range(6):
        assert hits(watch, [300 + number]) == 0
    assert hits(watch, prefix) == 160


@pytest.mark.parametrize("stack", STACKS, ids="+".join)
def test_the_start_says_that_prefixes_are_shared(
    tiny: Path, load: Callable[..., LLM], stack: list[str]
) -> None:
    """And it is true: nothing is switched off by what else is in the stack."""
    swap = SWAP if "swap" in stack else {}
    llm = load(tiny, **{"cache.stack": stack, **swap})
    assert llm.assembly.engine.door_limits.shares_blocks is True
    prompt = {"prompt_token_ids": list(range(5, 40))}
    found = [llm.generate(prompt, ONE, use_tqdm=False)[0].num_cached_tokens for _ in range(2)]
    assert found == [0, 32]
