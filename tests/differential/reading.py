"""An answer in the form in which two servers are compared: names, times and chunking left out."""

from itertools import chain
from typing import Any

from asking import Answer

Facts = dict[str, Any]
Place = dict[str, Any]

VARYING = ("id", "created", "model", "object", "system_fingerprint")
LISTS = ("tokens", "token_logprobs", "top_logprobs", "text_offset", "content")


def facts(answer: Answer) -> Facts:
    """What an answer says, by kind: a kind that is equal on both sides is no difference."""
    if answer["status"] >= 400 or answer["status"] == 0:
        return {}
    return _streamed(answer["frames"]) if "frames" in answer else _whole(answer["body"])


def keys(answer: Answer) -> set[str]:
    """Every path of keys with a value that is not null, list places as `[]`."""
    found: set[str] = set()
    for document in answer.get("frames", [answer.get("body")]):
        _walk(document, "", found)
    return found


def _walk(value: Any, path: str, found: set[str]) -> None:
    if isinstance(value, dict):
        for name, inner in value.items():
            if path.endswith(("top_logprobs[]", "prompt_logprobs[]")):
                continue
            if inner is not None:
                found.add(f"{path}.{name}".lstrip("."))
            _walk(inner, f"{path}.{name}", found)
    elif isinstance(value, list):
        for inner in value:
            _walk(inner, f"{path}[]", found)


def _whole(body: Any) -> Facts:
    if not isinstance(body, dict) or "choices" not in body:
        return {"body": body}
    choices = [_choice(choice) for choice in body["choices"]]
    return {
        **_columns(choices),
        "usage": _usage(body["usage"]),
        "prompt_logprobs": [body.get("prompt_logprobs"), _column(choices, "prompt_logprobs")],
        "prompt_token_ids": [body.get("prompt_token_ids"), _column(choices, "prompt_token_ids")],
    }


def _choice(choice: Place) -> Place:
    message = choice.get("message")
    text = choice.get("text") if message is None else message["content"]
    role = None if message is None else message["role"]
    return {**choice, "text": text, "role": role}


def _columns(choices: list[Place]) -> Facts:
    names = ("index", "text", "role", "finish_reason", "stop_reason", "token_ids", "logprobs")
    return {name: _column(choices, name) for name in names}


def _column(choices: list[Place], name: str) -> list[Any]:
    return [choice.get(name) for choice in choices]


def _usage(usage: Any) -> Any:
    names = ("prompt_tokens", "completion_tokens", "total_tokens")
    return usage and {name: usage[name] for name in names}


def _streamed(frames: list[Any]) -> Facts:
    """As of a whole answer, and how the frames follow each other."""
    documents = [frame for frame in frames if isinstance(frame, dict)]
    errors = [document["error"] for document in documents if "error" in document]
    pieces = [piece for document in documents for piece in document.get("choices", ())]
    indices = sorted({piece["index"] for piece in pieces})
    choices = [_joined([piece for piece in pieces if piece["index"] == at]) for at in indices]
    usages = [document["usage"] for document in documents if document.get("choices") == []]
    first = documents[0] if documents else {}
    return {
        **_columns(choices),
        "usage": _usage(usages[-1]) if usages else None,
        "prompt_logprobs": [first.get("prompt_logprobs"), _column(choices, "prompt_logprobs")],
        "prompt_token_ids": [first.get("prompt_token_ids"), _column(choices, "prompt_token_ids")],
        "errors": len(errors),
        "frames": {at: _sequence(frames, at) for at in indices},
        "continuous usage": _continuous(documents),
    }


def _joined(pieces: list[Place]) -> Place:
    """The pieces of one choice as the choice."""
    chosen = [_piece(piece) for piece in pieces]
    ids = [one["token_ids"] for one in chosen if one.get("token_ids") is not None]
    scores = [one["logprobs"] for one in chosen if one.get("logprobs") is not None]
    return {
        "index": pieces[0]["index"],
        "text": "".join(one["text"] or "" for one in chosen),
        "role": _last(chosen, "role"),
        "finish_reason": _last(chosen, "finish_reason"),
        "stop_reason": _last(chosen, "stop_reason"),
        "token_ids": list(chain(*ids)) if ids else None,
        "logprobs": _joined_scores(scores) if scores else None,
        "prompt_token_ids": _last(chosen, "prompt_token_ids"),
        "prompt_logprobs": _last(chosen, "prompt_logprobs"),
    }


def _piece(piece: Place) -> Place:
    delta = piece.get("delta")
    if delta is None:
        return piece | {"role": None}
    return piece | {"text": delta.get("content"), "role": delta.get("role")}


def _last(pieces: list[Place], name: str) -> Any:
    told = [piece[name] for piece in pieces if piece.get(name) is not None]
    return told[-1] if told else None


def _joined_scores(scores: list[Place]) -> Place:
    names = [name for name in LISTS if name in scores[0]]
    return {name: list(chain(*(one[name] for one in scores))) for name in names}


def _sequence(frames: list[Any], index: int) -> list[str]:
    """The kinds of frames that belong to one choice or to all; runs of content count once."""
    kinds: list[str] = []
    for frame in frames:
        for kind in _kinds(frame, index):
            if not (kind == "content" and kinds[-1:] == ["content"]):
                kinds.append(kind)
    return kinds


def _kinds(frame: Any, index: int) -> list[str]:
    if frame == "[DONE]":
        return ["done"]
    if "error" in frame:
        return ["error"]
    if not frame["choices"]:
        return ["usage"]
    return [_kind(piece) for piece in frame["choices"] if piece["index"] == index]


def _kind(piece: Place) -> str:
    delta = piece.get("delta", {})
    if piece.get("finish_reason") is not None:
        return "finish"
    return "role" if delta.get("role") else "content"


def _continuous(documents: list[Any]) -> Any:
    """Of usage in chunks with a choice: whether it is there, and the last one."""
    told = [one.get("usage") for one in documents if one.get("choices")]
    return [bool(told) and all(one is not None for one in told), _usage(told[-1] if told else None)]
