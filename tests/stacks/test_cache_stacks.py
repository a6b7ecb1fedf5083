"""A real model under every cache stack: what is kept, moved or lost never shows in an answer.

The pools are so small that most requests are preempted, and the tiers so that blocks are moved all
the time.
"""

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from jackfield import LLM, SamplingParams
from jackfield.core.engine.metrics import Metrics
from jackfield.core.kv.cache_metrics import CacheMetrics

FOLDER = Path(__file__).parent.parent / "data" / "tiny_qwen3"
IDENTITIES = (None, "prefix", "radix")
ROOMY, TIGHT = 320, 12
MOST_TOKENS = 24


class CacheStack(NamedTuple):
    """One combination. disk: in place of most of the host memory."""

    identity: str | None
    swap: bool
    disk: bool
    num_blocks: int
    chunk: int

    def toml(self, folder: Path) -> str:
        """As a configuration file."""
        stack = ["paged", *([self.identity] if self.identity else []), *["swap"] * self.swap]
        lines = [f"cache.stack = {json.dumps(stack)}", f"cache.num_blocks = {self.num_blocks}"]
        lines.append("cache.paged.block_size = 8")
        lines.append(f"engine.max_num_batched_tokens = {self.chunk}")
        if self.swap:
            lines.append(f'cache.swap.memory = "{32 if self.disk else 512}KiB"')
            lines.append("cache.swap.clean_share = 0.5")
        if self.disk:
            lines += ['cache.swap.disk = "1MiB"', f"cache.swap.folder = {json.dumps(str(folder))}"]
        return "\n".join(lines)

    def __str__(self) -> str:
        tiers = "disk" if self.disk else "host" if self.swap else "device"
        return f"{self.identity}-{tiers}-{self.num_blocks}-{self.chunk}"


STACKS = [
    CacheStack(identity, swap, disk, num_blocks, chunk)
    for identity, (swap, disk), (num_blocks, chunk) in product(
        IDENTITIES, ((False, False), (True, False), (True, True)), ((ROOMY, 7), (TIGHT, 64))
    )
]


def prompts() -> list[dict[str, list[int]]]:
    """Many that begin alike, of lengths around the edges of blocks, some of them twice."""
    random = Random(0)
    common = [random.randrange(3, 250) for _ in range(48)]
    shapes = ((24, 3), (45, 6), (32, 0), (16, 9), (47, 1), (32, 5), (0, 20), (8, 0))
    found = [
        common[:shared] + [random.randrange(3, 250) for _ in range(own)] for shared, own in shapes
    ]
    return [{"prompt_token_ids": ids} for ids in (*found, *found[:3])]


def params(count: int) -> list[SamplingParams]:
    """Every third request has four answers, two of them sampled."""
    plain = SamplingParams(
        temperature=0, max_tokens=MOST_TOKENS, ignore_eos=True, detokenize=False
    )
    several = plain.with_(n=4, temperature=0.7, seed=7)
    return [several if index % 3 == 2 else plain for index in range(count)]


class Answered(NamedTuple):
    """Tokens of all answers in two rounds, and what was counted."""

    tokens: list[list[list[int]]]
    metrics: Metrics
    cache: CacheMetrics


def answer(folder: Path, stack: CacheStack) -> Answered:
    """Two rounds, so that the second finds what is left of the first."""
    folder.mkdir(exist_ok=True)
    file = folder / "stack.toml"
    file.write_text(stack.toml(folder / "tier"))
    options: dict[str, Any] = {"load_format": "dummy", "skip_tokenizer_init": True}
    with LLM(
        FOLDER, config=file, dtype="float32", max_model_len=128, max_num_seqs=6, **options
    ) as llm:
        asked = prompts()
        rounds = [llm.generate(asked, params(len(asked)), use_tqdm=False) for _ in range(2)]
        engine = llm.assembly.engine
        engine.check()
        cache = engine.lifecycle.planner.cache.metrics
    tokens = [[list(one.token_ids) for one in out.outputs] for outs in rounds for out in outs]
    return Answered(tokens, engine.metrics, cache)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[list[list[int]]]]:
    plain = CacheStack(None, False, False, ROOMY, 512)
    yield answer(tmp_path_factory.mktemp("plain"), plain).tokens


@pytest.mark.parametrize("stack", STACKS, ids=str)
def test_same_tokens(
    stack: CacheStack, expected: list[list[list[int]]], tmp_path: Path
) -> None:
    found = answer(tmp_path, stack)
    assert found.tokens == expected
    assert all(len(one) == MOST_TOKENS for answers in found.tokens for one in answers)
    if stack.num_blocks == TIGHT:
        assert found.metrics.preemptions >= len(prompts())
    if stack.identity and stack.num_blocks == ROOMY:
        assert found.cache.hit_tokens > found.cache.queried_tokens / 3
    if not stack.identity and not stack.swap:
        assert found.cache.published == 0
    if stack.swap and stack.num_blocks == TIGHT:
        assert found.cache.stored["host"] > 0 and sum(found.cache.loaded.values()) > 0
