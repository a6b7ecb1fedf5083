"""What /openapi.json says of the bodies of answers."""

from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST

Schema = dict[str, Any]
JSON = "application/json"
TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
NUMBER: Schema = {"type": "number"}
COUNT: Schema = {"type": "integer", "minimum": 0}


def entity(**fields: Schema) -> Schema:
    """An object that has at least these fields."""
    return {"type": "object", "required": list(fields), "properties": fields}


def each(items: Schema, **limits: int) -> Schema:
    """A list."""
    return {"type": "array", "items": items, **limits}


def maybe(schema: Schema) -> Schema:
    """This, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


ERROR = entity(error=entity(message=TEXT, type=TEXT, param=maybe(TEXT), code=maybe(TEXT)))
USAGE = entity(
    prompt_tokens=COUNT, completion_tokens=COUNT, total_tokens=COUNT,
    prompt_tokens_details=entity(cached_tokens=COUNT),
)  # fmt: skip
FINISH: Schema = {"type": "string", "minLength": 1}
COMPLETION_SCORES = entity(
    tokens=each(TEXT), token_logprobs=each(maybe(NUMBER)), text_offset=each(COUNT),
    top_logprobs=each(maybe({"type": "object", "additionalProperties": NUMBER})),
)  # fmt: skip
COMPLETION = entity(
    id=TEXT, object={"const": "text_completion"}, created=COUNT, model=TEXT, usage=USAGE,
    choices=each(
        entity(index=COUNT, text=TEXT, logprobs=maybe(COMPLETION_SCORES), finish_reason=FINISH),
        minItems=1,
    ),
)  # fmt: skip
SCORE = entity(token=TEXT, logprob=NUMBER, bytes=maybe(each(COUNT)))
CHAT_SCORES = entity(
    content=maybe(
        each(entity(token=TEXT, logprob=NUMBER, bytes=maybe(each(COUNT)), top_logprobs=each(SCORE)))
    )
)
CHAT = entity(
    id=TEXT, object={"const": "chat.completion"}, created=COUNT, model=TEXT, usage=USAGE,
    choices=each(
        entity(
            index=COUNT, logprobs=maybe(CHAT_SCORES), finish_reason=FINISH,
            message=entity(role={"const": "assistant"}, content=maybe(TEXT)),
        ),
        minItems=1,
    ),
)  # fmt: skip
MODEL = entity(
    id=TEXT, object={"const": "model"}, created=COUNT, owned_by=TEXT, max_model_len=COUNT
)
TOKENIZER = entity(
    tokenizer_class=TEXT, vocab_size=COUNT, eos_token=maybe(TEXT), bos_token=maybe(TEXT),
    eos_token_id=maybe(COUNT), bos_token_id=maybe(COUNT), model_max_length=COUNT,
    has_chat_template=FLAG,
)  # fmt: skip
DECISIONS = entity(
    id=TEXT, decisions=each(entity(action=TEXT, code=TEXT, reason=TEXT, plugin=TEXT), minItems=1),
    summary=entity(
        answers=each(entity(answer=COUNT, state=TEXT, timeline=each(entity(state=TEXT, code=TEXT))))
    ),
)  # fmt: skip
LISTING = entity(
    counts=entity(running=COUNT, waiting=COUNT, parked=COUNT), free_seats=COUNT, free_blocks=COUNT,
    requests=each(entity(id=TEXT, tenant=TEXT, state=TEXT, code=TEXT, reason=TEXT, plugin=TEXT)),
)  # fmt: skip

# An event: its data is a chunk in JSON, or [DONE].
STREAM = {"text/event-stream": {"schema": entity(data={"type": "string", "minLength": 1})}}
PLAIN = {CONTENT_TYPE_LATEST.partition(";")[0]: {"schema": TEXT}}


def json(schema: Schema) -> Schema:
    """The `content` of an answer in JSON."""
    return {JSON: {"schema": schema}}


ANSWERS: dict[str, Schema] = {
    "/v1/completions": json(COMPLETION) | STREAM,
    "/v1/chat/completions": json(CHAT) | STREAM,
    "/tokenize": json(entity(count=COUNT, max_model_len=COUNT, tokens=each(COUNT))),
    "/detokenize": json(entity(prompt=TEXT)),
    "/v1/models": json(entity(object={"const": "list"}, data=each(MODEL, minItems=1))),
    "/v1/models/{model_id}": json(MODEL),
    "/tokenizer_info": json(TOKENIZER),
    "/live": json(entity(status=TEXT, meaning=TEXT)),
    "/health": json(entity(status=TEXT)),
    "/ready": json(entity(status=TEXT)),
    "/version": json(entity(version=TEXT)),
    "/metrics": PLAIN,
    "/reset_prefix_cache": json(entity(reset=FLAG)),
    "/debug/requests": json(LISTING),
    "/debug/requests/{request_id}": json(DECISIONS),
}
"""By path: the `content` of the answer 200."""
