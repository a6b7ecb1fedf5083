"""Offline inference: all prompts at once, answers in the order of the prompts."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, Self

from jackfield.core.api import (
    CacheHints,
    EngineStoppedError,
    FinishReason,
    RequestContext,
    RequestError,
    SamplingParams,
)
from jackfield.core.api.cache_hints import NO_HINTS, checked_hints
from jackfield.core.assemble import Assembly, assemble
from jackfield.core.checkpoint.progress import Progress, RichProgress, SilentProgress
from jackfield.core.engine.decisions import Decision
from jackfield.core.engine.door import Admissible
from jackfield.core.engine.messages import DEFAULT_CONTEXT, NewRequest
from jackfield.core.front.answers import Answers
from jackfield.core.front.outputs import RequestOutput
from jackfield.core.front.prompt_keys import PromptKeys
from jackfield.core.front.prompts import Prompt, PromptInput, as_list, banned_sequences, need, read
from jackfield.core.front.quiet import quiet
from jackfield.core.front.settings import resolve_settings
from jackfield.core.host.sources import Resolved

Messages = Sequence[Mapping[str, Any]]
CacheInput = CacheHints | Mapping[str, Any]
"""Hints, or a mapping of their fields."""


class Made(NamedTuple):
    """One prompt on its way: what the engine is given, what the door made of it, its answers."""

    new: NewRequest
    checked: Admissible
    answers: Answers


class LLM:
    """A model with an engine, in this process.

    model: a folder or hub id; the default model when left out. config: a TOML file, or what
    `load_config` made of one, to which nothing can be added. All other
    names are aliases that edit the configuration, such as `max_num_seqs` or `block_size`
    (docs/configuration.md lists them). Raises `JackfieldError` with one clear sentence.

    Not thread-safe; use `AsyncLLM` to serve many callers.
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        config: str | Path | Resolved | None = None,
        progress: Progress | None = None,
        **aliases: Any,
    ) -> None:
        resolved = resolve_settings(model, config, aliases)
        self._assembly: Assembly = assemble(resolved, progress or RichProgress(), streamed=False)
        self._names = count()

    @property
    def assembly(self) -> Assembly:
        """The parts: engine, tokenizer, configuration, start summary."""
        self._assembly.engine.settle()
        return self._assembly

    def default_sampling_params(self) -> SamplingParams:
        """What is used when no parameters are given: the model's generation_config.json."""
        return SamplingParams(**self._assembly.sampling_defaults)

    def generate(
        self,
        prompts: PromptInput | Sequence[PromptInput],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        priority: int | Sequence[int] | None = None,
        context: RequestContext | Sequence[RequestContext] | None = None,
        cache: CacheInput | Sequence[CacheInput] | None = None,
    ) -> list[RequestOutput]:
        """Answer all prompts. Everything is checked before anything runs.

        sampling_params: one for all, or one per prompt. priority: lower goes first, with a stack
        that has `priority`; None = the context's. context: who asks, for policies, one for all or
        one per prompt; `deadline` makes the moment that it may hold. cache: what they ask of the
        KV cache, in place of the context's. An answer that fails while it runs has finish_reason
        "error".
        """
        inputs = as_list(prompts)
        params = _spread(sampling_params or self.default_sampling_params(), len(inputs), "params")
        contexts = _contexts(context, priority, cache, len(inputs))
        with quiet() as leave_out:
            keys = PromptKeys(self._assembly.engine.door_limits)
            made = [
                self._prepare(index, prompt, params[index], contexts[index], keys)
                for index, prompt in enumerate(inputs)
            ]
            leave_out()
            return self._run(made, use_tqdm)

    def chat(
        self,
        messages: Messages | Sequence[Messages],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        context: RequestContext | Sequence[RequestContext] | None = None,
        cache: CacheInput | Sequence[CacheInput] | None = None,
    ) -> list[RequestOutput]:
        """Answer one conversation, or a list of them, through the model's chat template."""
        single = bool(messages) and isinstance(messages[0], Mapping)
        conversations: Sequence[Any] = [messages] if single else messages
        prompts = [
            self._render(
                conversation,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                tools=tools,
                **(chat_template_kwargs or {}),
            )
            for conversation in conversations
        ]
        return self.generate(
            prompts, sampling_params, use_tqdm=use_tqdm, context=context, cache=cache
        )

    def _render(self, messages: Messages, **options: Any) -> dict[str, Any]:
        tokenizer = need(self._assembly.tokenizer, "a chat")
        text, ids = self._assembly.render_chat(messages, **options)
        assert tokenizer is not None
        return {"prompt": text, "prompt_token_ids": ids}

    def _prepare(
        self,
        index: int,
        prompt: Any,
        params: SamplingParams,
        context: RequestContext,
        keys: PromptKeys,
    ) -> Made:
        tokenizer, engine = self._assembly.tokenizer, self._assembly.engine
        try:
            ready: Prompt = read(prompt, tokenizer)
            if params.stop_strings:
                need(tokenizer, "stop")
            if context.cache is not NO_HINTS:
                checked_hints(context.cache)
            new = NewRequest(
                str(next(self._names)),
                ready.ids,
                params,
                context,
                banned_sequences(params.bad_words or (), tokenizer),
            )
            checked = engine.validate(new)
        except RequestError as error:
            error.args = (f"prompt {index}: {error}",)
            raise
        made = keys.of(checked.tokens)
        if made:
            new = replace(new, keys=made)
        return Made(new, checked, Answers(new.id, ready, params, tokenizer))

    def _run(self, made: Sequence[Made], use_tqdm: bool) -> list[RequestOutput]:
        engine = self._assembly.engine
        progress: Progress = RichProgress() if use_tqdm else SilentProgress()
        answers = {one.new.id: one.answers for one in made}
        progress.start("Answering", len(made))
        try:
            for one in made:
                engine.add(one.new, one.checked)
            while engine.has_work:
                self._assembly.wait_if_idle()
                for delta in engine.step(later=True):
                    answer = answers.get(delta.id)
                    if answer is None or answer.output.finished:
                        continue  # it was aborted before this news, perhaps by an earlier call
                    if answer.take(delta):
                        engine.abort(delta.id, delta.index, FinishReason.STOP)
                    if answer.output.finished:
                        progress.advance(1)
        finally:
            if engine.has_work:  # something was raised
                for one in made:
                    engine.abort(one.new.id)
            progress.finish()
        if engine.end is not None:
            raise EngineStoppedError(engine.end)
        return [one.answers.output for one in made]

    def reset_prefix_cache(self) -> bool:
        """Forget all cached blocks. False, and nothing is forgotten, while any is in use."""
        return self._assembly.engine.reset_prefix_cache()

    def deadline(self, seconds: float) -> float:
        """The moment so many seconds from now, for `RequestContext.deadline`."""
        return self._assembly.clock.now() + seconds

    def explain(self, request_id: str) -> list[Decision]:
        """Why a request waited, ran, lost its seat or ended."""
        return self._assembly.engine.explain(request_id)

    def expert_counts(self) -> Mapping[int, Sequence[int]]:
        """Of each layer that has experts, how many tokens each of them got since the start; empty =
        none has. Prompts, answers, and what was computed again all count."""
        return self._assembly.engine.expert_counts()

    def close(self) -> None:
        """Give memory back. Nothing can be generated afterwards."""
        self._assembly.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _contexts(
    context: RequestContext | Sequence[RequestContext] | None,
    priority: int | Sequence[int] | None,
    cache: CacheInput | Sequence[CacheInput] | None,
    length: int,
) -> list[RequestContext]:
    """One for each prompt, with its priority and hints if those are given."""
    if isinstance(context, RequestContext):  # which is a sequence itself
        context = [context] * length
    if context is None:
        context = [DEFAULT_CONTEXT] * length
    contexts = _spread(context, length, "contexts")
    if priority is not None:
        ranks = _spread(priority, length, "priority")
        contexts = [c._replace(priority=rank) for c, rank in zip(contexts, ranks, strict=True)]
    if cache is not None:
        hints = _hints(cache, length)
        contexts = [c._replace(cache=one) for c, one in zip(contexts, hints, strict=True)]
    return contexts


def _hints(cache: CacheInput | Sequence[CacheInput], length: int) -> list[CacheHints]:
    if isinstance(cache, CacheHints):  # which is a sequence itself
        cache = [cache] * length
    return [checked_hints(one) for one in _spread(cache, length, "cache")]


def _spread(value: Any, length: int, name: str) -> list[Any]:
    """One value for all prompts, or as many as there are."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        return [value] * length
    if len(value) != length:
        raise RequestError(f"{len(value)} {name} for {length} prompts", param=name)
    return list(value)
