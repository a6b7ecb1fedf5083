"""Stop strings, characters in pieces and ends of answers: whole and in a stream, with one text."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from jackfield import LLM, AsyncLLM, SamplingParams
from jackfield.core.front.outputs import CompletionOutput
from jackfield.core.testing.scripted_folder import END, TURN

GREEDY = SamplingParams(temperature=0)
FLAG, TONE = "\U0001f1eb\U0001f1f7", "\U0001f44d\U0001f3fd"
FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
EMOJI, HAN = "\U0001f600".encode(), "漢".encode()
SCRIPT: dict[str, Sequence[str | bytes]] = {
    "a": ["AB", "CD", "EF", "G"],
    "b": list("ABCDEFG"),
    "c": ["a", "\n\n", "b"],
    "d": ["a", "\n", "\n", "b"],
    "e": ["a", ".\n", "\n", "b"],
    "f": [EMOJI[:2], EMOJI[2:], "x"],
    "g": [*(EMOJI[place : place + 1] for place in range(4)), "x"],
    "h": [HAN[:1], HAN[1:], "x"],
    "i": ["e", "\u0301", "x", *FLAG, *TONE, *FAMILY],
    "j": ["a,", "<think>", "b", ",c", "d", "</think>", "b,cd"],
    "k": ["x", EMOJI[:3]],
    "l": ["one", "<turn>", "two", "three", "four", "five", "<end>"],
}


@pytest.fixture(scope="module")
def folder(scripted: Callable[..., Path]) -> Path:
    return scripted(SCRIPT)


@pytest.fixture(scope="module")
def llm(folder: Path, small: dict[str, Any]) -> LLM:
    return LLM(folder, **small)


def answer(llm: LLM, prompt: str, **params: Any) -> CompletionOutput:
    return llm.generate(prompt, GREEDY.with_(**params), use_tqdm=False)[0].outputs[0]


async def streamed(llm: AsyncLLM, prompt: str, **params: Any) -> list[CompletionOutput]:
    return [output.outputs[0] async for output in llm.generate(prompt, GREEDY.with_(**params))]


CASES: list[tuple[str, dict[str, Any], str, str | None]] = [
    ("a", {"stop": ["CDEF"]}, "AB", "CDEF"),
    ("b", {"stop": ["CDEF"]}, "AB", "CDEF"),
    ("b", {"stop": ["CDEX", "G"]}, "ABCDEF", "G"),
    ("a", {"stop": ["GH"]}, "ABCDEFG", None),
    ("c", {"stop": ["\n\n"]}, "a", "\n\n"),
    ("d", {"stop": ["\n\n"]}, "a", "\n\n"),
    ("e", {"stop": ["\n\n"]}, "a.", "\n\n"),
    ("f", {}, "\U0001f600x", None),
    ("g", {}, "\U0001f600x", None),
    ("h", {}, "漢x", None),
    ("g", {"stop": ["x"]}, "\U0001f600", "x"),
    ("i", {}, "e\u0301x" + FLAG + TONE + FAMILY, None),
    ("k", {}, "x\ufffd", None),
]


@pytest.mark.parametrize(("prompt", "params", "text", "stop"), CASES)
async def test_whole_and_streamed_text_are_one(
    llm: LLM, folder: Path, small: dict[str, Any],
    prompt: str, params: dict[str, Any], text: str, stop: str | None,
) -> None:  # fmt: skip
    whole = answer(llm, prompt, **params)
    assert (whole.text, whole.stop_reason) == (text, stop)
    assert whole.finish_reason == "stop"
    streaming = AsyncLLM(folder, **small)
    parts = await streamed(streaming, prompt, **params)
    await streaming.close()
    assert parts[-1] == whole
    for before, after in pairwise(parts):
        assert after.text.startswith(before.text)
    assert all("\ufffd" not in part.text for part in parts[:-1])


@pytest.mark.parametrize("prompt", list("fghi"))
def test_text_is_the_decoding_of_all_ids(llm: LLM, prompt: str) -> None:
    tokenizer = llm.assembly.tokenizer
    assert tokenizer is not None
    found = answer(llm, prompt)
    assert found.text == tokenizer.decode(found.token_ids)


def test_a_stop_string_that_never_comes_changes_nothing(llm: LLM) -> None:
    plain, stopped = answer(llm, "j"), answer(llm, "j", stop=["d</", "nowhere"])
    assert answer(llm, "j", stop=["b,cX", "<thin-"]) == plain
    assert plain.text == "a,<think>b,cd</think>b,cd"
    assert (stopped.text, stopped.stop_reason) == ("a,<think>b,c", "d</")


@pytest.mark.parametrize(
    ("config", "generation"),
    [
        ({"eos_token_id": [END, TURN]}, None),
        ({"eos_token_id": END}, {"eos_token_id": [TURN]}),
    ],
)
def test_every_end_ends(
    scripted: Callable[..., Path], load: Callable[..., LLM],
    config: dict[str, Any], generation: dict[str, Any] | None,
) -> None:  # fmt: skip
    llm = load(scripted(SCRIPT, generation=generation, **config))
    assert llm.assembly.summary.eos_ids == [END, TURN]
    assert any("token ids 0, 1" in line for line in llm.assembly.summary.lines())
    ended = answer(llm, "l")
    assert (ended.text, ended.token_ids[-1], ended.stop_reason) == ("one", TURN, None)
    later = answer(llm, "l", min_tokens=5)
    assert TURN not in later.token_ids
    assert (later.token_ids[-1], later.finish_reason) == (END, "stop")
    assert later.text.endswith("twothreefourfive")
    through = answer(llm, "l", ignore_eos=True, max_tokens=9)
    assert (through.text, through.finish_reason) == ("onetwothreefourfive", "length")
    assert through.token_ids[1] == TURN and through.token_ids[6:] == [END] * 3
    asked = answer(llm, "l", ignore_eos=True, stop_token_ids=[TURN])
    assert (asked.text, asked.stop_reason) == ("one", TURN)


def test_the_end_of_the_tokenizer_counts_too(
    scripted: Callable[..., Path], load: Callable[..., LLM]
) -> None:
    llm = load(scripted(SCRIPT, generation={"eos_token_id": [TURN]}, eos_token_id=TURN))
    assert llm.assembly.summary.eos_ids == [END, TURN]
