"""What a request may hold: ids, numbers, empty prompts, lengths; and that the next one is fine."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from jackfield import LLM, RequestOutput, SamplingParams
from jackfield.core.api import ContextLengthExceeded, RequestError
from jackfield.core.api.output import LOGPROB_FLOOR
from jackfield.core.testing.scripted_folder import BEGIN, byte_id
from jackfield.core.testing.tiny_model import VOCAB, write_tiny_model

GREEDY = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
FLOATS = (
    "temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty",
    "repetition_penalty",
)  # fmt: skip
NO_NUMBERS = [math.nan, math.inf, -math.inf, 10**400, -(10**5000), "nan", "1", True]


@pytest.fixture(scope="module")
def llm(tiny: Path, small: dict[str, Any]) -> LLM:
    return LLM(tiny, **small)


def ask(llm: LLM, prompt: Any, params: SamplingParams = GREEDY) -> RequestOutput:
    return llm.generate(prompt, params, use_tqdm=False)[0]


@pytest.mark.parametrize("value", NO_NUMBERS, ids=[str(type(v)) for v in NO_NUMBERS])
@pytest.mark.parametrize("name", FLOATS)
def test_no_number_is_refused_in_a_short_sentence(name: str, value: Any) -> None:
    with pytest.raises(RequestError) as refused:
        SamplingParams(**{name: value})
    assert refused.value.param == name
    assert str(refused.value).startswith(name) and len(str(refused.value)) < 250


@pytest.mark.parametrize("bias", [{5: 1e30}, {5: None}, {5: 10**400}, {"abc": 1}, {-1: 1}])
def test_no_bias(bias: Any) -> None:
    with pytest.raises(RequestError) as refused:
        SamplingParams(logit_bias=bias)
    assert refused.value.param == "logit_bias"


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([1, 2, 5279552648203111001], r"prompt token 2 is 5279552648203111001; .* 0 to 299"),
        ([VOCAB], r"prompt token 0 is 300; .* 0 to 299"),
        ([1, -(2**70)], r"prompt token 1 is -\d+"),
        ([1, 10**5000], r"prompt token 1 is .*0 to 299"),
        ([1.5, 2], r"prompt token 0 is 1.5"),
    ],
)
def test_ids_outside_the_vocabulary(llm: LLM, prompt: list[Any], message: str) -> None:
    with pytest.raises(RequestError, match=message) as refused:
        llm.generate([prompt], GREEDY, use_tqdm=False)
    assert refused.value.param == "prompt" and len(str(refused.value)) < 250
    assert len(ask(llm, [VOCAB - 1]).outputs[0].token_ids) == 4


def test_ids_that_only_the_model_knows(
    scripted: Callable[..., Path], load: Callable[..., LLM]
) -> None:
    """A model may have more rows than its tokenizer has tokens."""
    llm = load(scripted({"a": ["b"]}, vocab_size=300))
    assert ask(llm, [299, byte_id("a")]).outputs[0].text == ""
    with pytest.raises(RequestError, match="0 to 299"):
        ask(llm, [300])


@pytest.mark.parametrize("prompts", ["", [""], [[]], [[5], []], {"prompt": ""}])
def test_an_empty_prompt_without_a_begin_token(llm: LLM, prompts: Any) -> None:
    with pytest.raises(RequestError, match="the prompt is empty"):
        llm.generate(prompts, GREEDY, use_tqdm=False)
    assert len(ask(llm, [5]).outputs[0].token_ids) == 4


def test_a_begin_token_is_a_prompt(scripted: Callable[..., Path], load: Callable[..., LLM]) -> None:
    llm = load(scripted({"<begin>": ["hello"]}, begin=True))
    found = ask(llm, "", GREEDY.with_(ignore_eos=False))
    assert (found.prompt_token_ids, found.outputs[0].text) == ([BEGIN], "hello")
    with pytest.raises(RequestError, match="the prompt is empty"):
        ask(llm, {"prompt_token_ids": []})


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "non-empty list of messages"),
        ([{"role": "user", "content": "a"}] * 2, "roles must alternate"),
        ([{"role": "poet", "content": "a"}], "no such role"),
        ([{"role": "", "content": "a"}], r"messages\[0\].role"),
        ([{"role": "user", "content": 7}], r"messages\[0\].content"),
    ],
)
def test_messages_that_the_template_refuses(
    scripted: Callable[..., Path], load: Callable[..., LLM], messages: Any, message: str
) -> None:
    template = (
        "{% for m in messages %}{% if m.role not in ['user', 'assistant'] %}"
        "{{ raise_exception('no such role') }}{% endif %}"
        "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('roles must alternate') }}{% endif %}{{ m.content }}{% endfor %}"
    )
    llm = load(scripted({"a": ["b"]}, template=template))
    with pytest.raises(RequestError, match=message) as refused:
        llm.chat([messages], GREEDY, use_tqdm=False)
    assert refused.value.param == "messages"
    [found] = llm.chat([{"role": "user", "content": [{"type": "text", "text": "a"}]}],
                       GREEDY.with_(ignore_eos=False), use_tqdm=False)  # fmt: skip
    assert found.outputs[0].text == "b"


@pytest.mark.parametrize("length", [63, 64, 65, 10_000])
@pytest.mark.parametrize("wanted", [0, 1, None])
@pytest.mark.parametrize("as_text", [False, True])
def test_lengths_around_the_context(
    tiny: Path, load: Callable[..., LLM], length: int, wanted: int | None, as_text: bool
) -> None:
    llm = load(tiny, max_model_len=64)
    prompt: Any = "#" * length if as_text else [5] * length
    params = GREEDY.with_(max_tokens=wanted)
    if length > 64 or (length == 64 and wanted != 0):
        with pytest.raises(ContextLengthExceeded, match=rf"prompt 1: .* 64 tokens.* {length}"):
            llm.generate(["#", prompt], params, use_tqdm=False)
        assert len(ask(llm, "#").outputs[0].token_ids) == 4
        return
    short, long = llm.generate(["#", prompt], params, use_tqdm=False)
    assert len(long.outputs[0].token_ids) == min(64 - length, 64 if wanted is None else wanted)
    assert len(short.outputs[0].token_ids) == (63 if wanted is None else wanted)
    assert {long.outputs[0].finish_reason, short.outputs[0].finish_reason} == {"length"}


@pytest.mark.parametrize("count", [9, 64])
def test_more_answers_than_seats(llm: LLM, count: int) -> None:
    found = ask(llm, [5, 6, 7], GREEDY.with_(n=count))
    assert len({tuple(answer.token_ids) for answer in found.outputs}) == 1
    assert {answer.finish_reason for answer in found.outputs} == {"length"}
    assert found.outputs[0].token_ids == ask(llm, [5, 6, 7]).outputs[0].token_ids
    planner = llm.assembly.engine.lifecycle.planner
    assert planner.pool.num_free == planner.pool.num_blocks


def strict(found: RequestOutput) -> list[float]:
    """All scores, through a parser that knows no infinities."""
    entries = [*(found.prompt_logprobs or ()), *(found.outputs[0].logprobs or ())]
    values = [one.logprob for entry in entries if entry for one in entry.values()]

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    parsed: list[float] = json.loads(json.dumps(values), parse_constant=refuse)
    return parsed


@pytest.mark.parametrize("params", [{}, {"top_k": 1, "temperature": 1.0, "seed": 1}])
@pytest.mark.parametrize("scale", [0.0, 1e38])
def test_scores_that_are_infinite(
    tmp_path: Path, load: Callable[..., LLM], params: dict[str, Any], scale: float
) -> None:
    """A model whose logits overflow, beside one whose likeliest token takes all."""
    folder = write_tiny_model(tmp_path)
    weights = load_file(folder / "model.safetensors")
    weights["lm_head.weight"] *= scale
    weights["lm_head.weight"][7] = 1e30 * weights["model.norm.weight"]
    save_file(weights, folder / "model.safetensors")
    found = ask(load(folder), [5, 6], GREEDY.with_(logprobs=20, prompt_logprobs=20, **params))
    values = strict(found)
    assert len(values) >= 5 * 20
    assert min(values) >= LOGPROB_FLOOR and max(values) <= 0.0


@pytest.mark.parametrize("kernels", [["torch"], ["cpu", "torch"]])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_no_numbers_fail_their_request_only(
    tmp_path: Path, load: Callable[..., LLM], kernels: list[str], temperature: float
) -> None:
    """The embedding of one token is broken; prompts without it are answered."""
    folder = write_tiny_model(tmp_path)
    weights = load_file(folder / "model.safetensors")
    weights["model.embed_tokens.weight"][9] = math.nan
    save_file(weights, folder / "model.safetensors")
    llm = load(folder, **{"kernel.stack": kernels})
    params = GREEDY.with_(temperature=temperature, seed=1, logprobs=1, logit_bias={9: -100.0})
    bad, good = llm.generate([[9], [5]], params, use_tqdm=False)
    assert bad.outputs[0].finish_reason == "error"
    assert "logits that are no numbers" in (bad.outputs[0].error or "")
    assert good.outputs[0].token_ids == ask(llm, [5], params).outputs[0].token_ids
    assert len(good.outputs[0].token_ids) == 4


def test_a_template_that_always_fails_is_told_at_the_start(
    scripted: Callable[..., Path], load: Callable[..., LLM]
) -> None:
    llm = load(scripted({"a": ["b"]}, template="{{ raise_exception('never') }}"))
    [notice] = llm.assembly.summary.notices
    assert "a plain chat fails" in notice and "never" in notice
