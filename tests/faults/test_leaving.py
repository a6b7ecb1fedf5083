"""Callers that leave: nothing of theirs runs on, is held, or is counted twice."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from jackfield import AsyncLLM, RequestOutput, SamplingParams
from jackfield.core.engine.messages import Delta
from jackfield.core.front.thread import EngineThread

LONG = SamplingParams(temperature=0, max_tokens=200, ignore_eos=True)
PAUSE = 0.005


@pytest.fixture
async def llm(
    tiny: Path, small: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[AsyncLLM]:
    """Two seats, prompts in chunks of 16, and steps that leave time to interfere."""
    made = AsyncLLM(tiny, **{**small, "max_num_seqs": 2, "max_num_batched_tokens": 16})
    step = made.assembly.engine.step

    def later() -> list[Delta]:
        time.sleep(PAUSE)
        return step()

    monkeypatch.setattr(made.assembly.engine, "step", later)
    yield made
    await made.close()


@pytest.fixture
def asked(llm: AsyncLLM, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """By request: the step that was next, or under way, when its abort was asked for."""
    found: dict[str, int] = {}
    abort = EngineThread.abort

    def noted(thread: EngineThread, request_id: str, index: int | None = None) -> None:
        found.setdefault(request_id, llm.assembly.engine.lifecycle.planner.number)
        abort(thread, request_id, index)

    monkeypatch.setattr(EngineThread, "abort", noted)
    return found


def ends(llm: AsyncLLM, name: str) -> list[int]:
    """The steps before which the answers to a request ended."""
    decisions = llm.assembly.engine.explain(name)
    return [decision.step for decision in decisions if decision.action == "finish"]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(PAUSE / 5)


def actions(llm: AsyncLLM, name: str) -> list[str]:
    return [str(decision.action) for decision in llm.assembly.engine.explain(name)]


async def read(llm: AsyncLLM, prompt: list[int], name: str, params: SamplingParams = LONG) -> None:
    async for _ in llm.generate(prompt, params, request_id=name):
        pass


async def settled(llm: AsyncLLM) -> None:
    """Everything is given back."""
    engine = llm.assembly.engine
    await until(lambda: not engine.has_work)
    planner = engine.lifecycle.planner
    assert planner.pool.num_free == planner.pool.num_blocks
    assert planner.seats_left == 2
    assert not engine._requests and not len(llm._mailboxes) and not len(engine.lifecycle.tree)


@pytest.mark.parametrize("phase", ["queued", "prompt", "answer"])
@pytest.mark.parametrize("by_name", [False, True])
async def test_a_caller_leaves_in_any_phase(
    llm: AsyncLLM, asked: dict[str, int], phase: str, by_name: bool
) -> None:
    engine = llm.assembly.engine
    before = [asyncio.create_task(read(llm, [5 + place], str(place))) for place in range(2)]
    if phase == "queued":
        await until(lambda: len(engine.lifecycle.planner.running) == 2)
    else:
        for task in before:
            task.cancel()
        await until(lambda: not engine.has_work)
    aborted, prompts = engine.metrics.finished["abort"], engine.metrics.prompt_tokens
    task = asyncio.create_task(read(llm, [7] * 200, "mine"))
    if phase == "queued":
        await until(lambda: "arrive" in actions(llm, "mine"))
    elif phase == "prompt":
        await until(lambda: engine.metrics.prompt_tokens > prompts)
    else:
        await until(lambda: engine.metrics.prompt_tokens >= prompts + 200)
    if by_name:
        await llm.abort("mine")
        await task
    else:
        task.cancel()
    await until(lambda: "finish" in actions(llm, "mine"))
    assert ends(llm, "mine")[0] <= asked["mine"] + 1
    assert engine.metrics.finished["abort"] == aborted + 1
    if phase == "queued":
        assert len(engine.lifecycle.planner.running) == 2
        for one in before:
            one.cancel()
    await asyncio.gather(task, *before, return_exceptions=True)
    await settled(llm)
    if phase == "prompt":
        assert engine.metrics.prompt_tokens < prompts + 200


async def test_all_answers_of_a_request_go_with_their_caller(
    llm: AsyncLLM, asked: dict[str, int]
) -> None:
    engine = llm.assembly.engine
    seen = 0
    stream = llm.generate([5, 6], LONG.with_(n=4), request_id="mine")
    async for _ in stream:
        seen += 1
        if seen == 3:
            break
    await stream.aclose()
    await settled(llm)
    assert len(ends(llm, "mine")) == 4
    assert max(ends(llm, "mine")) <= asked["mine"] + 1
    assert engine.metrics.finished["abort"] == 4


async def test_answers_of_a_request_end_one_by_one(llm: AsyncLLM) -> None:
    params = LONG.with_(
        n=4, temperature=1.5, seed=5, max_tokens=40, stop_token_ids=list(range(3, 40))
    )
    lengths: dict[int, int] = {}
    last: RequestOutput | None = None
    async for output in llm.generate([5, 6], params):
        last = output
        for answer in output.outputs:
            if answer.finished():
                length = len(answer.token_ids)
                assert lengths.setdefault(answer.index, length) == length
    assert last is not None and last.finished
    assert set(lengths) == {0, 1, 2, 3} and len(set(lengths.values())) > 1
    await settled(llm)


async def test_neighbours_notice_nothing(llm: AsyncLLM, tiny: Path, small: dict[str, Any]) -> None:
    outputs = [one async for one in llm.generate([9, 8, 7], LONG.with_(max_tokens=20))]
    alone = outputs[-1].outputs[0].token_ids
    healthy = asyncio.create_task(_answer(llm, [9, 8, 7]))
    for place in range(3):
        task = asyncio.create_task(read(llm, [7 + place] * 100, f"gone{place}"))
        await asyncio.sleep(PAUSE * 2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert await healthy == alone


async def _answer(llm: AsyncLLM, prompt: list[int]) -> list[int]:
    outputs = [one async for one in llm.generate(prompt, LONG.with_(max_tokens=20))]
    return outputs[-1].outputs[0].token_ids
