"""Ids to text while they arrive, never half a character."""

import codecs
from collections.abc import Sequence
from typing import Protocol

from jackfield.core.text.tokenizer import Tokenizer

REPLACEMENT = "\ufffd"
CONTEXT = 4


class _Decoding(Protocol):
    def push(self, ids: list[int]) -> str: ...

    def finish(self) -> str: ...


class Detokenizer:
    """The text of one answer. All deltas together are what decoding all ids at once gives.

    `prompt_ids` matter only for tokenizers that drop the space before the first word of a text:
    after a prompt, the answer's first word is not that word. For the others the result is
    `decode(answer)`. Costs about 1 microsecond a token with byte-level BPE; else two decodes of
    a handful of tokens, about 5. Used by one thread at a time.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        skip_special_tokens: bool = True,
        prompt_ids: Sequence[int] = (),
    ) -> None:
        self._hidden = tokenizer.special_ids if skip_special_tokens else frozenset()
        self._decoding: _Decoding
        if tokenizer.byte_level:
            self._decoding = _ByteLevelDecoding(tokenizer)
        else:
            context = _last_shown(tokenizer, prompt_ids, self._hidden)
            self._decoding = _WindowDecoding(tokenizer, context)

    def push(self, ids: Sequence[int]) -> str:
        """The text that `ids` complete. A character that still lacks bytes is held back."""
        return self._decoding.push([index for index in ids if index not in self._hidden])

    def finish(self) -> str:
        """What was held back; bytes that never became a character are U+FFFD."""
        return self._decoding.finish()


class _ByteLevelDecoding:
    """Tokens are bytes of UTF-8."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, ids: list[int]) -> str:
        return self._utf8.decode(b"".join(map(self._tokenizer.token_bytes, ids)))

    def finish(self) -> str:
        return self._utf8.decode(b"", final=True)


class _WindowDecoding:
    """Any other tokenizer: decode the new tokens after a few old ones, and take the difference.

    A run of byte tokens is one unit to such decoders (one broken byte breaks them all), so it is
    held until a token that is not a byte ends it.
    """

    def __init__(self, tokenizer: Tokenizer, context: list[int]) -> None:
        self._tokenizer = tokenizer
        self._context = context
        self._pending: list[int] = []
        self._closed = 0  # how many of the pending ids come before an open run of bytes

    def push(self, ids: list[int]) -> str:
        for index in ids:
            self._append(index)
        if not self._closed:
            return ""
        text = self._difference(self._pending[: self._closed])
        if self._tokenizer.splits_characters and text.endswith(REPLACEMENT):
            return ""
        self._settle(self._closed)
        return text

    def finish(self) -> str:
        text = self._difference(self._pending)
        self._settle(len(self._pending))
        return text

    def _append(self, index: int) -> None:
        token = self._tokenizer.token(index)
        if token is None:
            return
        self._pending.append(index)
        if not _is_byte(token):
            self._closed = len(self._pending)

    def _difference(self, ids: list[int]) -> str:
        before = self._decode(self._context)
        return self._decode(self._context + ids)[len(before) :]

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=False)

    def _settle(self, count: int) -> None:
        self._context = (self._context + self._pending[:count])[-CONTEXT:]
        del self._pending[:count]
        self._closed = 0


def _last_shown(tokenizer: Tokenizer, ids: Sequence[int], hidden: frozenset[int]) -> list[int]:
    """The end of the prompt, without bytes, which would join the first bytes of the answer."""
    shown: list[int] = []
    for index in reversed(ids):
        if len(shown) == CONTEXT:
            break
        token = tokenizer.token(index)
        if index not in hidden and token and not _is_byte(token):
            shown.insert(0, index)
    return shown


def _is_byte(token: str) -> bool:
    return len(token) == 6 and token.startswith("<0x") and token.endswith(">")
