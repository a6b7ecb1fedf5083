"""A tokenizer of ranks alone gives the ids that its merges by lowest rank mean."""

import base64
import json
import unicodedata
from pathlib import Path

import pytest
import regex
import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from jackfield.core.api.errors import TokenizerError
from jackfield.core.text.byte_level import token_bytes
from jackfield.core.text.rank_file import PIECES, RANKS, SPECIAL
from jackfield.core.text.tokenizer import Tokenizer

CORPUS = ["the cat sat on the mat, aaaa aaaaaa", "one two three: 你好世界 ñandú", "we're I'LL"] * 3
TEXTS = [
    "the cat's mat, aaaaaaa\n\n  12 ñandú",
    "n\u0303andu\u0301 你好\uff0c世界 🙂", "  \t\r\n", "WE'RE",
    "tthhee caatt aaa aa a", "", "zyx", "qjkvw", "qjkvww",
]  # fmt: skip
Ranks = dict[bytes, int]


def trained() -> Ranks:
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=330, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(CORPUS, trainer)
    found = sorted(backend.get_vocab().items(), key=lambda entry: entry[1])
    tokens = [token_bytes(token) for token, _ in found]
    # Of "zyx" the first two go together; no two tokens make the last one, but it is a piece.
    tokens += [b"zy", b"yx", b"qjkvw"]
    return {token: rank for rank, token in enumerate(tokens)}


def write(folder: Path, ranks: Ranks, generation: dict[str, str] | None = None) -> Path:
    lines = [f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items()]
    (folder / RANKS).write_text("".join(lines))
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    return folder


def by_hand(text: str, ranks: Ranks) -> list[int]:
    ids = []
    for piece in regex.findall(PIECES, unicodedata.normalize("NFC", text)):
        parts = [bytes([byte]) for byte in piece.encode()]
        while piece.encode() not in ranks:
            pairs = [ranks.get(parts[i] + parts[i + 1], 10**9) for i in range(len(parts) - 1)]
            if not pairs or min(pairs) == 10**9:
                break
            first = pairs.index(min(pairs))
            parts[first : first + 2] = [parts[first] + parts[first + 1]]
        else:
            parts = [piece.encode()]
        ids += [ranks[part] for part in parts]
    return ids


def test_ids_are_those_of_the_lowest_ranks(tmp_path: Path) -> None:
    ranks = trained()
    tokenizer = Tokenizer.load(write(tmp_path, ranks))
    assert max(map(len, ranks)) > 3
    for text in TEXTS:
        ids = tokenizer.encode(text)
        assert ids == by_hand(text, ranks), text
        assert tokenizer.decode(ids) == unicodedata.normalize("NFC", text)
    assert tokenizer.byte_level and tokenizer.size == len(ranks) + len(SPECIAL)


def test_special_tokens_and_chats(tmp_path: Path) -> None:
    ranks = trained()
    folder = write(tmp_path, ranks, {"chat_format": "chatml"})
    tokenizer = Tokenizer.load(folder)
    end = len(ranks)
    assert tokenizer.encode("<|endoftext|><|im_start|><|extra_204|>") == [end, end + 1, end + 207]
    assert tokenizer.eos_token_id == end + 2 and end + 1 in tokenizer.special_ids
    assert tokenizer.chat_template is not None
    text = tokenizer.chat_template.render([{"role": "user", "content": "hi"}])
    assert text == (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )
    own = tokenizer.chat_template.render([{"role": "system", "content": "x"}])
    assert own.startswith("<|im_start|>system\nx<|im_end|>\n<|im_start|>assistant")
    plain = Tokenizer.load(write(tmp_path, ranks, {"chat_format": "raw"}))
    assert plain.chat_template is None and plain.eos_token_id == end


def test_a_tokenizer_json_goes_first(tmp_path: Path) -> None:
    write(tmp_path, trained())
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(TokenizerError, match=r"tokenizer\.json is broken"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("line", ["x", "!! 0", "YQ== x", "é 0", "YQ== 400", ""])
def test_broken_files_are_named(tmp_path: Path, line: str) -> None:
    write(tmp_path, {} if not line else trained())
    with (tmp_path / RANKS).open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(TokenizerError, match=RANKS):
        Tokenizer.load(tmp_path)
