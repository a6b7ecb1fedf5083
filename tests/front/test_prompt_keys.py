"""What prompts begin with alike is hashed once, and the keys are those that they always have."""

from random import Random
from typing import Any

import pytest

from jackfield.core.engine.door import DoorLimits
from jackfield.core.front import prompt_keys
from jackfield.core.front.prompt_keys import PromptKeys
from jackfield.core.kv.keys import block_keys, token_bytes

LIMITS = DoorLimits(10_000, 4096, 10**6, 4, shares_blocks=True)


def prompts(random: Random) -> list[list[int]]:
    """With beginnings in common, of any length."""
    heads = [[random.randrange(3) for _ in range(60)] for _ in range(3)]
    found = []
    for _ in range(60):
        head = random.choice(heads)[: random.randrange(61)]
        found.append(head + [random.randrange(3) for _ in range(random.randrange(1, 20))])
    return found


@pytest.mark.parametrize("seed", range(5))
def test_keys_are_those_of_each_prompt_alone(seed: int) -> None:
    """The first of a beginning has none: the engine makes them when it needs them."""
    keys, begun = PromptKeys(LIMITS), set[tuple[int, ...]]()
    for prompt in prompts(Random(seed)):
        head = tuple(prompt[:4])
        expected = block_keys(prompt, 4) if head in begun else b""
        assert keys.of(token_bytes(prompt)) == expected
        begun.add(head)
    assert len(begun) > 2


def test_what_is_known_is_not_hashed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[int] = []
    keys_of = prompt_keys.keys_of

    def counted(*given: Any, **more: Any) -> bytes:
        made = keys_of(*given, **more)
        hashed.append(len(made) // 16)
        return made

    monkeypatch.setattr(prompt_keys, "keys_of", counted)
    keys, head = PromptKeys(LIMITS), list(range(400))
    for own in range(4):
        keys.of(token_bytes([*head, *[1000 + own] * 8]))
    assert hashed == [102, 2, 2, 2], "the first one when the second comes, whole"


def test_where_nothing_is_shared_there_are_no_keys() -> None:
    tokens = token_bytes(list(range(64)))
    assert PromptKeys(LIMITS._replace(shares_blocks=False)).of(tokens) == b""
    assert PromptKeys(LIMITS).of(tokens[:12]) == b""
