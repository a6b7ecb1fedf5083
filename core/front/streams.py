"""Streams of growing answers, wherever the engine runs."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from copy import copy
from itertools import count
from typing import Any

from jackfield.core.api import (
    CacheHints,
    EngineStoppedError,
    FinishReason,
    RequestContext,
    RequestRejected,
    SamplingParams,
)
from jackfield.core.api.cache_hints import checked_hints
from jackfield.core.engine.decisions import Decision
from jackfield.core.engine.door import DoorLimits
from jackfield.core.engine.listing import Query, RequestPage
from jackfield.core.engine.messages import DEFAULT_CONTEXT, Delta, NewRequest
from jackfield.core.engine.snapshot import Snapshot
from jackfield.core.front.answers import Answers
from jackfield.core.front.mailboxes import Mailbox, Mailboxes
from jackfield.core.front.outputs import CompletionOutput, RequestOutput
from jackfield.core.front.prompt_keys import prompt_keys
from jackfield.core.front.prompts import PromptInput, banned_sequences, need, read
from jackfield.core.front.running import Health, RunningEngine
from jackfield.core.summary import Summary
from jackfield.core.text.tokenizer import Tokenizer
from jackfield.core.texts import Texts

INLINE_CHARACTERS = 2000
"""A longer text is encoded in another thread, so that other streams go on meanwhile."""
INLINE_TOKENS = 4096
"""Of more ids the keys are made in another thread."""


class Streams(ABC):
    """A model that answers many callers in one event loop.

    All methods belong to that loop. Leaving a `generate` loop early, by break, cancellation or an
    error, aborts the request: its seat and blocks are free after the current step. Its name can be
    used again at once: the next request of that name starts when the former one has ended.
    """

    def __init__(self, texts: Texts, summary: Summary, mailboxes: Mailboxes) -> None:
        self.summary = summary
        self._texts = texts
        self._names = count()
        self._mailboxes = mailboxes

    @abstractmethod
    def _engine(self) -> RunningEngine:
        """The engine, started if it was not."""

    @property
    def tokenizer(self) -> Tokenizer | None:
        """None if the model was loaded without one."""
        return self._texts.tokenizer

    @property
    def sampling_defaults(self) -> Mapping[str, Any]:
        """What a request gets that says nothing."""
        return self._texts.sampling_defaults

    def render_chat(
        self, messages: Sequence[Mapping[str, Any]], **options: Any
    ) -> tuple[str, list[int]]:
        """A conversation as text and ids. Raises `TokenizerError` without a chat template."""
        return self._texts.render_chat(messages, **options)

    async def generate(
        self,
        prompt: PromptInput,
        sampling_params: SamplingParams | None = None,
        *,
        request_id: str | None = None,
        context: RequestContext | None = None,
        cache: CacheHints | Mapping[str, Any] | None = None,
    ) -> AsyncIterator[RequestOutput]:
        """Yield the answer so far each time it grows; the last one has `finished` set.

        cache: what it asks of the KV cache, in place of the context's.

        Raises `RequestError` before the first output if the request is refused, and
        `EngineStoppedError` if the engine ends before the answer does.
        """
        live = self.follow(
            prompt, sampling_params, request_id=request_id, context=context, cache=cache
        )
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
        cache: CacheHints | Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[RequestOutput, None]:
        """Like `generate`, but yields one object again and again, which grows.

        For callers that only want what is new: they remember how much they have seen, and
        nothing is copied. Use `aclosing`, so that leaving early aborts at once.
        """
        engine = self._running()
        name = request_id if request_id is not None else f"request-{next(self._names)}"
        box = self._mailboxes.open(name)
        finished = False
        try:
            asked = _context(context, cache)
            new, answers = await self._prepare(name, prompt, sampling_params, asked, engine.limits)
            await self._mailboxes.vacant(name)
            _hand_over(engine, new, box)
            async for output in self._outputs(box, answers, engine):
                finished = output.finished
                yield output
        finally:
            unheard = box.is_awaited
            self._mailboxes.close(name)
            if unheard and not finished:
                self._abort(name)

    async def _outputs(
        self, box: Mailbox, answers: Answers, engine: RunningEngine
    ) -> AsyncIterator[RequestOutput]:
        while not answers.output.finished:
            for item in await box.take():
                if isinstance(item, Exception):
                    raise item
                if item.rejection is not None:
                    raise _rejected(item)
                if answers.take(item):
                    engine.abort(item.id, item.index, FinishReason.STOP)
            yield answers.output

    async def _prepare(
        self,
        name: str,
        prompt: PromptInput,
        params: SamplingParams | None,
        context: RequestContext,
        limits: DoorLimits,
    ) -> tuple[NewRequest, Answers]:
        chosen = params or SamplingParams(**self.sampling_defaults)
        given = (name, prompt, chosen, context, limits)
        if _is_long(prompt, limits):
            return await asyncio.to_thread(self._make, *given)
        return self._make(*given)

    def _make(
        self,
        name: str,
        prompt: PromptInput,
        params: SamplingParams,
        context: RequestContext,
        limits: DoorLimits,
    ) -> tuple[NewRequest, Answers]:
        tokenizer = self.tokenizer
        ready = read(prompt, tokenizer)
        if params.stop_strings:
            need(tokenizer, "stop")
        banned = banned_sequences(params.bad_words or (), tokenizer)
        keys = prompt_keys(ready.ids, limits)
        new = NewRequest(name, ready.ids, params, context, banned, keys)
        return new, Answers(name, ready, params, tokenizer)

    def _running(self) -> RunningEngine:
        self._mailboxes.bind()
        return self._engine()

    async def abort(self, request_id: str) -> None:
        """End a request; its `generate` loop ends with finish_reason "abort"."""
        box = self._mailboxes.of(request_id)
        if box is not None and not box.is_awaited:
            box.aborted = True
        else:
            self._abort(request_id)

    def _abort(self, request_id: str) -> None:
        try:
            self._running().abort(request_id)
        except EngineStoppedError:
            return

    @abstractmethod
    def deadline(self, seconds: float) -> float:
        """The moment so many seconds from now, for `RequestContext.deadline`."""

    async def explain(self, request_id: str) -> list[Decision]:
        """Why a request waited, ran, lost its seat or ended; oldest first."""
        return await asyncio.wrap_future(self._running().explain(request_id))

    async def requests(
        self,
        *,
        state: str | None = None,
        tenant: str | None = None,
        request_id: str | None = None,
        limit: int = 100,
    ) -> RequestPage:
        """Who is in the engine, and why each is where it is; at most 1000.

        state: "running", "waiting" or "parked"; None = whichever, as for the others.
        """
        query = Query(state, tenant, request_id, limit)
        return await asyncio.wrap_future(self._running().requests(query))

    async def reset_prefix_cache(self) -> bool:
        """Forget all cached blocks. False, and nothing is forgotten, while any is in use."""
        return await asyncio.wrap_future(self._running().reset_prefix_cache())

    def metrics(self) -> Snapshot:
        """Counters and gauges of the engine; at most a second old."""
        return self._engine().snapshot()

    def health(self) -> Health:
        """Whether the engine lives, and since when it said nothing."""
        return self._engine().health()

    async def close(self) -> None:
        """Stop the engine; open streams raise `EngineStoppedError`."""
        await asyncio.to_thread(self._engine().close)


def _context(
    context: RequestContext | None, cache: CacheHints | Mapping[str, Any] | None
) -> RequestContext:
    """Who asks, with these hints if there are any. Raises `RequestError` for wrong ones."""
    chosen = context or DEFAULT_CONTEXT
    return chosen._replace(cache=checked_hints(chosen.cache if cache is None else cache))


def _is_long(prompt: PromptInput, limits: DoorLimits) -> bool:
    """Whether it takes so long to prepare that others would notice."""
    text, ids = prompt, prompt
    if isinstance(prompt, Mapping):
        text, ids = prompt.get("prompt", ""), prompt.get("prompt_token_ids", ())
    if isinstance(text, str) and len(text) > INLINE_CHARACTERS:
        return True
    sized = isinstance(ids, Sequence) and not isinstance(ids, str)
    return limits.shares_blocks and sized and len(ids) > INLINE_TOKENS


def _hand_over(engine: RunningEngine, new: NewRequest, box: Mailbox) -> None:
    """Give the request to the engine, unless the caller ended it while it was prepared."""
    if not box.aborted:
        engine.add(new)
        box.sent(new.params.n)
        return
    for index in range(new.params.n):
        box.put(Delta(new.id, index, (), FinishReason.ABORT))


def _rejected(delta: Delta) -> RequestRejected:
    assert delta.rejection is not None and delta.error is not None, "asked by the caller"
    code, retry_after = delta.rejection
    return RequestRejected(delta.error, code=code, retry_after=retry_after)


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
