"""Requests share what they may share, found by either identity, until the cache is reset."""

from pathlib import Path
from typing import Any

import pytest

from jackfield import LLM, CacheHints, RequestContext, SamplingParams
from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.core.testing.tiny_model import write_tiny_model

SMALL: dict[str, Any] = {
    "block_size": 16,
    "num_gpu_blocks_override": 64,
    "max_num_seqs": 8,
    "kernel.stack": ["torch"],
    "engine.threads": 1,
    "progress": SilentProgress(),
}
TWO = SamplingParams(max_tokens=2, temperature=0)
PROMPT = {"prompt_token_ids": list(range(5, 75))}
FULL = 64
"""Tokens of the full blocks of the prompt."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize("identity", ["prefix", "radix"])
def test_who_shares_with_whom(folder: Path, identity: str) -> None:
    with LLM(folder, **SMALL, **{"cache.stack": ["paged", identity]}) as llm:
        answers = set()

        def cached(tenant: str = "a", **hints: Any) -> int:
            context = RequestContext(tenant)
            [output] = llm.generate(
                PROMPT, TWO, use_tqdm=False, context=context, cache=CacheHints(**hints)
            )
            answers.add(tuple(output.outputs[0].token_ids))
            return output.num_cached_tokens or 0

        assert [cached(), cached(), cached(ttl=60.0, pin=True)] == [0, FULL, FULL]
        assert [cached(salt="x"), cached(salt="x"), cached(salt="y")] == [0, FULL, 0]
        assert [cached("b"), cached("b"), cached("b", salt="x")] == [0, FULL, 0]
        shared = {"shared_prefix_tokens": 40}
        assert [cached("c", **shared), cached("d", **shared), cached("d")] == [0, 32, 0]
        assert llm.reset_prefix_cache() is True
        assert [cached(), cached("b"), cached("d", **shared), cached(salt="x")] == [0] * 4
        assert len(answers) == 1


def test_without_an_identity_nothing_is_shared_and_no_keys_are_made(folder: Path) -> None:
    with LLM(folder, **SMALL, **{"cache.stack": ["paged"]}) as llm:
        assert llm.assembly.engine.door_limits.shares_blocks is False
        for _ in range(2):
            [output] = llm.generate(PROMPT, TWO, use_tqdm=False)
            assert not output.num_cached_tokens
        assert llm.reset_prefix_cache() is True
