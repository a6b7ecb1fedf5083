"""The numbers of an engine in another process, once nobody is there any more."""

import asyncio
from pathlib import Path
from typing import Any

from jackfield import RequestOutput, SamplingParams
from jackfield.core.remote_llm import RemoteLLM

LONG = SamplingParams(temperature=0, max_tokens=200, ignore_eos=True)
MANY = 100
SHORT = LONG.with_(max_tokens=4)


async def last(llm: RemoteLLM, prompt: str, params: SamplingParams) -> RequestOutput:
    outputs = [output async for output in llm.generate(prompt, params)]
    return outputs[-1]


async def test_they_are_right_without_another_request(
    folder: Path, small: dict[str, Any], processes: Any
) -> None:
    llm = RemoteLLM(folder, **small)
    try:
        crowd = [asyncio.create_task(last(llm, f"{place} cats", LONG)) for place in range(MANY)]
        await processes.until(lambda: llm.metrics().running == 4 and llm.metrics().waiting > 8)
        for task in crowd:
            task.cancel()
        await asyncio.gather(*crowd, return_exceptions=True)
        await processes.until(lambda: sum(llm.metrics().finished.values()) == MANY, 2.0)
        now = llm.metrics()
        assert now.finished["abort"] > 8
        assert (now.running, now.waiting, now.parked) == (0, 0, 0)
        assert now.free_blocks == now.total_blocks
        await check_one(llm, processes)
    finally:
        await llm.close()


async def check_one(llm: RemoteLLM, processes: Any) -> None:
    """An answer that ends is measured like in this process."""
    before = llm.metrics()
    ended = before.finished.get("length", 0) + 1
    found = (await last(llm, "the cat", SHORT)).metrics
    assert found is not None and None not in found
    assert found.queued_time is not None and found.total_time is not None
    assert 0 <= found.queued_time < found.total_time
    assert (found.num_preemptions, found.num_cached_tokens) == (0, 0)
    assert found.num_computed_tokens > 0
    await processes.until(lambda: llm.metrics().finished.get("length") == ended, 2.0)
    distributions = llm.metrics().distributions
    assert sum(distributions["request_seconds"].counts) == ended
    added = distributions["output_tokens"].total - before.distributions["output_tokens"].total
    assert added == 4
