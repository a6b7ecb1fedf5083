"""`RemoteLLM` while all goes well: one engine process for all tests of this file."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from random import Random
from typing import Any

import pytest
import pytest_asyncio

from jackfield import LLM, CacheHints, RequestOutput, SamplingParams
from jackfield.core.api import (
    ContextLengthExceeded,
    EngineStoppedError,
    RequestContext,
    RequestError,
    TokenizerError,
)
from jackfield.core.engine.decisions import Action
from jackfield.core.engine.messages import NewRequest
from jackfield.core.kv.keys import block_keys
from jackfield.core.process import client
from jackfield.core.remote_llm import RemoteLLM
from jackfield.core.wire.codec import decode_command, encode_request
from jackfield.core.wire.messages import Add

pytestmark = pytest.mark.asyncio(loop_scope="module")
TEXT = "the cat sat on the mat"
GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
LONG = GREEDY.with_(max_tokens=200)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def llm(folder: Path, small: dict[str, Any]) -> AsyncIterator[RemoteLLM]:
    made = RemoteLLM(folder, **small)
    yield made
    await made.close()


@pytest.fixture(scope="module")
def offline(folder: Path, small: dict[str, Any]) -> LLM:
    return LLM(folder, **small)


async def last(
    llm: RemoteLLM, prompt: Any, params: SamplingParams | None, **more: Any
) -> RequestOutput:
    outputs = [output async for output in llm.generate(prompt, params, **more)]
    return outputs[-1]


def rough(scores: Any) -> Any:
    """Sums in another order differ in the last digits: which prompts share a step is chance."""
    return None if scores is None else [
        found and {token: (round(score.logprob, 3), score.rank, score.decoded_token)
                   for token, score in found.items()}
        for found in scores
    ]  # fmt: skip


async def test_answers_are_those_of_llm(llm: RemoteLLM, offline: LLM) -> None:
    prompts = [TEXT, "one two three", [5, 6, 7], {"prompt": "four five"}, TEXT * 2]
    params = [
        GREEDY,
        GREEDY.with_(logprobs=2, prompt_logprobs=1),
        SamplingParams(n=2, seed=5, max_tokens=7, temperature=1.3, logit_bias={9: 5.0}),
        SamplingParams(seed=3, max_tokens=9, bad_words=["e"], stop_token_ids=[40]),
        GREEDY.with_(stop_token_ids=range(100, 120), ignore_eos=False),
    ]
    found = await asyncio.gather(*map(lambda *pair: last(llm, *pair), prompts, params))
    expected = offline.generate(prompts, params, use_tqdm=False)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.prompt_token_ids == theirs.prompt_token_ids
        assert rough(ours.prompt_logprobs) == rough(theirs.prompt_logprobs)
        for mine, other in zip(ours.outputs, theirs.outputs, strict=True):
            assert rough(mine.logprobs) == rough(other.logprobs)
            assert (mine.text, mine.token_ids) == (other.text, other.token_ids)
            assert (mine.finish_reason, mine.stop_reason) == (
                other.finish_reason,
                other.stop_reason,
            )


async def test_what_a_front_needs_is_there(llm: RemoteLLM, offline: LLM) -> None:
    ours, theirs = llm.summary.as_dict(), offline.assembly.summary.as_dict()
    assert {**ours, "ready_seconds": 0} == {**theirs, "ready_seconds": 0}
    assert llm.sampling_defaults == {"temperature": 0.5, "top_k": 7}
    chat = [{"role": "user", "content": "one two"}]
    assert llm.render_chat(chat) == offline.assembly.render_chat(chat)
    assert llm.tokenizer is not None and llm.tokenizer.eos_token_id == 2


@pytest.mark.parametrize(
    ("prompt", "params", "error", "text"),
    [
        ([], GREEDY, RequestError, "the prompt is empty"),
        ([5] * 257, GREEDY, ContextLengthExceeded, "maximum context length is 256"),
        ([5.5], GREEDY, RequestError, "prompt token 0 is 5.5"),
        ([2**80], GREEDY, RequestError, "prompt token 0"),
        (TEXT, GREEDY.with_(stop_token_ids=[300]), RequestError, "stop_token_ids holds 300"),
        (TEXT + "\ud800", GREEDY, RequestError, "lone surrogate"),
        (5, GREEDY, RequestError, "a prompt must be"),
    ],
)
async def test_a_refusal_is_the_error_of_llm_and_harms_nobody(
    llm: RemoteLLM, prompt: Any, params: SamplingParams, error: type[Exception], text: str
) -> None:
    other = asyncio.create_task(last(llm, TEXT, LONG))
    with pytest.raises(error, match=text) as found:
        await last(llm, prompt, params)
    assert type(found.value) is error
    assert (await other).outputs[0].finish_reason == "length"


async def test_what_the_engine_itself_refuses_comes_back(llm: RemoteLLM) -> None:
    """Past the front's own check: the engine is given a name twice."""
    async with asyncio.timeout(5):
        async with aclosing(llm.generate(TEXT, LONG, request_id="busy")) as stream:
            await anext(stream)
            llm._process.add(NewRequest("busy", [5, 6], LONG))
            with pytest.raises(RequestError, match="request id 'busy' is in use") as found:
                async for _ in stream:
                    pass
        await llm.abort("busy")
    assert found.value.param == "request_id"
    assert len(llm._mailboxes) == 0


async def test_a_name_is_free_as_soon_as_its_stream_was_left(
    llm: RemoteLLM, offline: LLM
) -> None:
    random, params = Random(7), GREEDY.with_(max_tokens=3)
    prompts = [TEXT, "one two", "seven"]
    solo = [found.outputs[0] for found in offline.generate(prompts, params, use_tqdm=False)]
    for _ in range(200):
        long = LONG.with_(n=random.randint(1, 3), temperature=1, seed=1)
        async with aclosing(llm.generate([9] * 40, long, request_id="again")) as stream:
            asking = asyncio.create_task(anext(stream))
            await asyncio.sleep(random.choice((0, 0, 0.001)))
            if random.random() < 0.5:
                await asking
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        place = random.randrange(3)
        answer = (await last(llm, prompts[place], params, request_id="again")).outputs[0]
        assert answer.token_ids == solo[place].token_ids
    assert len(llm._mailboxes) == 0


async def test_context_reaches_the_engine(llm: RemoteLLM) -> None:
    with pytest.raises(RequestError, match="cannot be sent"):
        await last(llm, TEXT, GREEDY, context=RequestContext(priority=2**70))
    context = RequestContext("t", "gold", -3, None, {"a": "b"})
    assert (await last(llm, TEXT, GREEDY, context=context)).finished


async def test_leaving_the_loop_frees_the_engine(llm: RemoteLLM, processes: Any) -> None:
    streams = [llm.generate(TEXT, LONG) for _ in range(12)]
    for stream in streams[:4]:
        await anext(stream)
    waiting = [asyncio.create_task(anext(stream)) for stream in streams[4:]]
    await asyncio.sleep(0)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    for stream in streams:
        await stream.aclose()
    before = llm.metrics().steps

    def is_free() -> bool:
        now = llm.metrics()
        return now.steps >= before and now.running == now.waiting == 0

    await processes.until(is_free)
    await processes.until(lambda: llm.metrics().free_blocks == llm.metrics().total_blocks)
    assert llm.metrics().finished["abort"] >= 1


async def test_abort_by_name_ends_the_stream(llm: RemoteLLM) -> None:
    reasons = []
    async for output in llm.generate(TEXT, LONG, request_id="mine"):
        reasons.append(output.outputs[0].finish_reason)
        await llm.abort("mine")
    assert reasons[-1] == "abort"


async def test_abort_while_the_text_is_encoded(llm: RemoteLLM) -> None:
    params = GREEDY.with_(n=2)
    task = asyncio.create_task(last(llm, "the cat " * 2000, params, request_id="early"))
    await asyncio.sleep(0)
    await llm.abort("early")
    output = await task
    assert [answer.finish_reason for answer in output.outputs] == ["abort", "abort"]
    assert await llm.explain("early") == []


async def test_explain_tells_the_life_of_a_request(llm: RemoteLLM) -> None:
    await last(llm, TEXT, GREEDY, request_id="told")
    actions = [decision.action for decision in await llm.explain("told")]
    assert actions == [Action.ARRIVE, Action.ADMIT, Action.FINISH]
    assert await llm.explain("unheard of") == []


async def test_requests_tell_who_is_there(llm: RemoteLLM, processes: Any) -> None:
    deadline = llm.deadline(50.0)
    context = RequestContext("t", "gold", 3, deadline, {"weight": "2"})
    async with aclosing(llm.generate(TEXT, LONG, request_id="there", context=context)) as outputs:
        await anext(outputs)
        page = await llm.requests(tenant="t", state="running", limit=5)
        (row,) = page.rows
        assert (row.id, row.tenant, row.tier, row.priority, row.code) == (
            "there", "t", "gold", 3, "order"
        )  # fmt: skip
        assert row.deadline is not None and 0 < row.deadline <= 50
        assert page.counts == {"running": 1, "waiting": 0, "parked": 0}
        assert (await llm.requests(tenant="other")).rows == []
        assert [one.id for one in (await llm.requests(request_id="there")).rows] == ["there"]
    await processes.until(lambda: not llm.metrics().running)
    assert (await llm.requests()).rows == []


async def test_metrics_count_what_was_done(llm: RemoteLLM, processes: Any) -> None:
    before = llm.metrics()
    await last(llm, [5, 6, 7], GREEDY)
    await processes.until(lambda: llm.metrics().steps > before.steps and not llm.metrics().running)
    after = llm.metrics()
    assert after.total_blocks == 64
    assert after.finished["length"] > before.finished.get("length", 0)
    assert after.output_tokens - before.output_tokens >= 12
    assert 0 < after.planning.p50 <= after.planning.p99
    assert 0 < after.step.p50 <= after.step.p90


async def test_a_living_engine_is_healthy(llm: RemoteLLM, processes: Any) -> None:
    await processes.until(lambda: llm.health().heartbeat_age < 0.1)
    health = llm.health()
    assert health.alive and health.reason is None and health.busy < 5


async def test_two_at_once_and_draining(
    llm: RemoteLLM, folder: Path, small: dict[str, Any], offline: LLM
) -> None:
    tight = {**small, "num_gpu_blocks_override": 8, "skip_tokenizer_init": True}
    other = RemoteLLM(folder, **tight)
    prompt = [5, 6, 7]
    with pytest.raises(ContextLengthExceeded, match=f"{other.summary.max_model_len} tokens"):
        await last(other, [5] * 200, LONG)
    with pytest.raises(TokenizerError, match="a text prompt needs a tokenizer"):
        await last(other, TEXT, GREEDY)
    with pytest.raises(TokenizerError, match="has no chat template"):
        other.render_chat([])
    fitting = GREEDY.with_(max_tokens=100)
    tasks = [asyncio.create_task(last(one, prompt, fitting)) for one in (llm, other, other)]
    await asyncio.sleep(0.05)
    closing = asyncio.create_task(other.close(drain=True))
    while other.health().alive:
        await asyncio.sleep(0)
    with pytest.raises(EngineStoppedError, match="closed"):
        await last(other, prompt, GREEDY)
    expected = offline.generate(prompt, fitting, use_tqdm=False)[0].outputs[0].token_ids
    for output in await asyncio.gather(*tasks):
        assert output.outputs[0].token_ids == expected
    await closing
    assert (await last(llm, TEXT, GREEDY)).finished


async def test_keys_and_hints_cross_and_the_cache_is_reset(
    llm: RemoteLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys are made here; the engine only gets them."""
    assert llm._process.limits.shares_blocks, "the default stack has an identity"
    sent: list[NewRequest] = []

    def encoded(new: NewRequest, now: float) -> bytes:
        sent.append(new)
        data = encode_request(new, now)
        add = decode_command(data)
        assert isinstance(add, Add)
        assert (add.keys, add.context.cache) == (new.keys, new.context.cache)
        return data

    monkeypatch.setattr(client, "encode_request", encoded)
    hints = CacheHints(60.0, True, "salt", 16)
    ids = list(range(5, 45))
    await last(llm, ids, GREEDY, cache=hints)
    assert [(new.keys, new.context.cache) for new in sent] == [(block_keys(ids, 16), hints)]
    assert await asyncio.wait_for(llm.reset_prefix_cache(), 10) is True


async def test_wrong_hints_never_leave_this_process(llm: RemoteLLM) -> None:
    with pytest.raises(RequestError, match=r"cache\.ttl"):
        await last(llm, "x", GREEDY, cache={"ttl": 0})
