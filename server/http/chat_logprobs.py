"""Log-probabilities as chats show them: a list with one entry per token."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jackfield.core.api.output import Logprob
    from jackfield.core.front.outputs import Logprobs
    from jackfield.core.text.tokenizer import Tokenizer


def chat_logprobs(
    ids: Sequence[int], scores: "Iterable[Logprobs]", top: int, tokenizer: "Tokenizer | None"
) -> dict[str, Any]:
    """The tokens of an answer, or of a piece of it, each with its `top` likeliest rivals."""
    return {
        "content": [
            _entry(token, found[token], tokenizer) | {"top_logprobs": _top(found, top, tokenizer)}
            for token, found in zip(ids, scores, strict=True)
        ],
        "refusal": None,
    }


def _top(found: "Logprobs", top: int, tokenizer: "Tokenizer | None") -> list[dict[str, Any]]:
    ranked = sorted(found.items(), key=lambda item: item[1].rank)[:top]
    return [_entry(token, score, tokenizer) for token, score in ranked]


def _entry(token: int, score: "Logprob", tokenizer: "Tokenizer | None") -> dict[str, Any]:
    text = score.decoded_token or ""
    data = text.encode()
    if tokenizer is not None and tokenizer.byte_level and token not in tokenizer.special_ids:
        data = tokenizer.token_bytes(token)
    return {"token": text, "logprob": score.logprob, "bytes": list(data)}


def prompt_logprobs(scores: "Sequence[Logprobs | None] | None") -> list[dict[str, Any] | None]:
    """Of a prompt: by token id at each place, null at the first."""
    return [
        None if found is None else {str(token): score._asdict() for token, score in found.items()}
        for found in scores or ()
    ]
