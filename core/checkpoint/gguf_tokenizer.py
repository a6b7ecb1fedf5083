"""The byte-level BPE tokenizer inside a GGUF file as tokenizer.json and tokenizer_config.json."""

from typing import Any

from gguf import TokenType
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from jackfield.core.api.errors import CheckpointError
from jackfield.core.checkpoint.gguf_file import GgufFile

# GGUF's name of the split before byte-level BPE -> whether each digit stands alone.
SPLITS_DIGITS = {"smollm": True, "gpt-2": False}
SPECIAL_TOKENS = {
    "bos_token": "tokenizer.ggml.bos_token_id",
    "eos_token": "tokenizer.ggml.eos_token_id",
    "unk_token": "tokenizer.ggml.unknown_token_id",
    "pad_token": "tokenizer.ggml.padding_token_id",
}


def build_tokenizer(file: GgufFile) -> Tokenizer:
    """The tokenizer that tokenizer.json describes. CheckpointError for other kinds than BPE."""
    kind = file.value("tokenizer.ggml.model", str)
    if kind != "gpt2":
        raise CheckpointError(f"{file.path}: tokenizer kind {kind!r} is not 'gpt2' (byte BPE).")
    tokens = file.value("tokenizer.ggml.tokens", list)
    pairs = [tuple(merge.split(" ", 1)) for merge in file.value("tokenizer.ggml.merges", list)]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    try:
        tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs))
    except Exception as error:  # the library raises plain Exception
        raise CheckpointError(f"{file.path}: broken BPE merges ({error}).") from error
    tokenizer.pre_tokenizer = _pre_tokenizer(file)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(_tokens_of_type(file, tokens, TokenType.CONTROL, special=True))
    tokenizer.add_tokens(_tokens_of_type(file, tokens, TokenType.USER_DEFINED, special=False))
    return tokenizer


def tokenizer_config(file: GgufFile) -> dict[str, Any]:
    """The content of tokenizer_config.json."""
    tokens = file.value("tokenizer.ggml.tokens", list)
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": file.value("llama.context_length", int),
        "clean_up_tokenization_spaces": False,
        "add_bos_token": file.value("tokenizer.ggml.add_bos_token", bool, False),
    }
    for name, key in SPECIAL_TOKENS.items():
        index = file.value(key, int, None)
        if index is not None:
            config[name] = tokens[index]
    template = file.value("tokenizer.chat_template", str, None)
    if template is not None:
        config["chat_template"] = template
    return config


def _pre_tokenizer(file: GgufFile) -> pre_tokenizers.PreTokenizer:
    name = file.value("tokenizer.ggml.pre", str)
    if name not in SPLITS_DIGITS:
        raise CheckpointError(
            f"{file.path}: unknown pre-tokenizer {name!r}; known: {', '.join(SPLITS_DIGITS)}."
        )
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if not SPLITS_DIGITS[name]:
        return byte_level
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])


def _tokens_of_type(
    file: GgufFile, tokens: list[str], wanted: TokenType, *, special: bool
) -> list[AddedToken]:
    kinds = file.value("tokenizer.ggml.token_type", list)
    return [
        AddedToken(token, normalized=False, special=special)
        for token, kind in zip(tokens, kinds, strict=True)
        if kind == wanted
    ]
