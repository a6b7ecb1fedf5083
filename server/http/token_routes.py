"""POST /tokenize and /detokenize, GET /tokenizer_info."""

import asyncio
from typing import Annotated, Any

from pydantic import ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from jackfield.core.api.errors import RequestError
from jackfield.server.http.body import Body, ignored_header, read_body
from jackfield.server.http.chat_request import Conversation
from jackfield.server.http.json_text import dump
from jackfield.server.http.service import Service

MAX_ID = 2**31 - 1
EITHER: dict[str, Any] = {
    "oneOf": [
        {
            "required": [given],
            "properties": {given: {"type": form}, other: {"type": "null"}},
        }
        for given, form, other in (
            ("prompt", "string", "messages"), ("messages", "array", "prompt"),
        )
    ]
}


class TokenizeRequest(Body):
    """A text, or a conversation with the fields of a chat."""

    model_config = ConfigDict(json_schema_extra=EITHER)

    model: str | None = None
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class DetokenizeRequest(Body):
    """Token ids."""

    model: str | None = None
    tokens: list[Annotated[int, Field(ge=0, le=MAX_ID)]]


class TokenRoutes:
    """Text to ids and back, as the model sees it."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def tokenize(self, request: Request) -> Response:
        """The ids of a text, or of a conversation through the model's template."""
        service = self._service
        body = await read_body(request, TokenizeRequest, service.settings)
        service.check_model(body.model)
        ids = await asyncio.to_thread(self._encode, body)
        found: dict[str, Any] = {
            "count": len(ids),
            "max_model_len": service.max_model_len,
            "tokens": ids,
        }
        if body.return_token_strs:
            tokenizer = service.need_tokenizer()
            found["token_strs"] = [tokenizer.token(index) for index in ids]
        return _json(request, found)

    def _encode(self, body: TokenizeRequest) -> list[int]:
        if (body.prompt is None) == (body.messages is None):
            raise RequestError("Give either prompt or messages.", param="prompt")
        if body.messages is not None:
            return self._encode_chat(body)
        assert body.prompt is not None
        added = body.add_special_tokens is not False
        return self._service.need_tokenizer().encode(body.prompt, add_special_tokens=added)

    def _encode_chat(self, body: TokenizeRequest) -> list[int]:
        names = Conversation.model_fields
        given = {name: getattr(body, name) for name in names}
        if not body.messages:
            raise RequestError("messages is empty; send at least one.", param="messages")
        chat = Conversation(**given)
        chat.check_roles()
        text, ids = self._service.backend.render_chat(chat.messages, **chat.template_options())
        if body.add_special_tokens:
            return self._service.need_tokenizer().encode(text)
        return ids

    async def detokenize(self, request: Request) -> Response:
        """The text of token ids."""
        service = self._service
        body = await read_body(request, DetokenizeRequest, service.settings)
        service.check_model(body.model)
        tokenizer = service.need_tokenizer()
        text = await asyncio.to_thread(tokenizer.decode, body.tokens, skip_special_tokens=False)
        return _json(request, {"prompt": text})

    async def info(self, request: Request) -> Response:
        """The tokenizer's size and special tokens."""
        tokenizer = self._service.need_tokenizer()
        eos, bos = tokenizer.eos_token_id, tokenizer.bos_token_id
        found = {
            "tokenizer_class": type(tokenizer).__name__,
            "vocab_size": tokenizer.size,
            "eos_token": None if eos is None else tokenizer.token(eos),
            "bos_token": None if bos is None else tokenizer.token(bos),
            "pad_token": None,
            "eos_token_id": eos,
            "bos_token_id": bos,
            "model_max_length": self._service.max_model_len,
            "has_chat_template": tokenizer.chat_template is not None,
            "truncation_side": "left",
            "added_tokens_decoder": {
                str(index): tokenizer.token(index) for index in sorted(tokenizer.special_ids)
            },
        }
        return Response(dump(found), media_type="application/json")


def _json(request: Request, found: dict[str, Any]) -> Response:
    headers = ignored_header(request.state.ignored)
    return Response(dump(found), 200, headers, "application/json")
