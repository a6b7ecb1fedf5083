"""Sampling parameters through the whole engine, on a small random model."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from jackfield import LLM, SamplingParams
from jackfield.core.testing.tiny_llm import tiny_llm

PROMPT = [5, 9, 200, 31, 77, 12, 6]
load = partial(tiny_llm, num_gpu_blocks_override=64)
GREEDY = SamplingParams(temperature=0, max_tokens=10, ignore_eos=True)
Setup = tuple[Path, Any]


@pytest.fixture(scope="module")
def setup(make_model: Callable[..., Setup]) -> Setup:
    return make_model("qwen2")


@pytest.fixture(scope="module")
def llm(setup: Setup) -> Iterator[LLM]:
    with load(setup[0]) as llm:
        yield llm


def tokens(llm: LLM, params: SamplingParams, prompt: list[int] = PROMPT) -> list[int]:
    return llm.generate(prompt, params, use_tqdm=False)[0].outputs[0].token_ids


def edited_greedy(
    model: Any, count: int, edit: Callable[[torch.Tensor, list[int]], torch.Tensor]
) -> list[int]:
    """Greedy decoding by hand, with an edit of the logits before each choice."""
    answer: list[int] = []
    for _ in range(count):
        with torch.inference_mode():
            logits = model(torch.tensor([PROMPT + answer])).logits[0, -1].float()
        logits = logits.clone()
        answer.append(int(edit(logits, answer).argmax()))
    return answer


def test_penalties_equal_their_definition(llm: LLM, setup: Setup) -> None:
    def edit(logits: torch.Tensor, answer: list[int]) -> torch.Tensor:
        seen = torch.tensor(sorted(set(PROMPT + answer)))
        part = logits[seen]
        logits[seen] = torch.where(part > 0, part / 1.3, part * 1.3)
        for token in answer:
            logits[token] -= 0.7
        for token in set(answer):
            logits[token] -= 0.4
        return logits

    params = GREEDY.with_(repetition_penalty=1.3, frequency_penalty=0.7, presence_penalty=0.4)
    assert tokens(llm, params) == edited_greedy(setup[1], 10, edit)


@pytest.mark.parametrize("overlap", [0, 2])
def test_penalties_survive_preemption(setup: Setup, overlap: int) -> None:
    params = GREEDY.with_(max_tokens=40, frequency_penalty=1.5, min_tokens=20, ignore_eos=False)
    prompts = [[index, *PROMPT] for index in range(6)]
    with load(setup[0]) as roomy:
        expected = roomy.generate(prompts, params, use_tqdm=False)
    tight = {"num_gpu_blocks_override": 8, "max_model_len": 100, "engine.overlap": overlap}
    with load(setup[0], **tight) as llm:
        found = llm.generate(prompts, params, use_tqdm=False)
        assert llm.assembly.engine.metrics.preemptions > 0
    for one, other in zip(found, expected, strict=True):
        assert one.outputs[0].token_ids == other.outputs[0].token_ids
        assert one.outputs[0].finish_reason == other.outputs[0].finish_reason


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_bias_forces_and_bans(llm: LLM, temperature: float) -> None:
    base = GREEDY.with_(temperature=temperature, seed=1)
    assert set(tokens(llm, base.with_(logit_bias={17: 100.0}))) == {17}
    natural = tokens(llm, base)[0]
    assert natural not in tokens(llm, base.with_(logit_bias={natural: -100.0}))


def test_allowed_tokens_are_the_only_ones(llm: LLM) -> None:
    params = GREEDY.with_(temperature=2.0, seed=4, allowed_token_ids=[3, 8, 250], max_tokens=40)
    assert set(tokens(llm, params)) == {3, 8, 250}


def test_nothing_left_to_sample_fails_that_request_only(llm: LLM) -> None:
    hopeless = GREEDY.with_(allowed_token_ids=[499], min_tokens=3, ignore_eos=False)
    bad, good = llm.generate([PROMPT, PROMPT], [hopeless, GREEDY], use_tqdm=False)
    assert bad.outputs[0].finish_reason == "error"
    assert "no token that could be sampled" in (bad.outputs[0].error or "")
    assert good.outputs[0].token_ids == tokens(llm, GREEDY)


def test_end_of_sequence_and_stop_ids(llm: LLM) -> None:
    natural = tokens(llm, GREEDY)
    stop = natural[3]
    first = natural.index(stop)
    ended = llm.generate(PROMPT, GREEDY.with_(stop_token_ids=[stop]), use_tqdm=False)[0].outputs[0]
    assert (ended.token_ids, ended.finish_reason) == (natural[: first + 1], "stop")
    assert ended.stop_reason == stop
    force_end = GREEDY.with_(ignore_eos=False, logit_bias={499: 100.0})
    ended = llm.generate(PROMPT, force_end, use_tqdm=False)[0].outputs[0]
    assert (ended.token_ids, ended.finish_reason, ended.stop_reason) == ([499], "stop", None)
    assert len(tokens(llm, force_end.with_(min_tokens=4))) == 5
    assert tokens(llm, force_end.with_(ignore_eos=True)) == [499] * 10


def test_seed_decides_whatever_runs_beside(llm: LLM) -> None:
    params = GREEDY.with_(temperature=1.5, seed=42, top_p=0.95, top_k=50)
    alone = tokens(llm, params)
    crowd = [PROMPT, [1], [2, 3], PROMPT, [4] * 30]
    mixed = [GREEDY, params.with_(seed=1), GREEDY, params, params.with_(seed=None)]
    found = llm.generate(crowd, mixed, use_tqdm=False)
    assert found[3].outputs[0].token_ids == alone
    assert tokens(llm, params.with_(seed=43)) != alone


def test_answers_to_one_prompt_differ_and_repeat(llm: LLM) -> None:
    params = GREEDY.with_(temperature=1.5, seed=7, n=5)
    answers = [out.token_ids for out in llm.generate(PROMPT, params, use_tqdm=False)[0].outputs]
    assert len({tuple(answer) for answer in answers}) == 5
    again = [out.token_ids for out in llm.generate(PROMPT, params, use_tqdm=False)[0].outputs]
    assert again == answers


def test_more_answers_than_seats_run_in_waves(setup: Setup) -> None:
    with load(setup[0], max_num_seqs=2) as llm:
        answer = llm.generate(PROMPT, GREEDY.with_(n=9), use_tqdm=False)[0]
        assert [out.token_ids for out in answer.outputs] == [tokens(llm, GREEDY)] * 9


def test_context_end_is_a_length_finish(setup: Setup) -> None:
    with load(setup[0], max_model_len=32) as llm:
        for wanted in (10_000, None):
            out = llm.generate(PROMPT, GREEDY.with_(max_tokens=wanted), use_tqdm=False)[0]
            assert out.outputs[0].finish_reason == "length"
            assert len(out.outputs[0].token_ids) == 32 - len(PROMPT)


def test_scores_of_the_prompt_alone(llm: LLM) -> None:
    answer = llm.generate(PROMPT, GREEDY.with_(max_tokens=0, prompt_logprobs=0), use_tqdm=False)[0]
    assert answer.outputs[0].token_ids == []
    assert answer.outputs[0].finish_reason == "length"
    assert answer.prompt_logprobs is not None and len(answer.prompt_logprobs) == len(PROMPT)


def test_minus_infinity_is_a_finite_floor(llm: LLM) -> None:
    params = GREEDY.with_(logprobs=5, allowed_token_ids=[3])
    scores = llm.generate(PROMPT, params, use_tqdm=False)[0].outputs[0].logprobs
    assert scores is not None
    assert all(entry.logprob >= -9999.0 for step in scores for entry in step.values())
