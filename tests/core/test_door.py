"""What can never be served is refused at the door, with the numbers and the field."""

from typing import Any

import pytest

from jackfield.core.api import ContextLengthExceeded, NeverFits, RequestError, SamplingParams
from jackfield.core.engine.door import Door, DoorLimits
from jackfield.core.engine.messages import NewRequest
from jackfield.core.kv.keys import token_bytes
from jackfield.core.testing.engines import make_engine, request

DOOR = Door(DoorLimits(vocab_size=100, max_model_len=32, pool_tokens=24, block_size=8))


def ask(prompt: Any, banned: Any = (), **params: Any) -> int:
    new = NewRequest("r", prompt, SamplingParams(**params), banned_sequences=banned)
    return DOOR.check(new).max_tokens


@pytest.mark.parametrize(
    "prompt", [[], [100], [-1], [1.0], [True], ["a"], "text", [None], [2**70], [1, 2, [3]]]
)
def test_bad_prompts_name_the_prompt(prompt: Any) -> None:
    with pytest.raises(RequestError) as refused:
        ask(prompt)
    assert refused.value.param == "prompt"


@pytest.mark.parametrize(
    ("name", "value"),
    [("stop_token_ids", [1, 100]), ("allowed_token_ids", [100]), ("logit_bias", {100: 1.0})],
)
def test_ids_outside_the_vocabulary_name_their_field(name: str, value: Any) -> None:
    with pytest.raises(RequestError, match=r"100.*99") as refused:
        ask([1], max_tokens=1, **{name: value})
    assert refused.value.param == name


@pytest.mark.parametrize("banned", [[[100]], [[1, 100]], [[]], [["a"]], [[-1]], [[True]]])
def test_banned_sequences_hold_token_ids(banned: Any) -> None:
    with pytest.raises(RequestError) as refused:
        ask([1], banned, max_tokens=1)
    assert refused.value.param == "bad_words"


def test_without_max_tokens_it_is_what_fits() -> None:
    assert ask([1] * 4) == 20
    assert ask([1] * 23) == 1


@pytest.mark.parametrize("wrong", [100, -1, True, 3.0, None, 2**32])
def test_the_one_that_is_wrong_is_named(wrong: Any) -> None:
    prompt = [99, 0, *range(20)]
    prompt[17] = wrong
    with pytest.raises(RequestError, match=f"prompt token 17 is {wrong};.* 0 to 99"):
        ask(prompt)


def test_what_is_checked_cannot_change_any_more() -> None:
    prompt = [99, 0, 5]
    checked = DOOR.check(NewRequest("r", prompt, SamplingParams()))
    prompt[0] = 100
    assert checked.prompt == (99, 0, 5) and checked.tokens == token_bytes([99, 0, 5])


def test_what_was_checked_is_taken_without_another_look() -> None:
    engine = make_engine()
    new = request("r", [1, 2, 3])
    engine.add(new, engine.validate(new)._replace(prompt=(4, 5, 6)))
    assert [one.prompt for one in engine.requests()] == [(4, 5, 6)]


def test_max_tokens_is_cut_to_the_context() -> None:
    wide = Door(DoorLimits(100, 32, 64, 8))
    assert wide.check(NewRequest("r", [1] * 30, SamplingParams(max_tokens=50))).max_tokens == 2


def test_a_prompt_beyond_the_context_is_refused_with_both_numbers() -> None:
    with pytest.raises(ContextLengthExceeded, match=r"32.*33") as refused:
        ask([1] * 33)
    assert refused.value.code == "context_length_exceeded"


def test_a_prompt_that_fills_the_context_has_no_room_for_an_answer() -> None:
    wide = Door(DoorLimits(100, 32, 64, 8))
    with pytest.raises(ContextLengthExceeded, match="no room"):
        wide.check(NewRequest("r", [1] * 32, SamplingParams()))
    assert wide.check(NewRequest("r", [1] * 32, SamplingParams(max_tokens=0))).max_tokens == 0


def test_what_outgrows_the_pool_is_refused_with_both_numbers() -> None:
    with pytest.raises(NeverFits, match=r"needs 4 KV blocks of 8; the whole pool has 3"):
        ask([1] * 20, max_tokens=5)
    assert ask([1] * 20, max_tokens=4) == 4


def test_min_tokens_that_cannot_fit_are_refused() -> None:
    with pytest.raises(RequestError, match="only 4 tokens fit") as refused:
        ask([1] * 20, min_tokens=5)
    assert refused.value.param == "min_tokens"


def test_a_refused_request_leaves_nothing_behind() -> None:
    engine = make_engine()
    for prompt in ([], [1] * 500):
        with pytest.raises(RequestError):
            engine.add(NewRequest("r", prompt, SamplingParams(max_tokens=1)))
    assert not engine.has_work and not engine.explain("r")
    engine.add(NewRequest("r", [1], SamplingParams(max_tokens=1)))
    with pytest.raises(RequestError, match="in use") as refused:
        engine.add(NewRequest("r", [1], SamplingParams(max_tokens=1)))
    assert refused.value.param == "request_id"
