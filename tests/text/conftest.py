"""Small real tokenizers: byte-level BPE, and words with byte fallback as SentencePiece has them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers

from jackfield.core.text.tokenizer import Tokenizer

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CORPUS = [
    "the cat sat on the mat", "naïve café, the end.\n\nthe next",
    "日本語 日本語",
    "👩‍👩‍👧 🇫🇷 👍🏽",
]


def build_byte_level() -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(CORPUS * 4, trainer)
    backend.add_tokens([AddedToken("<\uff5ctool▁call\uff5c>", special=False, normalized=False)])
    return backend


def build_word_like() -> tokenizers.Tokenizer:
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", *"abcdehlorstw.", "\n", "he", "ll", "▁he", "▁hell", "▁hello", "▁w", "�"]
    merges = [("h", "e"), ("l", "l"), ("▁", "he"), ("▁he", "ll"), ("▁hell", "o"), ("▁", "w")]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    model = models.BPE(
        vocab=vocabulary, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True
    )
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    backend.add_special_tokens(["<unk>", "<s>", "</s>"])
    return backend


@pytest.fixture(scope="session")
def byte_level() -> Tokenizer:
    return Tokenizer(build_byte_level(), special_tokens={"eos_token": "<|im_end|>"})


@pytest.fixture(scope="session")
def word_like() -> Tokenizer:
    return Tokenizer(build_word_like(), special_tokens={"bos_token": "<s>", "eos_token": "</s>"})


@pytest.fixture
def model_folder(tmp_path: Path) -> Callable[..., Path]:
    """Writes a tokenizer and its config into a folder."""

    def write(backend: tokenizers.Tokenizer, **config: Any) -> Path:
        config.setdefault("tokenizer_class", "PreTrainedTokenizerFast")
        backend.save(str(tmp_path / "tokenizer.json"))
        text = json.dumps(config, ensure_ascii=False)
        (tmp_path / "tokenizer_config.json").write_text(text, encoding="utf-8")
        return tmp_path

    return write


@pytest.fixture(scope="session")
def byte_level_backend() -> Callable[[], tokenizers.Tokenizer]:
    return build_byte_level


@pytest.fixture(scope="session")
def word_like_backend() -> Callable[[], tokenizers.Tokenizer]:
    return build_word_like
