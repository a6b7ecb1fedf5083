"""Answers that lose their seat are the same as answers that keep it: tokens, scores, counts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jackfield import LLM, RequestOutput, SamplingParams
from jackfield.core.engine.decisions import Action

PARAMS = SamplingParams(
    temperature=0, max_tokens=44, min_tokens=20, logprobs=2, frequency_penalty=1
)
PROMPTS = [[5 + place] * (6 + place) for place in range(8)]


def answers(llm: LLM) -> list[RequestOutput]:
    return llm.generate(PROMPTS, PARAMS, use_tqdm=False)


@pytest.mark.parametrize("overlap", [0, 1, 2])
@pytest.mark.parametrize("chunk", [8, 256])
def test_nothing_shows_that_memory_was_short(
    tiny: Path, load: Callable[..., LLM], overlap: int, chunk: int
) -> None:
    settings: dict[str, Any] = {"engine.overlap": overlap, "max_num_batched_tokens": chunk}
    expected = answers(load(tiny))
    llm = load(tiny, num_gpu_blocks_override=10, max_model_len=64, **settings)
    found = answers(llm)
    lost = [
        sum(one.action is Action.PREEMPT for one in llm.explain(output.request_id))
        for output in found
    ]
    assert sum(lost) >= 8 and max(lost) >= 2
    for one, other in zip(found, expected, strict=True):
        assert one.prompt_token_ids == other.prompt_token_ids
        mine, theirs = one.outputs[0], other.outputs[0]
        assert (mine.token_ids, mine.finish_reason) == (theirs.token_ids, theirs.finish_reason)
        assert mine.logprobs is not None and theirs.logprobs is not None
        assert [list(entry) for entry in mine.logprobs] == [list(e) for e in theirs.logprobs]
        for entry, same in zip(mine.logprobs, theirs.logprobs, strict=True):
            for token, score in entry.items():
                assert score.logprob == pytest.approx(same[token].logprob, abs=1e-4)
