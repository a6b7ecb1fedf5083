"""Prompts as the engine takes them: encoded away from the event loop, and checked."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from jackfield.core.api.errors import ContextLengthExceeded, RequestError
from jackfield.server.http.chat_request import ChatRequest
from jackfield.server.http.completion_request import CompletionRequest, Prompt
from jackfield.server.http.request_fields import RequestFields
from jackfield.server.http.service import Service

ID_BITS = 63
"""More do not fit into a message to the engine, which checks the rest."""
LONG_TEXT = 200_000
"""Characters that are encoded in a moment; of longer texts it is asked first whether to begin."""
Ready = dict[str, Any]


async def encode_prompts(
    service: Service, body: CompletionRequest, prompts: Sequence[Prompt]
) -> list[Ready]:
    """All prompts, or `RequestError` if one of them can never be answered."""
    if any(isinstance(prompt, str) for prompt in prompts):
        added = body.add_special_tokens is not False
        if body.truncate_prompt_tokens is None:
            for prompt in prompts:
                _check_texts(service, [prompt] if isinstance(prompt, str) else [], "prompt")
        ready = await asyncio.to_thread(_encode, service, prompts, added)
    else:
        ready = [{"prompt_token_ids": ids} for ids in prompts]
    return [_fitted(one, body, service.max_model_len, "prompt") for one in ready]


def _check_texts(service: Service, texts: Sequence[str], param: str) -> None:
    """Raise `ContextLengthExceeded` for texts so long that encoding them would be a waste."""
    tokenizer, longest = service.need_tokenizer(), service.max_model_len
    long = (text for text in texts if len(text) > LONG_TEXT)
    least = max(map(tokenizer.least_tokens, long), default=0)
    if least > longest:
        raise _too_long(f"at least {least}", longest, param)


def _encode(service: Service, prompts: Sequence[Prompt], added: bool) -> list[Ready]:
    tokenizer = service.need_tokenizer()
    return [
        {"prompt": prompt, "prompt_token_ids": tokenizer.encode(prompt, add_special_tokens=added)}
        for prompt in prompts
        if isinstance(prompt, str)
    ]


async def render_conversation(service: Service, chat: ChatRequest) -> Ready:
    """A conversation through the model's template, in a thread. Raises `RequestError`."""
    options = chat.template_options()
    render = service.backend.render_chat
    if chat.truncate_prompt_tokens is None and service.backend.tokenizer is not None:
        contents = [message.get("content") for message in chat.messages]
        _check_texts(service, [one for one in contents if isinstance(one, str)], "messages")
    with about_messages():
        text, ids = await asyncio.to_thread(render, chat.messages, **options)
        if chat.add_special_tokens:
            ids = await asyncio.to_thread(service.need_tokenizer().encode, text)
    ready = {"prompt": text, "prompt_token_ids": ids}
    return _fitted(ready, chat, service.max_model_len, "messages")


@contextmanager
def about_messages() -> Iterator[None]:
    """What is wrong with the prompt of a chat is wrong with its messages."""
    try:
        yield
    except RequestError as error:
        if error.param == "prompt":
            error.param = "messages"
        raise


def _fitted(ready: Ready, body: RequestFields, longest: int, param: str) -> Ready:
    """The prompt, cut as the request wants it, if it can be answered; its text goes with a cut."""
    ids = ready["prompt_token_ids"]
    kept = _cut(ids, body, longest)
    check_ids(kept, longest, param)
    return ready if len(kept) == len(ids) else {"prompt_token_ids": kept}


def _cut(ids: Sequence[int], body: RequestFields, longest: int) -> Sequence[int]:
    most = body.truncate_prompt_tokens
    if most is None:
        return ids
    room = max(longest - max(body.answer_limit or 1, 1), 1)
    if most > room:
        raise RequestError(
            f"truncate_prompt_tokens is too large; with the answer at most {room} tokens fit",
            param="truncate_prompt_tokens",
        )
    most = max(room, 0) if most == -1 else most
    return ids[:most] if body.truncation_side == "right" else ids[max(len(ids) - most, 0) :]


def check_ids(ids: Sequence[int], longest: int, param: str) -> None:
    """Raise `RequestError` for a prompt that is empty or too long. The engine knows its ids."""
    if not ids:
        raise RequestError("The prompt is empty; it needs at least one token.", param=param)
    if len(ids) > longest:
        raise _too_long(str(len(ids)), longest, param)
    for place, token in enumerate(ids):
        if token.bit_length() > ID_BITS:
            raise RequestError(
                f"Token {place} of the prompt is far too large to be a token id.", param=param
            )


def _too_long(length: str, longest: int, param: str) -> ContextLengthExceeded:
    return ContextLengthExceeded(
        f"This model's maximum context length is {longest} tokens. However, the prompt is too "
        f"long: it has {length}; shorten it.",
        param=param,
    )
