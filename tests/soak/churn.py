"""An engine in a process of its own, under load that changes all the time; it tells what it holds.

`python tests/soak/churn.py --seconds 20 --shape qwen3-tiny` runs without a GPU, too. Each line is a
JSON object: one every few seconds, and a last one, with "ended", when everything has ended.
"""

import argparse
import asyncio
import gc
import json
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing, suppress
from functools import partial
from itertools import count, cycle
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

import psutil
import torch
from churn_requests import ON_CPU, ON_GPU, Asked, Maker, Sizes

from jackfield.core.api import SamplingParams
from jackfield.core.async_llm import AsyncLLM
from jackfield.core.bench.shapes import write_shape
from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.core.front.outputs import CompletionOutput, RequestOutput

LOOKS = 20
EVERY = 5.0
"""Seconds from one line to the next."""
FEWEST_LINES = 25
SHOWN_FAILURES = 5
MOST_FAILURES = 100
SECONDS_TO_SETTLE = 60.0


class Churn:
    """Clients of one engine, and what became of their requests."""

    def __init__(self, llm: AsyncLLM, sizes: Sizes, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []
        self.at_rest: list[int] = []
        """Objects there were whenever nobody was there."""
        self._llm = llm
        self._sizes = sizes
        self._maker = Maker(sizes, llm.assembly.spec.vocab_size, seed)
        self._random = Random(seed)
        self._open = asyncio.Event()
        self._active = 0
        self._ending = 0.0

    @property
    def _left(self) -> float:
        """Seconds in which requests are still sent."""
        return self._ending - monotonic()

    async def run(self, seconds: float) -> None:
        """Returns when the last request has ended that was sent before that time was over."""
        self._ending = monotonic() + seconds
        self._open.set()
        async with asyncio.TaskGroup() as everybody:
            for _ in range(self._sizes.clients):
                everybody.create_task(self._client())
            quick = (self._quiet, partial(self._burst, everybody), self._reset)
            events = cycle((*quick, *quick, self._empty))
            while self._left > 0:
                gap = self._random.expovariate(1 / self._sizes.events)
                await asyncio.sleep(max(min(gap, self._left), 0.0))
                await next(events)()

    async def _client(self) -> None:
        await self._open.wait()
        while self._left > 0:
            await self._send(self._maker.request())
            await self._open.wait()

    async def _quiet(self) -> None:
        self._open.clear()
        await asyncio.sleep(1.0)
        self._open.set()

    async def _burst(self, everybody: asyncio.TaskGroup) -> None:
        for _ in range(self._sizes.burst):
            everybody.create_task(self._send(self._maker.tiny()))
        self.counts["bursts"] += 1

    async def _reset(self) -> None:
        self.counts["resets"] += await self._llm.reset_prefix_cache()

    async def _empty(self) -> None:
        """Nobody is there for a moment: then everything is free, and can be forgotten."""
        self._open.clear()
        while self._active:
            await asyncio.sleep(0.02)
        await settle(self._llm)
        assert await self._llm.reset_prefix_cache(), "nobody is there, and blocks are in use"
        self.counts["empty"] += 1
        gc.collect()
        self.at_rest.append(len(gc.get_objects()))
        self._open.set()

    async def _send(self, asked: Asked) -> None:
        self.counts["sent"] += 1
        self._active += 1
        try:
            async with asyncio.timeout(asked.patience):
                fate = await self._follow(asked)
        except TimeoutError:
            fate = "aborted"
        except Exception as error:
            fate = self._failed(f"{type(error).__name__}: {error}", asked)
        finally:
            self._active -= 1
        self.counts[fate] += 1
        assert self.counts["failed"] <= MOST_FAILURES, self.failures[0]

    async def _follow(self, asked: Asked) -> str:
        """What became of it."""
        number, output = 0, None
        name = f"r{self.counts['sent']}"
        ask = self._llm.generate if asked.copies else self._llm.follow
        stream: Any = ask(asked.prompt, asked.params, request_id=name, context=asked.context)
        async with aclosing(stream) as outputs:
            async for output in outputs:
                number += 1
                if number == asked.steps and not output.finished:
                    if not asked.says:
                        return "aborted"
                    await self._llm.abort(name)
        assert output is not None
        return self._judge(output, asked)

    def _judge(self, output: RequestOutput, asked: Asked) -> str:
        self.counts["tokens"] += sum(len(one.token_ids) for one in output.outputs)
        reasons = {one.finish_reason for one in output.outputs}
        if "abort" in reasons and asked.says:
            return "aborted"
        wrong = _wrong(output, asked)
        if wrong:
            return self._failed(wrong, asked)
        self.counts["stopped"] += "stop" in reasons
        return "finished"

    def _failed(self, why: str, asked: Asked) -> str:
        if len(self.failures) < SHOWN_FAILURES:
            params = asked.params.with_(stop_token_ids=None, allowed_token_ids=None)
            self.failures.append(f"{why}; {len(asked.prompt)} tokens, {params}"[:1000])
        return "failed"


def _wrong(output: RequestOutput, asked: Asked) -> str:
    """What is wrong with an answer that its client has waited for; "" = nothing."""
    params = asked.params
    if not output.finished or len(output.outputs) != params.n:
        return f"{len(output.outputs)} answers, finished: {output.finished}"
    if params.prompt_logprobs is not None:
        scores = output.prompt_logprobs
        if scores is None or len(scores) != len(asked.prompt):
            return f"scores of {scores if scores is None else len(scores)} prompt tokens"
    return next(filter(None, (_wrong_answer(one, params) for one in output.outputs)), "")


def _wrong_answer(answer: CompletionOutput, params: SamplingParams) -> str:
    length, most = len(answer.token_ids), params.max_tokens or 0
    if answer.finish_reason not in ("stop", "length"):
        return f"it ended with {answer.finish_reason}: {answer.error}"
    if not max(params.min_tokens, 1) <= length <= most:
        return f"{length} tokens instead of {params.min_tokens} to {most}"
    if answer.finish_reason == "length" and length != most:
        return f"it ended by its length after {length} of {most} tokens"
    if params.logprobs is not None and len(answer.logprobs or ()) != length:
        return f"scores of {len(answer.logprobs or ())} of {length} tokens"
    return ""


async def settle(llm: AsyncLLM) -> None:
    """Wait until the engine has nothing to do and every block is free."""
    ending = monotonic() + SECONDS_TO_SETTLE
    while any(left(llm).values()):
        assert monotonic() < ending, f"nobody asks for anything, and there are {left(llm)}"
        await asyncio.sleep(0.02)


def left(llm: AsyncLLM) -> dict[str, int]:
    """What an engine holds that nobody asks for anything: nothing."""
    now, engine = llm.metrics(), llm.assembly.engine
    return {
        "running": now.running,
        "waiting": now.waiting,
        "parked": now.parked,
        "blocks": now.total_blocks - now.free_blocks,
        "work": int(engine.has_work),
        "mailboxes": len(llm._mailboxes),
    }


async def look(churn: Churn, llm: AsyncLLM, process: psutil.Process) -> dict[str, Any]:
    """What there is now. Garbage is collected before, so that it counts for nothing."""
    gc.collect()
    now = llm.metrics()
    return {
        **{name: churn.counts[name] for name in ("sent", "finished", "aborted", "failed")},
        "tokens": churn.counts["tokens"],
        "preemptions": now.preemptions,
        "evicted": now.cache.evicted,
        "running": now.running,
        "waiting": now.waiting,
        "rss": process.memory_info().rss,
        "objects": len(gc.get_objects()),
        **(await _device() if torch.cuda.is_available() else {}),
    }


async def _device() -> dict[str, int]:
    """Bytes. allocated: the least of several looks, as a step under way holds more for a moment;
    peak: the most since the last line."""
    allocated = []
    for _ in range(LOOKS):
        allocated.append(torch.cuda.memory_allocated())
        await asyncio.sleep(0.003)
    free, total = torch.cuda.mem_get_info()
    peak = torch.cuda.max_memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    return {
        "allocated": min(allocated),
        "peak": peak,
        "reserved": torch.cuda.memory_reserved(),
        "used": total - free,
    }


def tell(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


async def report(churn: Churn, llm: AsyncLLM, every: float) -> None:
    """A line at each multiple of that time, for ever."""
    started, process = monotonic(), psutil.Process()
    for number in count(1):
        await asyncio.sleep(max(started + number * every - monotonic(), 0.0))
        tell({"seconds": round(monotonic() - started, 1), **await look(churn, llm, process)})


async def serve(folder: Path, seconds: float, seed: int) -> None:
    """The whole life of an engine."""
    sizes = ON_GPU if torch.cuda.is_available() else ON_CPU
    llm = start(folder, sizes, seed)
    churn = Churn(llm, sizes, seed)
    reporting = asyncio.create_task(report(churn, llm, min(EVERY, seconds / FEWEST_LINES)))
    await churn.run(seconds)
    reporting.cancel()
    with suppress(asyncio.CancelledError):
        await reporting
    await settle(llm)
    llm.assembly.engine.check()
    ends = {"faults": llm.metrics().faults, "failures": churn.failures}
    tell({"ended": True, **churn.counts, **left(llm), **ends, "at_rest": churn.at_rest})
    await llm.close()


def start(folder: Path, sizes: Sizes, seed: int) -> AsyncLLM:
    """An engine whose pool is too small for what it will be asked."""
    return AsyncLLM(
        folder, load_format="dummy", skip_tokenizer_init=True, dtype="bfloat16", seed=seed,
        max_model_len=sizes.longest_prompt + sizes.longest_answer,
        max_num_seqs=sizes.max_seqs, max_num_batched_tokens=sizes.max_tokens,
        num_gpu_blocks_override=sizes.num_blocks, progress=SilentProgress(),
        **{
            "scheduler.stack": ["priority", "fairness", "fcfs"],
            "cache.stack": ["paged", "prefix"],
            "engine.decision_log": 1024,  # it is full from the start, so that it does not grow
            "engine.hook_budget": 5.0,  # collections of garbage may fall into any call
        },
    )  # fmt: skip


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--shape", default="qwen3-0.6b")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    with TemporaryDirectory() as folder:
        made = write_shape(given.shape, Path(folder))
        asyncio.run(serve(made, given.seconds, given.seed))


if __name__ == "__main__":
    main(sys.argv[1:])
