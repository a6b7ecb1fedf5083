"""Hooks of schemathesis: answers stay short, and what a schema cannot say is made to fit.

A body that is meant to be wrong is left as it is, but for numbers of tokens that are right.
"""

from typing import Any

import schemathesis

LONGEST = 4
FEWEST_IDS = 256
ID_FIELDS = ("stop_token_ids", "allowed_token_ids")
DEPENDENT = (
    "best_of", "min_tokens", "tools", "tool_choice", "response_format", "truncate_prompt_tokens",
)  # fmt: skip
"""What is right or wrong only together with other fields."""
Body = dict[str, Any]


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    """Called for every request, just before it is sent."""
    body = case.body
    if not isinstance(body, dict) or case.method.upper() != "POST":
        return
    if case.path.startswith("/v1/"):
        bound(body, "max_completion_tokens" if "messages" in body else "max_tokens")
    if case.meta is not None and case.meta.generation.mode.is_positive:
        fit(body)


def bound(body: Body, name: str) -> None:
    """Limit the tokens of an answer. A value of the wrong type or beyond its limits stays."""
    for field in ("max_tokens", "max_completion_tokens"):
        if whole(body.get(field)) and LONGEST < body[field] < 2**31:
            body[field] = LONGEST
    if body.get("max_tokens") is None and body.get("max_completion_tokens") is None:
        body[name] = LONGEST
    if whole(body.get("n")) and LONGEST < body["n"] <= 1024:
        body["n"] = LONGEST


def whole(value: Any) -> bool:
    """Whether JSON calls it an integer, which 2.0 is too."""
    return type(value) is int or (isinstance(value, float) and value.is_integer())


def fit(body: Body) -> None:
    """Fields that exclude each other, ids that the model has not, and what is too long."""
    if not body.get("stream"):
        body.pop("stream_options", None)
    else:
        body.pop("prompt_logprobs", None)
    if body.get("logprobs") is not True:
        body.pop("top_logprobs", None)
    if body.get("max_tokens") is not None:
        body.pop("max_completion_tokens", None)
    for field in DEPENDENT:
        body.pop(field, None)
    for field in (*ID_FIELDS, "tokens"):
        if isinstance(body.get(field), list):
            body[field] = known(body[field])
    fit_prompt(body)
    if isinstance(body.get("messages"), list):
        body["messages"] = [shortened(message) for message in body["messages"][:3]]
    if body.get("add_generation_prompt") or not continuable(body):
        body.pop("continue_final_message", None)
    if isinstance(body.get("logit_bias"), dict):
        bias = body["logit_bias"].items()
        body["logit_bias"] = {str(int(key) % FEWEST_IDS): value for key, value in bias}


def continuable(body: Body) -> bool:
    """Whether the last message has a text to go on with."""
    messages = body.get("messages")
    return bool(messages) and bool(messages[-1].get("content"))


def fit_prompt(body: Body) -> None:
    """A prompt in the tiny model's context, of ids that it has."""
    prompt = body.get("prompt")
    if isinstance(prompt, str):
        body["prompt"] = prompt[:40]
    elif isinstance(prompt, list):
        body["prompt"] = [one[:40] if isinstance(one, str) else known(one) for one in prompt[:20]]


def shortened(message: Body) -> Body:
    """A message of few tokens, with the content that most templates ask for."""
    content = message.get("content")
    if isinstance(content, list):
        content = [{**part, "text": part["text"][:8]} for part in content[:2]]
    return {**message, "content": "x" if content is None else content[:8]}


def known(ids: Any) -> Any:
    """Ids of tokens that every model has, one or a list."""
    return [known(one) for one in ids[:40]] if isinstance(ids, list) else int(ids) % FEWEST_IDS
