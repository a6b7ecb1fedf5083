"""`AsyncLLM`: streams that grow, end early, are refused, or lose their engine."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from jackfield import LLM, AsyncLLM, RequestOutput, SamplingParams
from jackfield.core.api import ContextLengthExceeded, EngineStoppedError, RequestError
from jackfield.core.engine.messages import Delta

TEXT = "the cat sat on the mat"
GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
LONG = GREEDY.with_(max_tokens=200)


@pytest.fixture
async def llm(folder: Path, small: dict[str, Any]) -> AsyncIterator[AsyncLLM]:
    made = AsyncLLM(folder, **small)
    yield made
    await made.close()


@pytest.fixture
def slow(llm: AsyncLLM, monkeypatch: pytest.MonkeyPatch) -> AsyncLLM:
    """Each step takes so long that nothing with `LONG` ends before a test interferes."""
    step = llm.assembly.engine.step

    def later() -> list[Delta]:
        time.sleep(0.005)
        return step()

    monkeypatch.setattr(llm.assembly.engine, "step", later)
    return llm


@pytest.fixture(scope="module")
def expected(folder: Path, small: dict[str, Any]) -> Callable[[Any, SamplingParams], list[int]]:
    """The same answer, without streaming."""
    offline = LLM(folder, **small)

    def answer(prompt: Any, params: SamplingParams) -> list[int]:
        return offline.generate(prompt, params, use_tqdm=False)[0].outputs[0].token_ids

    return answer


async def collect(llm: AsyncLLM, prompt: Any, params: SamplingParams) -> list[RequestOutput]:
    return [output async for output in llm.generate(prompt, params)]


async def first(llm: AsyncLLM, params: SamplingParams = LONG) -> RequestOutput:
    """The first output of a stream that is then left."""
    async for output in llm.generate(TEXT, params):
        return output
    raise AssertionError("no output")


async def settled(llm: AsyncLLM) -> None:
    """Wait until the engine has nothing left to do."""
    async with asyncio.timeout(5):
        while llm.assembly.engine.has_work:
            await asyncio.sleep(0.005)
    planner = llm.assembly.engine.lifecycle.planner
    assert planner.pool.num_free == planner.pool.num_blocks
    assert planner.seats_left == 8


async def test_a_stream_grows_to_the_whole_answer(
    llm: AsyncLLM, expected: Callable[..., list[int]]
) -> None:
    outputs = await collect(llm, TEXT, GREEDY)
    answers = [output.outputs[0] for output in outputs]
    for before, after in pairwise(answers):
        assert after.text.startswith(before.text)
        assert after.token_ids[: len(before.token_ids)] == before.token_ids
    assert [output.finished for output in outputs] == [False] * (len(outputs) - 1) + [True]
    assert answers[-1].token_ids == expected(TEXT, GREEDY)
    assert answers[-1].finish_reason == "length"


async def test_two_streams_at_once(llm: AsyncLLM, expected: Callable[..., list[int]]) -> None:
    prompts = [TEXT, "one two three", [5, 6, 7]]
    found = await asyncio.gather(*(collect(llm, prompt, GREEDY) for prompt in prompts))
    for prompt, outputs in zip(prompts, found, strict=True):
        assert outputs[-1].outputs[0].token_ids == expected(prompt, GREEDY)
    assert len({outputs[-1].request_id for outputs in found}) == 3


async def test_several_answers_in_one_stream(llm: AsyncLLM) -> None:
    params = SamplingParams(n=3, temperature=1.5, seed=3, max_tokens=6, ignore_eos=True)
    outputs = await collect(llm, TEXT, params)
    assert [len(answer.token_ids) for answer in outputs[-1].outputs] == [6, 6, 6]


async def test_leaving_the_loop_aborts(slow: AsyncLLM) -> None:
    stream = slow.generate(TEXT, LONG, request_id="left")
    async for _ in stream:
        break
    await stream.aclose()
    await settled(slow)
    reasons = [decision.code for decision in slow.assembly.engine.explain("left")]
    assert reasons[-1] == "abort"


async def test_cancelling_aborts(slow: AsyncLLM) -> None:
    started = asyncio.Event()

    async def reader() -> None:
        async for _ in slow.generate(TEXT, LONG):
            started.set()

    task = asyncio.create_task(reader())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await settled(slow)


async def test_a_stop_string_ends_the_stream_and_the_work(llm: AsyncLLM) -> None:
    full = (await collect(llm, TEXT, LONG.with_(max_tokens=30)))[-1].outputs[0].text
    stop = full[6:9]
    steps = llm.assembly.engine.metrics.steps
    outputs = await collect(llm, TEXT, LONG.with_(stop=stop))
    assert outputs[-1].outputs[0].stop_reason == stop
    assert all(stop not in output.outputs[0].text for output in outputs)
    await settled(llm)
    assert llm.assembly.engine.metrics.steps - steps < 60


async def test_abort_by_name_ends_the_stream(slow: AsyncLLM) -> None:
    reasons = []
    async with asyncio.timeout(5):
        async for output in slow.generate(TEXT, LONG, request_id="mine"):
            reasons.append(output.outputs[0].finish_reason)
            await slow.abort("mine")
    assert reasons[-1] == "abort"
    await settled(slow)


async def test_a_refusal_comes_before_any_output(llm: AsyncLLM) -> None:
    for prompt, error in (([], RequestError), ([5] * 257, ContextLengthExceeded)):
        seen = []
        with pytest.raises(error):
            async for output in llm.generate(prompt, GREEDY):
                seen.append(output)
        assert seen == []
    assert (await collect(llm, TEXT, GREEDY))[-1].finished


async def test_a_name_in_use_is_refused(slow: AsyncLLM) -> None:
    stream = slow.generate(TEXT, LONG, request_id="twice")
    await anext(stream)
    with pytest.raises(RequestError, match="request id 'twice' is in use"):
        await anext(slow.generate(TEXT, LONG, request_id="twice"))
    assert not (await anext(stream)).finished
    await stream.aclose()


async def leave(llm: AsyncLLM, random: Random, name: str) -> None:
    """Ask for long answers, and go: at once, in a prompt, or while they are written."""
    prompt = [random.randrange(5, 250) for _ in range(random.choice((2, 30)))]
    params = LONG.with_(n=random.randint(1, 3), temperature=1, seed=1)
    outputs = random.choice((0, 0, 1, 2, 5))
    async with aclosing(llm.generate(prompt, params, request_id=name)) as stream:
        if not outputs:
            asking = asyncio.create_task(anext(stream))
            for _ in range(random.choice((1, 2, 3))):
                await asyncio.sleep(0)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        for _ in range(outputs):
            await anext(stream)


async def test_a_name_is_free_as_soon_as_its_stream_was_left(
    llm: AsyncLLM, expected: Callable[..., list[int]]
) -> None:
    random, params = Random(5), GREEDY.with_(max_tokens=3)
    solo = {prompt: expected(prompt, params) for prompt in (TEXT, "one two", "seven")}
    for _ in range(200):
        for _ in range(random.randint(1, 2)):
            await leave(llm, random, "again")
        prompt = random.choice(list(solo))
        outputs = [one async for one in llm.generate(prompt, params, request_id="again")]
        assert outputs[-1].outputs[0].token_ids == solo[prompt]
        assert outputs[-1].outputs[0].finish_reason == "length"
    await settled(llm)
    assert len(llm._mailboxes) == 0


async def test_a_name_is_free_after_stop_strings(
    llm: AsyncLLM, expected: Callable[..., list[int]]
) -> None:
    """The stream ends when its texts do, and the engine is told: it may be steps ahead."""
    full = (await collect(llm, TEXT, LONG.with_(max_tokens=30)))[-1].outputs[0].text
    solo = expected(TEXT, GREEDY)
    for place in range(20):
        params = LONG.with_(n=3, stop=full[place : place + 2])
        async for output in llm.generate(TEXT, params, request_id="stopped"):
            reasons = [answer.stop_reason for answer in output.outputs]
        assert reasons == [params.stop_strings[0]] * 3
        outputs = [one async for one in llm.generate(TEXT, GREEDY, request_id="stopped")]
        assert outputs[-1].outputs[0].token_ids == solo
    await settled(llm)
    assert len(llm._mailboxes) == 0


async def test_who_waits_for_a_name_owns_it(slow: AsyncLLM) -> None:
    """It can be aborted and cancelled, and nobody else gets in."""
    async def last() -> RequestOutput:
        return [one async for one in slow.generate(TEXT, GREEDY, request_id="mine")][-1]

    for _ in range(2):
        await leave(slow, Random(1), "mine")
        waiting = asyncio.create_task(last())
        await asyncio.sleep(0)
        with pytest.raises(RequestError, match="request id 'mine' is in use"):
            await last()
        await slow.abort("mine")
        assert (await waiting).outputs[0].finish_reason == "abort"
        await leave(slow, Random(1), "mine")
        waiting = asyncio.create_task(last())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert (await last()).outputs[0].finish_reason == "length"
    await settled(slow)
    assert len(slow._mailboxes) == 0


async def test_the_death_of_the_engine_frees_every_name(
    slow: AsyncLLM, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def step() -> None:
        raise MemoryError("no room")

    stream = slow.generate(TEXT, LONG, request_id="mine")
    await anext(stream)
    monkeypatch.setattr(slow.assembly.engine, "step", step)
    await stream.aclose()
    with pytest.raises(EngineStoppedError, match="the engine died"):
        await anext(slow.generate(TEXT, LONG, request_id="mine"))
    assert len(slow._mailboxes) == 0


async def test_a_snapshot_stays_as_it_was(llm: AsyncLLM) -> None:
    stream = llm.generate(TEXT, GREEDY.with_(logprobs=1))
    early = await anext(stream)
    answer = early.outputs[0]
    kept = (answer.text, list(answer.token_ids), list(answer.logprobs or ()))
    outputs = [output async for output in stream]
    assert outputs[-1].finished
    assert (answer.text, answer.token_ids, answer.logprobs) == kept


async def test_the_death_of_the_engine_reaches_every_stream(
    slow: AsyncLLM, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    streams = [slow.generate(TEXT, LONG), slow.generate("one two", LONG)]
    for stream in streams:
        await anext(stream)

    def step() -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(slow.assembly.engine, "step", step)
    for stream in streams:
        with pytest.raises(EngineStoppedError, match="the engine died: MemoryError: no room"):
            async for _ in stream:
                pass
    with pytest.raises(EngineStoppedError, match="the engine died"):
        await first(slow)


async def test_closing_ends_open_streams(slow: AsyncLLM) -> None:
    stream = slow.generate(TEXT, LONG)
    await anext(stream)
    await slow.close()
    with pytest.raises(EngineStoppedError, match="closed"):
        async for _ in stream:
            pass
    with pytest.raises(EngineStoppedError, match="closed"):
        await first(slow)
    await slow.close()


async def test_closing_before_the_first_request(folder: Path, small: dict[str, Any]) -> None:
    unused = AsyncLLM(folder, **small)
    await unused.close()
    with pytest.raises(EngineStoppedError, match="closed"):
        await first(unused)


def test_one_event_loop_only(folder: Path, small: dict[str, Any]) -> None:
    llm = AsyncLLM(folder, **small)

    async def use() -> RequestOutput:
        return (await collect(llm, TEXT, GREEDY))[-1]

    with asyncio.Runner() as runner:
        assert runner.run(use()).finished
        with asyncio.Runner() as other, pytest.raises(EngineStoppedError, match="another loop"):
            other.run(use())
        runner.run(llm.close())
