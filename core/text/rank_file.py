"""Byte-level BPE of a file of ranks: a token in base64 and its rank a line, as Qwen1 has it."""

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from jackfield.core.api.errors import TokenizerError
from jackfield.core.text.byte_level import BYTE_OF

RANKS = "qwen.tiktoken"
PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""What no token reaches beyond."""
END, START_TURN, END_TURN = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
NUM_EXTRA = 205
SPECIAL = (END, START_TURN, END_TURN, *(f"<|extra_{index}|>" for index in range(NUM_EXTRA)))
"""Behind the ranks, in this order."""
TEMPLATE = (
    "{% for message in messages %}"
    "{% if loop.first and message['role'] != 'system' %}"
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CHARACTER_OF = {byte: character for character, byte in BYTE_OF.items()}


def has_ranks_only(folder: Path) -> bool:
    """Whether that file is all there is of a tokenizer."""
    return (folder / RANKS).is_file() and not (folder / "tokenizer.json").is_file()


def rank_backend(folder: Path) -> tokenizers.Tokenizer:
    """The tokenizer of the file. Raises TokenizerError that names it and the line."""
    ranks = read_ranks(folder / RANKS)
    vocabulary = {_spelt(token): rank for token, rank in ranks.items()}
    model = models.BPE(vocab=vocabulary, merges=list(_merges(ranks)), ignore_merges=True)
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PIECES), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])  # fmt: skip
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(text, normalized=False) for text in SPECIAL])
    return backend


def rank_config(generation: Mapping[str, Any]) -> dict[str, Any]:
    """What such a folder means but does not say. generation: generation_config.json."""
    chats = generation.get("chat_format") == "chatml"
    if not chats:
        return {"eos_token": END}
    return {"eos_token": END_TURN, "chat_template": TEMPLATE}


def read_ranks(file: Path) -> dict[bytes, int]:
    """By token, in the order of ranks, which are those from 0 on."""
    try:
        lines = file.read_text("ascii").splitlines()
        ranks = dict(_entry(line) for line in lines if line.strip())
    except (OSError, ValueError, binascii.Error) as error:
        raise TokenizerError(
            f"{file} is no file of ranks, a token in base64 and a number a line ({error}); fetch "
            f"it again."
        ) from error
    if sorted(ranks.values()) != list(range(len(ranks))) or len(ranks) < len(BYTE_OF):
        raise TokenizerError(
            f"{file} has {len(ranks)} tokens whose ranks are not those from 0 on, or lacks bytes; "
            f"fetch it again."
        )
    return ranks


def _entry(line: str) -> tuple[bytes, int]:
    token, rank = line.split()
    return base64.b64decode(token, validate=True), int(rank)


def _merges(ranks: Mapping[bytes, int]) -> Iterator[tuple[str, str]]:
    """Every pair of tokens that is one, those that are merged first at the front."""
    for token in sorted(ranks, key=ranks.__getitem__):
        for left, right in _halves(token, ranks):
            yield _spelt(left), _spelt(right)


def _halves(token: bytes, ranks: Mapping[bytes, int]) -> Sequence[tuple[bytes, bytes]]:
    pairs = ((token[:end], token[end:]) for end in range(1, len(token)))
    return [pair for pair in pairs if pair[0] in ranks and pair[1] in ranks]


def _spelt(token: bytes) -> str:
    return "".join(map(CHARACTER_OF.__getitem__, token))
