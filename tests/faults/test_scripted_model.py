"""The scripted model says what its script says, whatever the engine does to the request."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from jackfield import LLM, SamplingParams
from jackfield.core.api import ModelError
from jackfield.core.testing.scripted_folder import END, byte_id

SCRIPT: dict[str, Sequence[str]] = {
    letter: [f"{letter}{number}" for number in range(40)] for letter in "abcdefgh"
}
PARAMS = SamplingParams(temperature=0)


@pytest.fixture(scope="module")
def folder(scripted: Callable[..., Path]) -> Path:
    return scripted(SCRIPT)


def prompts() -> list[str]:
    return [letter + "x" * place for place, letter in enumerate("abcdefgh")]


def texts(llm: LLM) -> list[str]:
    outputs = llm.generate(prompts(), PARAMS, use_tqdm=False)
    assert {output.outputs[0].finish_reason for output in outputs} == {"stop"}
    return [output.outputs[0].text for output in outputs]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"max_num_batched_tokens": 8},
        {"max_num_seqs": 1},
        {"engine.overlap": 2},
        {"num_gpu_blocks_override": 12, "max_model_len": 64},
        {"kernel.stack": ["cpu", "torch"]},
        {"dtype": "bfloat16"},
    ],
)
def test_the_script_is_the_answer(
    folder: Path, load: Callable[..., LLM], settings: dict[str, Any]
) -> None:
    llm = load(folder, **settings)
    assert texts(llm) == ["".join(SCRIPT[letter]) for letter in "abcdefgh"]
    tight = "num_gpu_blocks_override" in settings
    assert (llm.assembly.engine.metrics.preemptions > 0) == tight


def test_a_prompt_without_a_script_ends(folder: Path, load: Callable[..., LLM]) -> None:
    answer = load(folder).generate("z", PARAMS, use_tqdm=False)[0].outputs[0]
    assert (answer.token_ids, answer.text, answer.finish_reason) == ([END], "", "stop")


def test_several_answers_share_a_prompt(folder: Path, load: Callable[..., LLM]) -> None:
    [output] = load(folder).generate("b" + "x" * 20, PARAMS.with_(n=3), use_tqdm=False)
    assert {answer.text for answer in output.outputs} == {"".join(SCRIPT["b"])}


def test_a_place_that_was_sampled_otherwise_moves_nothing(
    folder: Path, load: Callable[..., LLM]
) -> None:
    params = PARAMS.with_(logit_bias={byte_id("!"): 100.0}, max_tokens=3, allowed_token_ids=None)
    answer = load(folder).generate("a", params, use_tqdm=False)[0].outputs[0]
    assert answer.text == "!!!"


@pytest.mark.parametrize("script", [None, [1], {"9999": [1]}, {"1": [-1]}])
def test_a_script_that_cannot_be_read(
    scripted: Callable[..., Path], load: Callable[..., LLM], script: Any
) -> None:
    with pytest.raises(ModelError, match="script"):
        load(scripted({"a": ["b"]}, script=script))
