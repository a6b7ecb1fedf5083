"""One real generation with every pair of installed policies, caches and kernels.

A stack decides when something is computed, where it is kept and how fast it goes. What the answer
is depends on none of that: all stacks give the same greedy tokens.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from jackfield import LLM, SamplingParams
from jackfield.core.api import CacheAxis
from jackfield.core.host.contract import limits, orders
from jackfield.core.host.discover import discover_all
from jackfield.core.host.loader import load_found

FOLDER = Path(__file__).parent.parent / "data" / "tiny_qwen3"
PROMPTS = [list(range(1, length)) for length in (4, 18, 33, 60, 2)]
PRIORITIES = [0, 2, 1, 0, 1]
GREEDY = SamplingParams(temperature=0, max_tokens=10, ignore_eos=True, detokenize=False)


class Policies(NamedTuple):
    """What the scheduler section says."""

    stack: tuple[str, ...]
    advisors: tuple[str, ...] = ()


class Caches(NamedTuple):
    """What the cache section says. device: who orders what is given up; empty = the default."""

    stack: tuple[str, ...]
    device: tuple[str, ...] = ()


class Stack(NamedTuple):
    """One combination of plugins."""

    policies: Policies
    cache: Caches
    kernel: tuple[str, ...]

    def toml(self) -> str:
        """The combination as a configuration file."""
        cache: dict[str, Sequence[str]] = {"stack": self.cache.stack}
        if self.cache.device:
            cache["eviction.device"] = self.cache.device
        sections: dict[str, dict[str, Sequence[str]]] = {
            "scheduler": self.policies._asdict(),
            "cache": cache,
            "kernel": {"stack": self.kernel},
        }
        return "\n".join(
            f"{name}.{key} = {json.dumps(value)}"
            for name, table in sections.items()
            for key, value in table.items()
        )

    def __str__(self) -> str:
        parts = (sum(self.policies, ()), sum(self.cache, ()), self.kernel)
        return "-".join("+".join(part) for part in parts)


def classes(kind: str) -> Iterator[tuple[str, type[Any]]]:
    for found in discover_all()[kind].usable:
        yield found.name, load_found(found).cls


def policies() -> list[Policies]:
    return [
        Policies((name,)) if orders(cls) else Policies(("fcfs",), (name,))
        for name, cls in classes("schedulers")
        if orders(cls) or limits(cls)
    ]


def caches() -> list[Caches]:
    """All but the encodings: these round, so that other tokens may be likelier."""
    found = []
    for name, cls in classes("caches"):
        if cls.axis is CacheAxis.EVICTION:
            device = (name, "lru") if cls.wraps else (name,)
            found.append(Caches(("paged", "prefix"), device))
        elif cls.axis is not CacheAxis.ENCODING:
            found.append(Caches((name,) if cls.axis is CacheAxis.ALLOCATOR else ("paged", name)))
    return found


def kernels() -> list[tuple[str, ...]]:
    others = [name for name, _ in classes("kernels") if name != "torch"]
    return [("torch",), *((name, "torch") for name in others)]


def pairs(choices: Sequence[Any]) -> set[Any]:
    """Every two choices of one combination, each with its place in it."""
    return set(combinations(enumerate(choices), 2))


def covering(*factors: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Combinations in which any two values of different factors meet: greedy, so few of them."""
    rows = list(product(*factors))
    missing = set().union(*map(pairs, rows))
    chosen = []
    while missing:
        best = max(rows, key=lambda row: len(pairs(row) & missing))
        missing -= pairs(best)
        chosen.append(best)
    return chosen


STACKS = [Stack(*row) for row in covering(policies(), caches(), kernels())]


def answers(file: Path, stack: Stack) -> list[list[int]]:
    file.write_text(stack.toml())
    with LLM(
        FOLDER, config=file, load_format="dummy", skip_tokenizer_init=True, dtype="float32",
        max_model_len=128, num_gpu_blocks_override=64,
    ) as llm:  # fmt: skip
        active = {found.name for found in llm.assembly.stack.versions}
        named = {*sum(stack.policies, ()), *sum(stack.cache, ()), *stack.kernel}
        assert active >= named
        prompts = [{"prompt_token_ids": ids} for ids in PROMPTS]
        outputs = llm.generate(prompts, GREEDY, priority=PRIORITIES, use_tqdm=False)
    return [list(output.outputs[0].token_ids) for output in outputs]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[list[int]]:
    plain = Stack(Policies(("fcfs",)), Caches(("paged",)), ("torch",))
    return answers(tmp_path_factory.mktemp("plain") / "stack.toml", plain)


@pytest.mark.parametrize("stack", STACKS, ids=str)
def test_same_tokens(stack: Stack, expected: list[list[int]], tmp_path: Path) -> None:
    found = answers(tmp_path / "stack.toml", stack)
    assert [len(tokens) for tokens in found] == [GREEDY.max_tokens] * len(PROMPTS)
    assert len({tuple(tokens) for tokens in found}) > 1
    assert found == expected


def test_every_pair_is_covered() -> None:
    covered = set().union(*map(pairs, STACKS))
    assert covered == set().union(*map(pairs, product(policies(), caches(), kernels())))


def test_few_combinations_cover_all_pairs() -> None:
    rows = covering("abc", "de", "fg")
    assert set().union(*map(pairs, rows)) == set().union(*map(pairs, product("abc", "de", "fg")))
    assert len(rows) < 12
