"""Prompt and answer as one text: pieces join to it, and each is where its offset says."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from jackfield import LLM, SamplingParams
from jackfield.core.api import Logprob
from jackfield.core.front.echo import Echoed, echo
from jackfield.core.front.outputs import CompletionOutput, Logprobs, RequestOutput
from jackfield.core.text.output import TextStream
from jackfield.core.text.tokenizer import Tokenizer

BEGIN, WORD = "<begin>", "\n1. Carol has 20"
TEXTS = st.text(st.sampled_from([*"ab \né漢", "\u0301", "\U0001f600", "\u200d"]), max_size=12)


def byte_level(*, begin: bool = False, composed: bool = False) -> Tokenizer:
    """All bytes and a few words; with a begin token, or a normalizer that changes the text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = ["ab", "Ġa", "Ca", "ol"]
    vocabulary = {token: place for place, token in enumerate([BEGIN, *alphabet, *words])}
    merges = [("a", "b"), ("Ġ", "a"), ("C", "a"), ("o", "l")]
    backend = tokenizers.Tokenizer(models.BPE(vocabulary, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([BEGIN])
    if composed:
        backend.normalizer = normalizers.NFC()
    if begin:
        backend.post_processor = processors.TemplateProcessing(
            single=f"{BEGIN} $A", special_tokens=[(BEGIN, 0)]
        )
    return Tokenizer(backend, special_tokens={"bos_token": BEGIN})


def pieced() -> Tokenizer:
    """Words that carry the space before them, and bytes for everything else."""
    tokens = ["<unk>", "▁", "a", "b", "▁a", "▁ab", *(f"<0x{byte:02X}>" for byte in range(256))]
    vocabulary = {token: place for place, token in enumerate(tokens)}
    merges = [("▁", "a"), ("▁a", "b")]
    backend = tokenizers.Tokenizer(
        models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
         decoders.Strip(" ", 1, 0)]
    )  # fmt: skip
    return Tokenizer(backend)


TOKENIZERS = {
    "plain": byte_level(),
    "begin": byte_level(begin=True),
    "composed": byte_level(composed=True),
    "both": byte_level(begin=True, composed=True),
    "pieced": pieced(),
}


def scores(ids: Sequence[int]) -> list[Logprobs]:
    """Each token at -1, one other at -2."""
    return [{index: Logprob(-1.0, 1, f"t{index}"), -1: Logprob(-2.0, 2, "x")} for index in ids]


def output(prompt: str | None, ids: list[int], answer: CompletionOutput) -> RequestOutput:
    of_prompt: list[Logprobs | None] = [None, *scores(ids[1:])]
    return RequestOutput("r", prompt, ids, [answer], True, of_prompt)


def answer_of(tokenizer: Tokenizer, ids: list[int], **options: Any) -> CompletionOutput:
    """As it is shown when it has been streamed."""
    stream = TextStream(tokenizer, **options)
    delta = stream.push(ids)
    text = delta.text + stream.finish().text
    kept = ids[: delta.num_tokens]
    return CompletionOutput(0, text, kept, logprobs=scores(kept))


def check(echoed: Echoed) -> None:
    assert "".join(echoed.tokens) == echoed.text
    for place, offset in enumerate(echoed.text_offset):
        assert offset == len("".join(echoed.tokens[:place]))
    counts = {len(entries) for entries in echoed[1:]}
    assert counts == {len(echoed.tokens)}
    assert echoed.token_logprobs[0] is None and echoed.top_logprobs[0] is None


@pytest.mark.parametrize("name", TOKENIZERS)
@given(prompt=TEXTS.filter(bool), answer=TEXTS, stops=st.lists(TEXTS.filter(bool), max_size=2))
def test_pieces_join_to_prompt_and_answer(
    name: str, prompt: str, answer: str, stops: list[str]
) -> None:
    tokenizer = TOKENIZERS[name]
    ids = tokenizer.encode(prompt)
    shown = answer_of(tokenizer, tokenizer.encode(answer), stops=stops)
    echoed = echo(output(prompt, ids, shown), 0, tokenizer)
    check(echoed)
    assert echoed.text == prompt + shown.text
    assert "".join(echoed.tokens[: len(ids)]) == prompt


@given(st.lists(st.integers(0, 261)), st.lists(st.integers(0, 261), min_size=1), st.booleans())
def test_any_ids(answer: list[int], prompt: list[int], skip: bool) -> None:
    tokenizer = TOKENIZERS["plain"]
    shown = answer_of(tokenizer, answer, skip_special_tokens=skip)
    echoed = echo(output(None, prompt, shown), 0, tokenizer)
    check(echoed)
    assert echoed.text == tokenizer.decode(prompt, skip_special_tokens=False) + shown.text


def test_a_character_is_carried_by_the_token_that_completes_it() -> None:
    tokenizer = TOKENIZERS["begin"]
    ids = tokenizer.encode("ab漢a")
    echoed = echo(output("ab漢a", ids, answer_of(tokenizer, ids[1:])), 0, tokenizer)
    assert echoed.tokens == ["", "ab", "", "", "漢", "a", "ab", "", "", "漢", "a"]
    assert echoed.text_offset == [0, 0, 2, 2, 2, 3, 4, 6, 6, 6, 7]


def test_special_tokens_of_the_prompt_are_part_of_its_text() -> None:
    tokenizer = TOKENIZERS["plain"]
    prompt = f"{BEGIN}ab{BEGIN}"
    echoed = echo(output(prompt, tokenizer.encode(prompt), CompletionOutput(0)), 0, tokenizer)
    assert echoed.tokens == [BEGIN, "ab", BEGIN]


def test_scores_are_one_per_token_and_the_likeliest_of_look_alikes() -> None:
    tokenizer = TOKENIZERS["plain"]
    ids = tokenizer.encode("ab")
    same = {5: Logprob(-3.0, 3, "x"), 6: Logprob(-1.0, 1, "x"), 7: Logprob(-2.0, 2, "y")}
    shown = CompletionOutput(0, "", [5], logprobs=[same])
    echoed = echo(output("ab", ids, shown), 0, tokenizer)
    assert echoed.token_logprobs == [None, -3.0]
    assert echoed.top_logprobs == [None, {"x": -1.0, "y": -2.0}]


@pytest.fixture(scope="module")
def llm(folder: Path, small: dict[str, Any]) -> LLM:
    return LLM(folder, **small)


@pytest.mark.parametrize("count", [None, 0, 2])
@pytest.mark.parametrize("max_tokens", [0, 6])
def test_an_engine_echoes(llm: LLM, count: int | None, max_tokens: int) -> None:
    tokenizer = llm.assembly.tokenizer
    assert tokenizer is not None
    params = SamplingParams(
        temperature=0, max_tokens=max_tokens, logprobs=count, prompt_logprobs=count,
        ignore_eos=True,
    )  # fmt: skip
    [found] = llm.generate(WORD, params, use_tqdm=False)
    echoed = echo(found, 0, tokenizer)
    check(echoed)
    assert echoed.text == WORD + found.outputs[0].text
    assert len(echoed.tokens) == len(found.prompt_token_ids) + max_tokens
    if max_tokens == 0:
        assert (echoed.text, found.outputs[0].token_ids) == (WORD, [])
    scored = [entry is not None for entry in echoed.token_logprobs]
    assert scored == [False] + [count is not None] * (len(echoed.tokens) - 1)
    json.dumps(echoed, allow_nan=False)
