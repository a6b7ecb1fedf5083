"""What /openapi.json says of the fields of bodies beside their types: limits that are checked."""

from typing import Any

from jackfield.core.api.sampling import MAX_LOGPROBS, MAX_SEED, MAX_STOPS
from jackfield.server.http.chat_request import ROLES, TAKEN

Schema = dict[str, Any]
MAX_INTEGER = 2**31 - 1


def between(low: float, high: float) -> Schema:
    """Limits that are allowed themselves."""
    return {"minimum": low, "maximum": high}


WORD: Schema = {"type": "string", "minLength": 1}
WORDS: Schema = {"items": WORD, "maxItems": MAX_STOPS}
ID: Schema = {"type": "integer", **between(0, MAX_INTEGER)}
PART: Schema = {
    "type": "object",
    "required": ["type", "text"],
    "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
}
CONTENT: Schema = {
    "anyOf": [
        {"type": "string"},
        {"type": "array", "items": PART},
        {"type": "null"},
    ]
}
MESSAGE: Schema = {
    "type": "object",
    "required": ["role"],
    "properties": {"role": {"enum": list(ROLES)}, "content": CONTENT},
}
FIELDS: dict[str, dict[str, Schema]] = {
    "n": {"integer": between(1, 1024)},
    "temperature": {"number": between(0, 100)},
    "top_p": {"number": {"exclusiveMinimum": 0, "maximum": 1}},
    "top_k": {"integer": between(-1, MAX_INTEGER)},
    "min_p": {"number": between(0, 1)},
    "presence_penalty": {"number": between(-2, 2)},
    "frequency_penalty": {"number": between(-2, 2)},
    "repetition_penalty": {"number": between(0.01, 100)},
    "seed": {"integer": between(-MAX_SEED - 1, MAX_SEED)},
    "max_tokens": {"integer": between(0, MAX_INTEGER)},
    "max_completion_tokens": {"integer": between(1, MAX_INTEGER)},
    "min_tokens": {"integer": between(0, MAX_INTEGER)},
    "stop": {"string": {"minLength": 1}, "array": WORDS},
    "bad_words": {"array": WORDS},
    "stop_token_ids": {"array": {"items": ID}},
    "allowed_token_ids": {"array": {"items": ID, "minItems": 1}},
    "logprobs": {"integer": between(0, MAX_LOGPROBS)},
    "prompt_logprobs": {"integer": between(0, MAX_LOGPROBS)},
    "best_of": {"integer": between(1, 1024)},
    "suffix": {"string": {"maxLength": 0}},
    "logit_bias": {
        "object": {
            "propertyNames": {"pattern": "^[0-9]{1,10}$"},
            "additionalProperties": {"type": "number", **between(-100, 100)},
        }
    },
    "messages": {"array": {"items": MESSAGE, "minItems": 1}},
    "functions": {"array": {"maxItems": 0}},
    "truncate_prompt_tokens": {"integer": {"not": {"const": 0}}},
    "spaces_between_special_tokens": {"boolean": {"const": True}},
}
"""By field and type: what a value must keep to. A body that lacks the field is left alone."""
OTHERS: dict[str, dict[str, dict[str, Schema]]] = {
    "ChatRequest": {
        "max_tokens": {"integer": {"minimum": 1}},
        "chat_template_kwargs": {"object": {"propertyNames": {"not": {"enum": sorted(TAKEN)}}}},
    },
}
"""By body: where it differs."""


def narrow(name: str, schema: Schema) -> None:
    """Add the limits to the schema of the body `name`, in place."""
    for limits in (FIELDS, OTHERS.get(name, {})):
        for field, by_type in limits.items():
            found = schema["properties"].get(field, {})
            for option in found.get("anyOf", [found]):
                option.update(by_type.get(option.get("type"), {}))
