"""Streaming inference for many callers in one event loop."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from copy import copy
from itertools import count
from pathlib import Path
from typing import Any

from jackfield.core.api import EngineStoppedError, RequestContext, RequestError, SamplingParams
from jackfield.core.assemble import Assembly, assemble
from jackfield.core.checkpoint.progress import Progress, RichProgress
from jackfield.core.engine.messages import DEFAULT_CONTEXT, Delta, NewRequest
from jackfield.core.front.answers import Answers
from jackfield.core.front.outputs import CompletionOutput, RequestOutput
from jackfield.core.front.prompts import PromptInput, banned_sequences, need, read
from jackfield.core.front.settings import resolve_settings
from jackfield.core.front.thread import EngineThread

News = Delta | Exception


class AsyncLLM:
    """A model with an engine in a thread of its own. Takes what `LLM` takes.

    All methods belong to one event loop. Leaving a `generate` loop early, by break, cancellation
    or an error, aborts the request: its seat and blocks are free after the current step.
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        config: str | Path | None = None,
        progress: Progress | None = None,
        **aliases: Any,
    ) -> None:
        resolved = resolve_settings(model, config, aliases)
        self._assembly: Assembly = assemble(resolved, progress or RichProgress())
        self._queues: dict[str, asyncio.Queue[News]] = {}
        self._names = count()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: EngineThread | None = None

    @property
    def assembly(self) -> Assembly:
        """The parts: engine, tokenizer, configuration, start summary."""
        return self._assembly

    async def generate(
        self,
        prompt: PromptInput,
        sampling_params: SamplingParams | None = None,
        *,
        request_id: str | None = None,
        context: RequestContext | None = None,
    ) -> AsyncIterator[RequestOutput]:
        """Yield the answer so far each time it grows; the last one has `finished` set.

        Raises `RequestError` before the first output if the request is refused, and
        `EngineStoppedError` if the engine ends before the answer does.
        """
        live = self.follow(prompt, sampling_params, request_id=request_id, context=context)
        async with aclosing(live) as outputs:
            async for output in outputs:
                yield _snapshot(output)

    async def follow(
        self,
        prompt: PromptInput,
        sampling_params: SamplingParams | None = None,
        *,
        request_id: str | None = None,
        context: RequestContext | None = None,
    ) -> AsyncGenerator[RequestOutput, None]:
        """Like `generate`, but yields one object again and again, which grows.

        For callers that only want what is new: they remember how much they have seen, and
        nothing is copied. Use `aclosing`, so that leaving early aborts at once.
        """
        thread = self._running()
        name = request_id if request_id is not None else f"request-{next(self._names)}"
        new, answers = self._prepare(name, prompt, sampling_params, context)
        queue: asyncio.Queue[News] = asyncio.Queue()
        if name in self._queues:
            raise RequestError(f"request id {name!r} is in use", param="request_id")
        self._queues[name] = queue
        loop = asyncio.get_running_loop()
        try:
            thread.add(new, lambda error: _post(loop, queue, error))
            async for output in self._outputs(queue, answers, thread):
                yield output
        finally:
            del self._queues[name]
            if not answers.output.finished:
                self._abort(name)

    async def _outputs(
        self, queue: "asyncio.Queue[News]", answers: Answers, thread: EngineThread
    ) -> AsyncIterator[RequestOutput]:
        while not answers.output.finished:
            news = [await queue.get()]
            while not queue.empty():
                news.append(queue.get_nowait())
            for item in news:
                if isinstance(item, Exception):
                    raise item
                if answers.take(item):
                    thread.abort(item.id, item.index)
            yield answers.output

    def _prepare(
        self,
        name: str,
        prompt: PromptInput,
        params: SamplingParams | None,
        context: RequestContext | None,
    ) -> tuple[NewRequest, Answers]:
        tokenizer = self._assembly.tokenizer
        ready = read(prompt, tokenizer)
        chosen = params or SamplingParams(**self._assembly.sampling_defaults)
        if chosen.stop_strings:
            need(tokenizer, "stop")
        banned = banned_sequences(chosen.bad_words or (), tokenizer)
        new = NewRequest(name, ready.ids, chosen, context or DEFAULT_CONTEXT, banned)
        return new, Answers(name, ready, chosen, tokenizer)

    def _running(self) -> EngineThread:
        loop = asyncio.get_running_loop()
        if self._thread is None:
            self._loop = loop
            self._thread = EngineThread(
                self._assembly.engine, self._assembly.clock.now, self._deliver, self._ended
            )
        if self._loop is not loop:
            raise EngineStoppedError("this AsyncLLM belongs to another loop; make one per loop")
        return self._thread

    def _deliver(self, deltas: Sequence[Delta]) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._dispatch, deltas)

    def _dispatch(self, deltas: Sequence[Delta]) -> None:
        for delta in deltas:
            queue = self._queues.get(delta.id)
            if queue is not None:
                queue.put_nowait(delta)

    def _ended(self, death: str | None) -> None:
        assert self._loop is not None
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._tell_all, death or "the engine is closed")

    def _tell_all(self, reason: str) -> None:
        for queue in self._queues.values():
            queue.put_nowait(EngineStoppedError(reason))

    async def abort(self, request_id: str) -> None:
        """End a request; its `generate` loop ends with finish_reason "abort"."""
        self._abort(request_id)

    def _abort(self, request_id: str) -> None:
        try:
            self._running().abort(request_id)
        except EngineStoppedError:
            return

    async def close(self) -> None:
        """Stop the engine; open streams raise `EngineStoppedError`."""
        if self._thread is not None:
            await asyncio.to_thread(self._thread.close)
        else:
            self._assembly.engine.close()


def _post(loop: asyncio.AbstractEventLoop, queue: "asyncio.Queue[News]", news: News) -> None:
    loop.call_soon_threadsafe(queue.put_nowait, news)


def _snapshot(output: RequestOutput) -> RequestOutput:
    """A copy that later deltas do not change."""
    frozen = copy(output)
    frozen.outputs = [_copy_answer(answer) for answer in output.outputs]
    return frozen


def _copy_answer(answer: CompletionOutput) -> CompletionOutput:
    frozen = copy(answer)
    frozen.token_ids = list(answer.token_ids)
    frozen.logprobs = None if answer.logprobs is None else list(answer.logprobs)
    return frozen
