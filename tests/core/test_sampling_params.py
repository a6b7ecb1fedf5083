"""Every wrong value of every field is refused, and the error names the field."""

import math
from typing import Any

import pytest

from jackfield.core.api import RequestError, SamplingParams
from jackfield.core.api.sampling import FIELDS, MAX_SEED, MAX_STOPS

NAN, INF = math.nan, math.inf
NOT_INTEGERS: list[Any] = ["1", 1.0, NAN, INF, True, [1], {}, object()]
NOT_NUMBERS: list[Any] = ["1", NAN, INF, -INF, True, [1], {}, object(), None, 1j]
NOT_FLAGS: list[Any] = [0, 1, "true", None, [], NAN]
NOT_TEXTS: list[Any] = [[1], [None], [""], "", [b"x"], ["x"] * (MAX_STOPS + 1)]
NOT_IDS: list[Any] = ["12", 3, [-1], [1.0], [True], ["a"], [2**31], {1}, [NAN]]

WRONG: dict[str, list[Any]] = {
    "n": [*NOT_INTEGERS, None, 0, -1, 10**9],
    "temperature": [*NOT_NUMBERS, -0.1, 1e9],
    "top_p": [*NOT_NUMBERS, 0.0, -1.0, 1.1],
    "top_k": [*NOT_INTEGERS, None, -2, 2**31],
    "min_p": [*NOT_NUMBERS, -0.1, 1.1],
    "presence_penalty": [*NOT_NUMBERS, -2.1, 2.1],
    "frequency_penalty": [*NOT_NUMBERS, -2.1, 2.1],
    "repetition_penalty": [*NOT_NUMBERS, 0.0, -1.0, 101.0],
    "seed": [*NOT_INTEGERS, MAX_SEED + 1, -MAX_SEED - 2],
    "max_tokens": [*NOT_INTEGERS, -1, 2**31],
    "min_tokens": [*NOT_INTEGERS, None, -1, 2**31],
    "stop": NOT_TEXTS,
    "stop_token_ids": NOT_IDS,
    "include_stop_str_in_output": NOT_FLAGS,
    "ignore_eos": NOT_FLAGS,
    "logprobs": [*NOT_INTEGERS, -1, 21],
    "prompt_logprobs": [*NOT_INTEGERS, -1, 21],
    "logit_bias": [
        [1], "a", 3, {"1": 1.0}, {1: "a"}, {1: NAN}, {1: INF}, {1: 101.0}, {1: True}, {-1: 0.0},
        {True: 1.0}, {1.0: 1.0}, {2**31: 0.0},
    ],
    "allowed_token_ids": [*NOT_IDS, []],
    "bad_words": ["text", 3, [1], [""], [None], {"a"}, ["x"] * (MAX_STOPS + 1)],
    "detokenize": NOT_FLAGS,
    "skip_special_tokens": NOT_FLAGS,
}  # fmt: skip
CASES = [(name, index) for name, values in WRONG.items() for index in range(len(values))]

RIGHT: dict[str, list[Any]] = {
    "n": [1, 16_384],
    "temperature": [0, 0.0, 1, 100.0],
    "top_p": [1e-9, 1, 1.0],
    "top_k": [-1, 0, 2**31 - 1],
    "min_p": [0, 1.0],
    "presence_penalty": [-2, 2.0],
    "frequency_penalty": [-2.0, 2],
    "repetition_penalty": [0.01, 100],
    "seed": [None, 0, -MAX_SEED - 1, MAX_SEED],
    "max_tokens": [None, 0, 2**31 - 1],
    "min_tokens": [0, 2**31 - 1],
    "stop": [None, "a", ["a", "b"], ("a",), []],
    "stop_token_ids": [None, [], [0], (1, 2)],
    "include_stop_str_in_output": [True, False],
    "ignore_eos": [True, False],
    "logprobs": [None, 0, 20],
    "prompt_logprobs": [None, 0, 20],
    "logit_bias": [None, {}, {0: -100, 1: 100.0}],
    "allowed_token_ids": [None, [0]],
    "bad_words": [None, [], ["a b"]],
    "detokenize": [True, False],
    "skip_special_tokens": [True, False],
}


@pytest.mark.parametrize(("name", "index"), CASES)
def test_a_wrong_value_names_its_field(name: str, index: int) -> None:
    with pytest.raises(RequestError) as refused:
        SamplingParams(**{name: WRONG[name][index]})
    assert refused.value.param == name
    assert name in str(refused.value)


@pytest.mark.parametrize("name", sorted(RIGHT))
def test_right_values_are_taken(name: str) -> None:
    for value in RIGHT[name]:
        assert getattr(SamplingParams(**{name: value}), name) == value


def test_every_field_is_tested() -> None:
    assert set(WRONG) == set(RIGHT) == set(FIELDS)


def test_fields_that_contradict_each_other() -> None:
    with pytest.raises(RequestError, match="more than max_tokens 2") as refused:
        SamplingParams(max_tokens=2, min_tokens=3)
    assert refused.value.param == "min_tokens"
    with pytest.raises(RequestError, match="detokenize") as refused:
        SamplingParams(stop="x", detokenize=False)
    assert refused.value.param == "stop"


def test_a_changed_copy_is_checked_too() -> None:
    params = SamplingParams(temperature=0.5)
    assert params.with_(n=2).temperature == 0.5
    with pytest.raises(RequestError):
        params.with_(temperature=NAN)


def test_greedy_is_temperature_zero() -> None:
    assert SamplingParams(temperature=0).greedy and SamplingParams(temperature=1e-6).greedy
    assert not SamplingParams(temperature=0.01).greedy


def test_stop_strings_have_one_form() -> None:
    assert SamplingParams().stop_strings == ()
    assert SamplingParams(stop="a").stop_strings == ("a",)
    assert SamplingParams(stop=["a", "b"]).stop_strings == ("a", "b")
