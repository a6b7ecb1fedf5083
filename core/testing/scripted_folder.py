"""Folders of scripted models: a byte-level tokenizer, and answers as pieces of text."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers
import torch
from safetensors.torch import save_file
from tokenizers import decoders, models, pre_tokenizers, processors

from jackfield.core.testing.scripted_model import ANCHOR
from jackfield.core.text.byte_level import BYTE_OF

Piece = str | bytes
"""The text of one token, or its bytes where they are no whole characters."""

SPECIAL = ("<end>", "<turn>", "<begin>")
END, TURN, BEGIN = range(3)
CHARACTER_OF = {byte: character for character, byte in BYTE_OF.items()}


def write_scripted_model(
    folder: Path,
    script: Mapping[str, Sequence[Piece]],
    /,
    *,
    template: str | None = None,
    begin: bool = False,
    generation: Mapping[str, Any] | None = None,
    **config: Any,
) -> Path:
    """Write a model that answers a prompt with the pieces listed for its first character.

    Every byte is a token, every piece one more; `SPECIAL` come first, and may be keys and pieces.
    template: a chat template. begin: the tokenizer puts `<begin>` before a text. generation: the
    content of generation_config.json. config: entries of config.json that replace those here.
    """
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = _vocabulary(piece for answer in script.values() for piece in answer)
    ids = {
        vocabulary[_spelled(first)]: [vocabulary[_spelled(piece)] for piece in answer]
        for first, answer in script.items()
    }
    settings: dict[str, Any] = {
        "architectures": ["Scripted"], "vocab_size": len(vocabulary), "eos_token_id": END,
        "max_position_embeddings": 512, "script": ids, "dtype": "float32",
    }  # fmt: skip
    special: dict[str, Any] = {"eos_token": SPECIAL[END], "bos_token": SPECIAL[BEGIN]}
    if template is not None:
        special["chat_template"] = template
    documents = {"config.json": settings | config, "tokenizer_config.json": special}
    if generation is not None:
        documents["generation_config.json"] = dict(generation)
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document))
    _tokenizer(vocabulary, begin).save(str(folder / "tokenizer.json"))
    save_file({ANCHOR: torch.ones(1)}, folder / "model.safetensors")
    return folder


def byte_id(character: str) -> int:
    """The id of the token of one ASCII character."""
    return len(SPECIAL) + ord(character)


def _vocabulary(pieces: Iterable[Piece]) -> dict[str, int]:
    spelled = [*SPECIAL, *(CHARACTER_OF[byte] for byte in range(256)), *map(_spelled, pieces)]
    return {token: index for index, token in enumerate(dict.fromkeys(spelled))}


def _spelled(piece: Piece) -> str:
    if isinstance(piece, str) and piece in SPECIAL:
        return piece
    data = piece.encode() if isinstance(piece, str) else piece
    return "".join(CHARACTER_OF[byte] for byte in data)


def _tokenizer(vocabulary: dict[str, int], begin: bool) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.BPE(vocabulary, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(list(SPECIAL))
    if begin:
        backend.post_processor = processors.TemplateProcessing(
            single=f"{SPECIAL[BEGIN]} $A", special_tokens=[(SPECIAL[BEGIN], BEGIN)]
        )
    return backend
