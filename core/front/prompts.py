"""The forms a prompt may have, turned into token ids."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jackfield.core.api import RequestError, TokenizerError
from jackfield.core.text.tokenizer import Tokenizer

PromptInput = str | Sequence[int] | Mapping[str, Any]
"""A text, token ids, `{"prompt": text}` or `{"prompt_token_ids": ids}`."""

KEYS = ("prompt", "prompt_token_ids")


class Prompt(NamedTuple):
    """A prompt as the engine takes it; text is None where ids were given."""

    text: str | None
    ids: list[int]


def as_list(prompts: Any) -> list[Any]:
    """One prompt or many: many is a list whose entries are no integers."""
    if isinstance(prompts, str | Mapping):
        return [prompts]
    if not isinstance(prompts, Sequence):
        raise RequestError(
            f"prompts must be a text, a list of token ids, a dict or a list of these, "
            f"not {type(prompts).__name__}",
            param="prompt",
        )
    single = bool(prompts) and all(isinstance(entry, int) for entry in prompts)
    return [prompts] if single else list(prompts)


def read(prompt: Any, tokenizer: Tokenizer | None) -> Prompt:
    """Encode a text, or take ids as they are (the engine checks each of them)."""
    if isinstance(prompt, Mapping):
        return _read_mapping(prompt, tokenizer)
    if isinstance(prompt, str):
        return Prompt(prompt, need(tokenizer, "a text prompt").encode(prompt))
    if isinstance(prompt, Sequence):
        return Prompt(None, list(prompt))
    raise RequestError(
        f"a prompt must be a text, token ids or a dict, not {type(prompt).__name__}",
        param="prompt",
    )


def _read_mapping(prompt: Mapping[str, Any], tokenizer: Tokenizer | None) -> Prompt:
    unknown = sorted(set(prompt) - set(KEYS))
    if unknown or not prompt:
        raise RequestError(
            f"a prompt dict has {' or '.join(KEYS)}; got {', '.join(unknown) or 'nothing'}",
            param="prompt",
        )
    ids, text = prompt.get("prompt_token_ids"), prompt.get("prompt")
    if ids is None:
        return read("" if text is None else text, tokenizer)
    if isinstance(ids, str) or not isinstance(ids, Sequence):
        raise RequestError(f"prompt_token_ids must be a list, not {ids!r}", param="prompt")
    return Prompt(text, list(ids))


def need(tokenizer: Tokenizer | None, what: str) -> Tokenizer:
    """The tokenizer, or an error that says why there is none."""
    if tokenizer is None:
        raise TokenizerError(
            f"{what} needs a tokenizer, and this model was loaded without one; give token ids, "
            f"or load it with a tokenizer.json and without skip_tokenizer_init"
        )
    return tokenizer


def banned_sequences(words: Sequence[str], tokenizer: Tokenizer | None) -> list[list[int]]:
    """Token sequences of bad words, at the start of a word and inside a text."""
    if not words:
        return []
    coder = need(tokenizer, "bad_words")
    found: dict[tuple[int, ...], None] = {}
    for word in words:
        for text in (word.lstrip(), " " + word.lstrip()):
            found[tuple(coder.encode(text, add_special_tokens=False))] = None
    return [list(ids) for ids in found if ids]
