"""Text to ids and back, against the reference library."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import processors
from transformers import AutoTokenizer

from jackfield.core.api.errors import RequestError, TokenizerError
from jackfield.core.text.tokenizer import Tokenizer

KINDS = ["PreTrainedTokenizerFast", "LlamaTokenizerFast"]
Backend = Callable[[], tokenizers.Tokenizer]
Folder = Callable[..., Path]
TEXT = "the naïve cat 日本語 👩‍👩‍👧 <|im_start|>the<|im_end|>\n  x<\uff5ctool▁call\uff5c>"


def test_encode_and_decode_equal_the_reference(
    model_folder: Folder, byte_level_backend: Backend
) -> None:
    folder = model_folder(byte_level_backend(), eos_token="<|im_end|>", bos_token="<|im_start|>")
    ours, reference = Tokenizer.load(folder), AutoTokenizer.from_pretrained(folder)
    ids = ours.encode(TEXT)
    assert ids == reference(TEXT).input_ids
    for skip in (True, False):
        decoded = ours.decode(ids, skip_special_tokens=skip)
        assert decoded == reference.decode(ids, skip_special_tokens=skip)
    assert ours.size == len(reference)
    assert (ours.bos_token_id, ours.eos_token_id) == (1, 2)
    assert ours.special_ids == {0, 1, 2}


@pytest.mark.parametrize(
    ("kind", "add_bos", "processed"),
    list(product(KINDS, [None, True, False], [True, False])),
)
def test_begin_token_is_added_when_the_reference_adds_it(
    model_folder: Folder,
    word_like_backend: Backend,
    kind: str,
    add_bos: bool | None,
    processed: bool,
) -> None:
    backend = word_like_backend()
    if processed:
        backend.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)]
        )
    config: dict[str, Any] = {} if add_bos is None else {"add_bos_token": add_bos}
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    folder = model_folder(backend, tokenizer_class=kind, **names, **config)
    ours, reference = Tokenizer.load(folder), AutoTokenizer.from_pretrained(folder)
    for special in (True, False):
        expected = reference("hello wor", add_special_tokens=special).input_ids
        assert ours.encode("hello wor", add_special_tokens=special) == expected
    assert (ours.encode("hello")[0] == 1) is processed


def test_named_tokens_of_the_config_are_special(
    model_folder: Folder, byte_level_backend: Backend
) -> None:
    end = {"content": "<\uff5ctool▁call\uff5c>", "special": True, "__type": "AddedToken"}
    folder = model_folder(byte_level_backend(), eos_token=end, extra_special_tokens=["the"])
    ours, reference = Tokenizer.load(folder), AutoTokenizer.from_pretrained(folder)
    ids = ours.encode("sat<\uff5ctool▁call\uff5c>the mat")
    assert ids == reference("sat<\uff5ctool▁call\uff5c>the mat").input_ids
    assert ours.decode(ids) == reference.decode(ids, skip_special_tokens=True) == "sat mat"
    assert ours.eos_token_id == reference.eos_token_id


def test_older_special_tokens_file_is_read(
    model_folder: Folder, byte_level_backend: Backend
) -> None:
    folder = model_folder(byte_level_backend())
    names = {"eos_token": {"content": "<|im_end|>"}, "bos_token": "<|im_start|>"}
    (folder / "special_tokens_map.json").write_text(json.dumps(names))
    ours = Tokenizer.load(folder)
    assert (ours.bos_token_id, ours.eos_token_id) == (1, 2)


def test_a_named_token_without_an_id_is_no_token(
    model_folder: Folder, byte_level_backend: Backend
) -> None:
    size = byte_level_backend().get_vocab_size()
    ours = Tokenizer.load(model_folder(byte_level_backend(), pad_token="[PAD]", eos_token="[X]"))
    assert ours.size == size
    assert ours.eos_token_id is None


def test_truncation_and_padding_of_the_file_are_ignored(
    model_folder: Folder, byte_level_backend: Backend
) -> None:
    backend = byte_level_backend()
    expected = backend.encode("the cat sat on").ids
    backend.enable_truncation(2)
    backend.enable_padding(length=50)
    assert Tokenizer.load(model_folder(backend)).encode("the cat sat on") == expected


def test_threads_encode_as_one_does(byte_level: Tokenizer) -> None:
    texts = [f"{TEXT} {number} " * 20 for number in range(64)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(byte_level.encode, texts)) == [byte_level.encode(t) for t in texts]


def test_lone_surrogate_is_the_callers_error(byte_level: Tokenizer) -> None:
    with pytest.raises(RequestError, match="character 2") as caught:
        byte_level.encode("ab\ud800")
    assert caught.value.param == "prompt"


def test_ids_that_name_no_token_decode_to_nothing(byte_level: Tokenizer) -> None:
    ids = byte_level.encode("the")
    assert byte_level.decode([-1, *ids, byte_level.size, 2**40]) == "the"
    assert byte_level.token_text(byte_level.size) == byte_level.token_text(-1) == ""


def test_text_of_one_token_keeps_its_space(word_like: Tokenizer, byte_level: Tokenizer) -> None:
    hello, word = word_like.encode("hello w")
    assert (word_like.token_text(hello), word_like.token_text(word)) == (" hello", " w")
    assert word_like.token_text(3 + 0xE2) == "�"
    assert byte_level.token_text(byte_level.encode("the cat")[1])[0] == " "
    assert byte_level.token_text(1) == "<|im_start|>"


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_missing_and_broken_files_are_named(
    model_folder: Folder, byte_level_backend: Backend, name: str
) -> None:
    folder = model_folder(byte_level_backend())
    (folder / name).write_text("{broken")
    with pytest.raises(TokenizerError, match=rf"{name} is .*fetch it again"):
        Tokenizer.load(folder)
    (folder / name).unlink()
    with pytest.raises(TokenizerError, match=rf"{name} is missing.*fetch"):
        Tokenizer.load(folder)


def test_config_must_be_an_object(model_folder: Folder, byte_level_backend: Backend) -> None:
    folder = model_folder(byte_level_backend())
    (folder / "tokenizer_config.json").write_text("[]")
    with pytest.raises(TokenizerError, match=r"tokenizer_config\.json must hold a JSON object"):
        Tokenizer.load(folder)
    (folder / "tokenizer_config.json").write_bytes(b"\xff")
    with pytest.raises(TokenizerError, match=r"tokenizer_config\.json cannot be read"):
        Tokenizer.load(folder)


def test_chat_template_sources_in_order(
    model_folder: Folder, byte_level_backend: Backend
) -> None:
    chat = [{"role": "user", "content": "x"}]
    folder = model_folder(byte_level_backend())
    assert Tokenizer.load(folder).chat_template is None

    def rendered() -> str:
        template = Tokenizer.load(folder).chat_template
        assert template is not None
        return template.render(chat)

    template = "config {{ eos_token }}"
    model_folder(byte_level_backend(), chat_template=template, eos_token="<|im_end|>")
    assert rendered() == "config <|im_end|>"
    (folder / "chat_template.json").write_text('{"chat_template": "json"}')
    assert rendered() == "json"
    (folder / "chat_template.jinja").write_text("jinja ünïcode", encoding="utf-8")
    assert rendered() == AutoTokenizer.from_pretrained(folder).apply_chat_template(
        chat, tokenize=False
    )
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text("{{ tools }}")
    named = Tokenizer.load(folder).chat_template
    assert named is not None
    assert named.render(chat, tools=[{"name": "f"}]) == "[{'name': 'f'}]"


def test_named_templates_of_the_config(model_folder: Folder, byte_level_backend: Backend) -> None:
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
    template = Tokenizer.load(model_folder(byte_level_backend(), chat_template=named)).chat_template
    assert template is not None
    chat = [{"role": "user", "content": "x"}]
    assert (template.render(chat), template.render(chat, tools=[])) == ("plain", "tools")


def test_malformed_template_list_is_named(
    model_folder: Folder, byte_level_backend: Backend
) -> None:
    folder = model_folder(byte_level_backend(), chat_template=[{"name": "default"}])
    with pytest.raises(TokenizerError, match=r"tokenizer_config\.json: chat_template must be"):
        Tokenizer.load(folder)
