"""Text to token ids and back."""

import json
from collections.abc import Sequence
from pathlib import Path

import tokenizers

from jackfield.core.api.errors import RequestError
from jackfield.core.text.byte_level import token_bytes
from jackfield.core.text.template import ChatTemplate
from jackfield.core.text.tokenizer_files import (
    extra_special_texts,
    read_backend,
    read_config,
    read_templates,
    special_token_texts,
)

MAX_ID = 2**32 - 1


class Tokenizer:
    """The tokenizer of one model. Never changed after loading, so any thread may use it.

    size: ids run from 0 to size - 1, added tokens included.
    special_ids: what `skip_special_tokens` leaves out.
    byte_level: whether the text of ids is the UTF-8 of their joined bytes, and nothing more.
    splits_characters: whether several tokens that are no byte tokens may make one character.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        special_tokens: dict[str, str] | None = None,
        chat_template: ChatTemplate | None = None,
    ) -> None:
        """`special_tokens` by name (eos_token, ...); they and `backend` must be final."""
        self._backend = backend
        self._bytes: dict[int, bytes] = {}
        names = special_tokens or {}
        added = backend.get_added_tokens_decoder()
        self.special_ids = frozenset(index for index, token in added.items() if token.special)
        self.size = max(backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        self.bos_token_id = self._id_of(names.get("bos_token"))
        self.eos_token_id = self._id_of(names.get("eos_token"))
        self.chat_template = chat_template
        decoders = _decoder_kinds(backend)
        self.byte_level = decoders in (["ByteLevel"], ["ByteLevel", "Fuse"])
        self._longest = max(map(len, backend.get_vocab(with_added_tokens=True)), default=1)
        self.splits_characters = "ByteLevel" in decoders

    def least_tokens(self, text: str) -> int:
        """How many tokens a text has at least, told without encoding it; 0 = it must be encoded.

        Every character of a token that works on bytes stands for one of them.
        """
        if not self.byte_level or self._backend.normalizer is not None:
            return 0
        return -(-len(text.encode("utf-8", "surrogatepass")) // self._longest)

    @classmethod
    def load(cls, folder: Path) -> "Tokenizer":
        """From tokenizer.json, tokenizer_config.json and chat template files in `folder`.

        Raises TokenizerError that names the file. Whether a text gets a begin token is decided
        by tokenizer.json alone: `add_bos_token` in the config does not count beside that file.
        """
        backend = read_backend(folder)
        config = read_config(folder)
        named = special_token_texts(config)
        _mark_special(backend, [*named.values(), *extra_special_texts(config)])
        templates = read_templates(folder, config)
        template = ChatTemplate(templates, special_tokens=named) if templates else None
        return cls(backend, special_tokens=named, chat_template=template)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The ids of `text`; special tokens spelt out in it become their ids.

        Raises RequestError(param="prompt") for text that is no valid Unicode.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise RequestError(
                f"The text has a lone surrogate at character {error.start}, which no encoding "
                f"can express; send valid Unicode.",
                param="prompt",
            ) from error
        return self._backend.encode(text, add_special_tokens=add_special_tokens).ids

    def spans(self, text: str, ids: Sequence[int]) -> list[tuple[int, int]] | None:
        """From which characters of `text` each of its `ids` comes: start and end.

        Tokens that were added to the text have equal ones. None if `text` has other ids.
        """
        for added in (True, False):
            found = self._backend.encode(text, add_special_tokens=added)
            if found.ids == list(ids):
                return list(found.offsets)
        return None

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of `ids`; ids that name no token add nothing, broken bytes become U+FFFD."""
        known = [index for index in ids if 0 <= index <= MAX_ID]
        return self._backend.decode(known, skip_special_tokens=skip_special_tokens)

    def token_text(self, index: int) -> str:
        """One token as a reader should see it, leading space included; "" for an unknown id."""
        text = self.decode([index], skip_special_tokens=False)
        token = self.token(index)
        if token is not None and token.startswith("▁") and not text.startswith(" "):
            return " " + text
        return text

    def token(self, index: int) -> str | None:
        """The vocabulary's own spelling of a token, or None when there is none."""
        return self._backend.id_to_token(index) if 0 <= index <= MAX_ID else None

    def token_bytes(self, index: int) -> bytes:
        """The bytes of a token of a `byte_level` tokenizer; empty for an unknown id."""
        found = self._bytes.get(index)
        if found is None:
            found = self._bytes[index] = token_bytes(self.token(index) or "")
        return found

    def _id_of(self, token: str | None) -> int | None:
        return None if token is None else self._backend.token_to_id(token)


def _mark_special(backend: tokenizers.Tokenizer, texts: list[str]) -> None:
    # Only tokens the vocabulary has: a new one would get an id that the model does not know.
    added = backend.get_added_tokens_decoder()
    special = {token.content for token in added.values() if token.special}
    known = [text for text in dict.fromkeys(texts) if backend.token_to_id(text) is not None]
    backend.add_special_tokens(
        [
            tokenizers.AddedToken(text, normalized=False, special=True)
            for text in known
            if text not in special
        ]
    )


def _decoder_kinds(backend: tokenizers.Tokenizer) -> list[str]:
    if backend.decoder is None:
        return []
    state = json.loads(backend.decoder.__getstate__())
    parts = state["decoders"] if state["type"] == "Sequence" else [state]
    return [part["type"] for part in parts]
