"""`LLM` on a tiny model: prompts of all forms, scores, stops, refusals, the end."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from jackfield import LLM, RequestOutput, SamplingParams
from jackfield.core.api import (
    ConfigError,
    ContextLengthExceeded,
    EngineStoppedError,
    RequestError,
    TokenizerError,
)

TEXT = "the cat sat on the mat"
GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)


@pytest.fixture(scope="module")
def llm(folder: Path, small: dict[str, Any]) -> Iterator[LLM]:
    with LLM(folder, **small) as made:
        yield made


@pytest.fixture
def ids(llm: LLM) -> list[int]:
    tokenizer = llm.assembly.tokenizer
    assert tokenizer is not None
    return tokenizer.encode(TEXT)


def generate(llm: LLM, prompts: Any, params: Any = GREEDY, **options: Any) -> list[RequestOutput]:
    return llm.generate(prompts, params, use_tqdm=False, **options)


def tokens(outputs: list[RequestOutput]) -> list[list[int]]:
    return [output.outputs[0].token_ids for output in outputs]


def free_blocks(llm: LLM) -> int:
    return llm.assembly.engine.lifecycle.planner.pool.num_free


def test_a_prompt_may_be_a_text_ids_or_a_dict(llm: LLM, ids: list[int]) -> None:
    [plain] = generate(llm, TEXT)
    assert plain.prompt == TEXT
    assert plain.prompt_token_ids == ids
    assert len(plain.outputs[0].token_ids) == 12
    for prompt in (ids, {"prompt": TEXT}, {"prompt_token_ids": ids}, tuple(ids)):
        assert tokens(generate(llm, prompt)) == tokens([plain])
    many = generate(llm, [TEXT, ids, {"prompt": TEXT}, {"prompt_token_ids": ids}])
    assert tokens(many) == tokens([plain]) * 4


def test_ids_win_over_the_text_beside_them(llm: LLM, ids: list[int]) -> None:
    [output] = generate(llm, {"prompt": "as rendered", "prompt_token_ids": ids})
    assert (output.prompt, output.prompt_token_ids) == ("as rendered", ids)


def test_no_prompts_no_answers(llm: LLM) -> None:
    assert generate(llm, []) == []


def test_answers_come_in_the_order_of_the_prompts(llm: LLM) -> None:
    prompts = [[5 + index] for index in range(20)]
    params = [GREEDY.with_(max_tokens=20 - index) for index in range(20)]
    outputs = generate(llm, prompts, params)
    assert [len(found) for found in tokens(outputs)] == list(range(20, 0, -1))
    alone = [tokens(generate(llm, *pair))[0] for pair in zip(prompts, params, strict=True)]
    assert tokens(outputs) == alone
    assert all(output.finished for output in outputs)


def test_parameters_are_one_for_all_or_one_each(llm: LLM) -> None:
    with pytest.raises(RequestError, match="2 params for 3 prompts"):
        generate(llm, [[5], [6], [7]], [GREEDY, GREEDY])
    with pytest.raises(RequestError, match="1 priority for 2 prompts"):
        generate(llm, [[5], [6]], priority=[1])


def test_without_parameters_the_model_decides(llm: LLM) -> None:
    assert llm.default_sampling_params() == SamplingParams(temperature=0.5, top_k=7)


def test_several_answers_to_one_prompt(llm: LLM) -> None:
    params = SamplingParams(n=3, temperature=1.5, seed=11, max_tokens=8, ignore_eos=True)
    [output] = generate(llm, TEXT, params)
    assert [answer.index for answer in output.outputs] == [0, 1, 2]
    assert len({tuple(answer.token_ids) for answer in output.outputs}) == 3
    assert output.outputs[0].token_ids == tokens(generate(llm, TEXT, params.with_(n=1)))[0]
    again = generate(llm, [TEXT, [9]], [params, GREEDY])[0]
    assert again.outputs == output.outputs


def reference(folder: Path, ids: list[int]) -> torch.Tensor:
    """Log-probabilities after each position, by another implementation."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        return torch.log_softmax(model(torch.tensor([ids])).logits[0], dim=-1)


def test_scores_are_the_models(llm: LLM, folder: Path, ids: list[int]) -> None:
    [output] = generate(llm, TEXT, GREEDY.with_(logprobs=3, prompt_logprobs=2))
    answer = output.outputs[0]
    assert answer.logprobs is not None and output.prompt_logprobs is not None
    everything = [*ids, *answer.token_ids]
    expected = reference(folder, everything)
    assert output.prompt_logprobs[0] is None
    found = [*output.prompt_logprobs[1:], *answer.logprobs]
    for position, scores in enumerate(found, start=1):
        assert scores is not None
        check_scores(scores, everything[position], expected[position - 1])
    assert [len(scores) for scores in answer.logprobs] == [3] * 12
    total = sum(scores[token].logprob for scores, token in zip(answer.logprobs, answer.token_ids,
                                                               strict=True))  # fmt: skip
    assert answer.cumulative_logprob == pytest.approx(total)


def check_scores(scores: dict[int, Any], token: int, expected: torch.Tensor) -> None:
    assert next(iter(scores)) == token
    best = expected.topk(2).indices.tolist()
    assert set(best) <= set(scores)
    for index, score in scores.items():
        assert score.logprob == pytest.approx(expected[index].item(), abs=1e-4)
        assert score.rank == 1 + int((expected > expected[index]).sum())


def test_scores_only_when_wanted(llm: LLM) -> None:
    [output] = generate(llm, TEXT)
    assert output.prompt_logprobs is None
    assert output.outputs[0].logprobs is None
    assert output.outputs[0].cumulative_logprob is None


def test_a_stop_string_ends_the_work_too(llm: LLM) -> None:
    metrics = llm.assembly.engine.metrics
    params = GREEDY.with_(max_tokens=40)
    full = generate(llm, TEXT, params)[0].outputs[0]
    tokenizer = llm.assembly.tokenizer
    assert tokenizer is not None
    stop = tokenizer.decode(full.token_ids[4:6])
    before = metrics.steps
    ended = generate(llm, TEXT, params.with_(stop=["nowhere", stop]))[0].outputs[0]
    assert (ended.finish_reason, ended.stop_reason) == ("stop", stop)
    assert ended.text == full.text[: full.text.index(stop)]
    assert ended.token_ids == full.token_ids[: len(ended.token_ids)]
    assert len(ended.token_ids) <= 6
    assert metrics.steps - before == len(ended.token_ids)
    assert generate(llm, TEXT, params)[0].outputs[0] == full


def test_a_stop_id_is_told_and_not_shown(llm: LLM) -> None:
    full = generate(llm, TEXT)[0].outputs[0]
    stop = full.token_ids[5]
    ended = generate(llm, TEXT, GREEDY.with_(stop_token_ids=[stop]))[0].outputs[0]
    first = full.token_ids.index(stop)
    assert ended.token_ids == full.token_ids[: first + 1]
    assert (ended.finish_reason, ended.stop_reason) == ("stop", stop)
    tokenizer = llm.assembly.tokenizer
    assert tokenizer is not None
    assert ended.text == tokenizer.decode(full.token_ids[:first])


def test_without_detokenizing_there_is_no_text(llm: LLM) -> None:
    [plain], [bare] = generate(llm, TEXT), generate(llm, TEXT, GREEDY.with_(detokenize=False))
    assert plain.outputs[0].text and bare.outputs[0].text == ""
    assert tokens([bare]) == tokens([plain])


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([], "prompt 1: the prompt is empty"),
        ("", "prompt 1: the prompt is empty"),
        ([1, 300], "prompt 1: prompt token 1 is 300; token ids of this model are .* 0 to 299"),
        ([1, "2"], "prompt 1: prompt token 1 is '2'"),
        ([True, 2], "prompt 1: prompt token 0 is True"),
        (7, "prompt 1: a prompt must be a text, token ids or a dict, not int"),
        ({"text": "a"}, "prompt 1: a prompt dict has prompt or prompt_token_ids; got text"),
        ({}, "prompt 1: .* got nothing"),
        ({"prompt_token_ids": "12"}, "prompt 1: prompt_token_ids must be a list"),
        ("\udc80", "prompt 1: .*lone surrogate"),
    ],
)
def test_a_bad_prompt_is_named_and_nothing_runs(llm: LLM, bad: Any, message: str) -> None:
    engine = llm.assembly.engine
    steps = engine.metrics.steps
    with pytest.raises(RequestError, match=message):
        generate(llm, [TEXT, bad])
    assert engine.metrics.steps == steps
    assert not engine.has_work


def test_a_prompt_beyond_the_context_is_refused(llm: LLM) -> None:
    with pytest.raises(ContextLengthExceeded, match=r"prompt 2: .* 256 .* 257; shorten"):
        generate(llm, [[5], [6], [7] * 257])
    [output] = generate(llm, [[7] * 250], GREEDY.with_(max_tokens=100))
    assert len(output.outputs[0].token_ids) == 6
    assert output.outputs[0].finish_reason == "length"


def test_prompts_must_be_something_known(llm: LLM) -> None:
    with pytest.raises(RequestError, match=r"prompts must be a text, .* not NoneType"):
        generate(llm, None)


def test_a_chat_goes_through_the_template(llm: LLM) -> None:
    chat = [{"role": "user", "content": "the cat"}]
    text = "<|im_start|>user\nthe cat<|im_end|>\n<|im_start|>assistant\n"
    [output] = llm.chat(chat, GREEDY, use_tqdm=False)
    assert output.prompt == text
    assert tokens([output]) == tokens(generate(llm, text))
    both = llm.chat([chat, chat], GREEDY, use_tqdm=False)
    assert tokens(both) == tokens([output]) * 2


def test_a_failed_step_fails_its_answers_only(
    llm: LLM, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    good = tokens(generate(llm, TEXT))

    def forward(plan: object) -> None:
        raise RuntimeError("the device is on fire")

    with monkeypatch.context() as patch:
        patch.setattr(llm.assembly.engine._executor, "forward", forward)
        answer = generate(llm, TEXT)[0].outputs[0]
    assert answer.finish_reason == "error"
    assert answer.error is not None and "RuntimeError: the device is on fire" in answer.error
    assert tokens(generate(llm, TEXT)) == good
    assert free_blocks(llm) == 64


def test_an_interrupted_call_leaves_nothing_behind(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, count = llm.assembly.engine.step, iter(range(10))

    def interrupted(**given: Any) -> Any:
        if next(count) == 4:
            raise KeyboardInterrupt
        return step(**given)

    with monkeypatch.context() as patch:
        patch.setattr(llm.assembly.engine, "step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            generate(llm, [TEXT, [5, 6]])
    assert free_blocks(llm) == 64
    assert len(tokens(generate(llm, TEXT))[0]) == 12
    assert not llm.assembly.engine.has_work


def test_who_looks_at_the_parts_finds_the_cache_in_order(llm: LLM) -> None:
    generate(llm, [[7] * 40])
    pool = llm._assembly.engine.lifecycle.planner.pool
    assert pool.num_left > 0, "it did not hold up the answer"
    assert pool.num_free == free_blocks(llm) == 64 and pool.num_left == 0


def test_decisions_can_be_asked_for(llm: LLM) -> None:
    [output] = generate(llm, TEXT)
    actions = [str(decision.action) for decision in llm.explain(output.request_id)]
    assert actions == ["arrive", "admit", "finish"]


def test_leaving_the_block_closes_the_engine(folder: Path, small: dict[str, Any]) -> None:
    with LLM(folder, **small) as other:
        assert len(tokens(generate(other, TEXT))[0]) == 12
    with pytest.raises(EngineStoppedError, match="closed"):
        generate(other, TEXT)


def test_without_a_tokenizer_only_ids(folder: Path, small: dict[str, Any]) -> None:
    with LLM(folder, skip_tokenizer_init=True, **small) as other:
        answer = generate(other, [[5, 6]])[0].outputs[0]
        assert (answer.text, len(answer.token_ids)) == ("", 12)
        with pytest.raises(TokenizerError, match="a text prompt needs a tokenizer"):
            generate(other, TEXT)
        with pytest.raises(TokenizerError, match="stop needs a tokenizer"):
            generate(other, [[5]], GREEDY.with_(stop="a"))


def test_an_unknown_name_is_refused_with_the_nearest(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown flag 'max_model_length'.*'max_model_len'"):
        LLM(folder, max_model_length=7)
