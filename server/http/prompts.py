"""Prompts as the engine takes them: encoded away from the event loop, and checked."""

import asyncio
from collections.abc import Sequence
from typing import Any

from jackfield.core.api.errors import ContextLengthExceeded, RequestError
from jackfield.server.http.chat_request import Conversation
from jackfield.server.http.completion_request import Prompt
from jackfield.server.http.service import Service

ID_BITS = 63
"""More do not fit into a message to the engine, which checks the rest."""
Ready = dict[str, Any]


async def encode_prompts(service: Service, prompts: Sequence[Prompt]) -> list[Ready]:
    """All prompts, or `RequestError` if one of them can never be answered."""
    if any(isinstance(prompt, str) for prompt in prompts):
        ready = await asyncio.to_thread(_encode, service, prompts)
    else:
        ready = [{"prompt_token_ids": ids} for ids in prompts]
    for one in ready:
        check_ids(one["prompt_token_ids"], service.max_model_len, "prompt")
    return ready


def _encode(service: Service, prompts: Sequence[Prompt]) -> list[Ready]:
    tokenizer = service.need_tokenizer()
    return [
        {"prompt": prompt, "prompt_token_ids": tokenizer.encode(prompt)}
        for prompt in prompts
        if isinstance(prompt, str)
    ]


async def render_conversation(service: Service, chat: Conversation) -> Ready:
    """A conversation through the model's template, in a thread. Raises `RequestError`."""
    options = chat.template_options()
    render = service.backend.render_chat
    try:
        text, ids = await asyncio.to_thread(render, chat.messages, **options)
    except RequestError as error:
        if error.param == "prompt":
            error.param = "messages"
        raise
    check_ids(ids, service.max_model_len, "messages")
    return {"prompt": text, "prompt_token_ids": ids}


def check_ids(ids: Sequence[int], longest: int, param: str) -> None:
    """Raise `RequestError` for a prompt that is empty or too long. The engine knows its ids."""
    if not ids:
        raise RequestError("The prompt is empty; it needs at least one token.", param=param)
    if len(ids) > longest:
        raise ContextLengthExceeded(
            f"This model's maximum context length is {longest} tokens. However, the "
            f"prompt has {len(ids)}; shorten it.",
            param=param,
        )
    for place, token in enumerate(ids):
        if token.bit_length() > ID_BITS:
            raise RequestError(
                f"Token {place} of the prompt is far too large to be a token id.", param=param
            )
