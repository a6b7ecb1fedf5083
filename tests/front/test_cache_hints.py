"""What callers ask of the cache reaches the engine, and keys are made on their side of it."""

import asyncio
import math
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jackfield import LLM, AsyncLLM, CacheHints, RequestContext, SamplingParams
from jackfield.core.api import NO_HINTS, RequestError
from jackfield.core.api.cache_hints import MAX_SALT, checked_hints
from jackfield.core.engine.door import DoorLimits
from jackfield.core.engine.messages import NewRequest
from jackfield.core.front import streams
from jackfield.core.front.prompt_keys import prompt_keys
from jackfield.core.kv.keys import block_keys

ONE = SamplingParams(max_tokens=1)
A = CacheHints(ttl=60, pin=True)
B = CacheHints(salt="b", shared_prefix_tokens=32)
SHARING = DoorLimits(1000, 4096, 8192, 4, shares_blocks=True)
IDS = list(range(5, 45))


@pytest.fixture(scope="module")
def llm(folder: Path, small: dict[str, Any]) -> Iterator[LLM]:
    with LLM(folder, **small) as made:
        yield made


@pytest.fixture
def share(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let an engine ask for keys, or not."""

    def set_to(engine: Any, shares: bool = True) -> None:
        limits = engine.door_limits._replace(shares_blocks=shares)
        monkeypatch.setattr(engine, "door_limits", limits)

    return set_to


def seen(llm: LLM, prompts: Any = ("x", "y"), **given: Any) -> list[NewRequest]:
    """The requests that the engine is given."""
    found: list[NewRequest] = []
    engine = llm.assembly.engine
    add = engine.add

    def watch(new: NewRequest, *more: Any) -> None:
        found.append(new)
        add(new, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "add", watch)
        llm.generate(list(prompts), ONE, use_tqdm=False, **given)
    return found


def hints(llm: LLM, **given: Any) -> list[CacheHints]:
    return [new.context.cache for new in seen(llm, **given)]


def test_hints_are_one_for_all_or_one_each(llm: LLM) -> None:
    assert hints(llm) == [NO_HINTS] * 2
    assert hints(llm, cache=A) == [A, A]
    assert hints(llm, cache={"ttl": 60, "pin": True}) == [A, A]
    assert hints(llm, cache=[A, B]) == [A, B]
    assert hints(llm, cache=[A._asdict(), B]) == [A, B]


def test_hints_go_over_those_of_the_context(llm: LLM) -> None:
    context = RequestContext("t", priority=3, cache=A)
    assert hints(llm, context=context) == [A, A]
    found = [new.context for new in seen(llm, context=context, cache=B, priority=5)]
    assert found == [context._replace(cache=B, priority=5)] * 2


def test_a_chat_takes_hints_too(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []
    monkeypatch.setattr(llm, "_render", lambda *given, **more: {"prompt_token_ids": [5]})
    monkeypatch.setattr(llm, "generate", lambda *given, **more: found.append(more["cache"]))
    llm.chat([{"role": "user", "content": "x"}], ONE, cache=A)
    assert found == [A]


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"ttl": 0}, "cache.ttl"), ({"ttl": -1.0}, "cache.ttl"), ({"ttl": math.inf}, "cache.ttl"),
        ({"ttl": math.nan}, "cache.ttl"), ({"ttl": 2e9}, "cache.ttl"), ({"ttl": "1"}, "cache.ttl"),
        ({"ttl": True}, "cache.ttl"), ({"pin": 1}, "cache.pin"), ({"pin": None}, "cache.pin"),
        ({"salt": "x" * (MAX_SALT + 1)}, "cache.salt"), ({"salt": None}, "cache.salt"),
        ({"salt": b"x"}, "cache.salt"), ({"salt": "\ud800"}, "cache.salt"),
        ({"shared_prefix_tokens": -1}, "cache.shared_prefix_tokens"),
        ({"shared_prefix_tokens": 1.0}, "cache.shared_prefix_tokens"),
        ({"shared_prefix_tokens": True}, "cache.shared_prefix_tokens"),
        ({"shared_prefix_tokens": 2**31}, "cache.shared_prefix_tokens"),
        ({"tll": 1}, "cache"), ({1: 1}, "cache"), ("x", "cache"), (5, "cache"),
    ],
)  # fmt: skip
def test_wrong_hints_name_the_field(given: Any, param: str) -> None:
    with pytest.raises(RequestError) as refused:
        checked_hints(given)
    assert refused.value.param == param and len(str(refused.value)) < 300
    if isinstance(given, dict) and param != "cache":
        with pytest.raises(RequestError) as refused:
            checked_hints(CacheHints(**given))
        assert refused.value.param == param


def test_hints_at_their_limits_are_taken() -> None:
    for given in ({"ttl": 1e9}, {"ttl": 1}, {"ttl": None}, {"salt": "x" * MAX_SALT}, {},
                  {"shared_prefix_tokens": 0}, {"shared_prefix_tokens": 2**31 - 1}):  # fmt: skip
        assert checked_hints(given) == CacheHints(**given)  # type: ignore[arg-type]


def test_wrong_hints_are_refused_before_anything_runs(llm: LLM) -> None:
    with pytest.raises(RequestError, match=r"prompt 1: cache\.ttl"):
        bad = [RequestContext(), RequestContext(cache=CacheHints(ttl=-1))]
        llm.generate(["x", "y"], ONE, context=bad, use_tqdm=False)
    with pytest.raises(RequestError, match=r"1 cache for 2 prompts"):
        llm.generate(["x", "y"], ONE, cache=[A], use_tqdm=False)
    assert not llm.assembly.engine.has_work


def test_keys_are_made_where_they_are_of_use(llm: LLM, share: Any) -> None:
    engine = llm.assembly.engine
    share(engine, False)
    assert [new.keys for new in seen(llm, [IDS, IDS])] == [b"", b""]
    share(engine)
    size = engine.door_limits.block_size
    first, second = seen(llm, [IDS, IDS])
    assert not first.keys, "nobody begins like it, so that the engine may take its time"
    assert second.keys == block_keys(IDS, size) and len(second.keys) == 16 * (len(IDS) // size)


@pytest.mark.parametrize("bad", [-1, "5", 1.0, None, 2**40])
def test_wrong_ids_are_still_refused_by_the_door(llm: LLM, share: Any, bad: Any) -> None:
    share(llm.assembly.engine)
    with pytest.raises(RequestError, match="prompt token 1 is"):
        llm.generate({"prompt_token_ids": [5, bad]}, ONE, use_tqdm=False)


def test_a_prompt_that_is_too_long_is_not_hashed() -> None:
    assert prompt_keys([1] * 4096, SHARING) == block_keys([1] * 4096, 4)
    assert prompt_keys([1] * 4097, SHARING) == b""
    assert prompt_keys([1] * 8, SHARING._replace(shares_blocks=False)) == b""


async def test_a_stream_brings_keys_and_hints(
    folder: Path, small: dict[str, Any], share: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys of long prompts are made in a thread that is neither the loop's nor the engine's."""
    llm = AsyncLLM(folder, **small)
    engine = llm.assembly.engine
    share(engine)
    found: list[NewRequest] = []
    threads: list[str] = []
    add = engine.add

    def watch(new: NewRequest) -> None:
        found.append(new)
        add(new)

    def keys(*given: Any) -> bytes:
        threads.append(threading.current_thread().name)
        return prompt_keys(*given)

    monkeypatch.setattr(engine, "add", watch)
    monkeypatch.setattr(streams, "prompt_keys", keys)
    monkeypatch.setattr(streams, "INLINE_TOKENS", 30)
    try:
        for prompt, more in (
            (IDS, {"cache": A}),
            ({"prompt_token_ids": IDS[:30]}, {"context": RequestContext(cache=B)}),
            ({"prompt": None, "prompt_token_ids": IDS}, {"cache": B._asdict(), "context": None}),
        ):
            async for _ in llm.generate(prompt, ONE, **more):  # type: ignore[arg-type]
                pass
        with pytest.raises(RequestError, match=r"cache\.pin"):
            async for _ in llm.generate(IDS, ONE, cache={"pin": 5}):
                pass
        assert len(llm._mailboxes) == 0
    finally:
        await llm.close()
    assert [new.context.cache for new in found] == [A, B, B]
    size = engine.door_limits.block_size
    assert [new.keys for new in found] == [block_keys(new.prompt, size) for new in found]
    main = threading.current_thread().name
    assert [name == main for name in threads] == [False, True, False]
    assert "jackfield-engine" not in threads


@pytest.mark.parametrize("done", [True, False])
async def test_the_engine_says_whether_the_cache_was_reset(
    folder: Path, small: dict[str, Any], monkeypatch: pytest.MonkeyPatch, llm: LLM, done: bool
) -> None:
    monkeypatch.setattr(llm.assembly.engine, "reset_prefix_cache", lambda: done)
    assert llm.reset_prefix_cache() is done
    threads: list[str] = []

    def reset() -> bool:
        threads.append(threading.current_thread().name)
        return done

    other = AsyncLLM(folder, **small)
    monkeypatch.setattr(other.assembly.engine, "reset_prefix_cache", reset)
    try:
        assert await asyncio.wait_for(other.reset_prefix_cache(), 10) is done
    finally:
        await other.close()
    assert threads == ["jackfield-engine"]
