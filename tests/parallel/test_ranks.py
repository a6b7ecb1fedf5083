"""One model over processes: the same answers as from one, however tokens are drawn."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from jackfield import LLM, SamplingParams
from jackfield.core.api import ConfigError
from jackfield.core.engine.messages import NewRequest
from jackfield.core.testing.ranks import rank_processes, ranked_llm
from jackfield.core.testing.tiny_llm import tiny_llm
from jackfield.core.testing.tiny_model import VOCAB, write_tiny_model

GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
PROMPTS = [{"prompt_token_ids": [5 + index, 6, 7, *range(20, 40)]} for index in range(6)]
KINDS = (
    GREEDY,
    SamplingParams(temperature=0.8, seed=7, max_tokens=12, ignore_eos=True),
    SamplingParams(temperature=0.9, top_k=9, top_p=0.8, seed=3, max_tokens=12, ignore_eos=True),
    SamplingParams(
        temperature=0, presence_penalty=1.0, logit_bias={9: 2.0}, max_tokens=12, ignore_eos=True
    ),
    SamplingParams(temperature=0, logprobs=2, prompt_logprobs=1, max_tokens=5, ignore_eos=True),
    SamplingParams(temperature=0, min_tokens=4, stop_token_ids=[11], max_tokens=12),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"))


def tokens(llm: LLM, params: Any = GREEDY, prompts: Any = PROMPTS) -> list[list[int]]:
    outputs = llm.generate(prompts, params, use_tqdm=False)
    assert all(output.outputs[0].finish_reason != "error" for output in outputs)
    return [list(output.outputs[0].token_ids) for output in outputs]


@pytest.fixture(scope="module")
def one(folder: Path) -> Iterator[LLM]:
    with ranked_llm(folder, 1) as llm:
        yield llm


@pytest.fixture(scope="module")
def two(folder: Path) -> Iterator[LLM]:
    with ranked_llm(folder, 2, swap_space=0.001, **{"cache.num_blocks": None}) as llm:
        yield llm
    assert rank_processes() == []


def test_all_ways_to_sample_give_the_same(one: LLM, two: LLM) -> None:
    assert len(rank_processes()) == 1
    assert tokens(two, list(KINDS)) == tokens(one, list(KINDS))


def test_scores_are_those_of_one_rank(one: LLM, two: LLM) -> None:
    found, wanted = (llm.generate(PROMPTS[:2], KINDS[4], use_tqdm=False) for llm in (two, one))
    for mine, theirs in zip(found, wanted, strict=True):
        assert mine.prompt_logprobs is not None and theirs.prompt_logprobs is not None
        for ours, expected in zip(mine.prompt_logprobs, theirs.prompt_logprobs, strict=True):
            assert (ours or {}).keys() == (expected or {}).keys()


def test_what_is_banned_late_is_banned_on_all(one: LLM, two: LLM) -> None:
    """Two tokens in a row may not come: what that bans is known after the token before. The second
    is of the other rank's part of the vocabulary, so that it matters what that one draws."""
    first = tokens(one, GREEDY, PROMPTS[:1])[0]
    at = next(at for at in range(1, 20) if first[at] >= VOCAB - 40)
    found = []
    for llm in (one, two):
        engine = llm.assembly.engine
        new = NewRequest(
            "late", [5, 6, 7, *range(20, 40)], GREEDY, banned_sequences=(first[at - 1 : at + 1],)
        )
        engine.add(new)
        answer: list[int] = []
        while engine.has_work:
            answer += [token for delta in engine.step() for token in delta.tokens]
        found.append(answer)
    assert found[0] == found[1]
    assert found[0][:at] == first[:at] and found[0][at] != first[at]


def test_what_works_is_said_before_a_weight_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_tiny_model(tmp_path) / "config.json"
    shape = {"num_attention_heads": 64, "num_key_value_heads": 8, "hidden_size": 1024}
    config.write_text(json.dumps(json.loads(config.read_text()) | shape))
    for file in tmp_path.glob("*.safetensors"):
        file.write_bytes(b"no weights")
    for name in ("init", "set_device", "mem_get_info"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: pytest.fail("a GPU was touched"))
    with pytest.raises(ConfigError, match=r"64 attention heads.* choose a .* of 1") as found:
        tiny_llm(tmp_path, tensor_parallel_size=3)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tensor_parallel_size": 3}, "among 3 ranks: it has 4 attention heads.* 1, 2 or 4"),
        ({"tensor_parallel_size": 4, "nnodes": 3, "master_port": 1}, "does not divide"),
        ({"node_rank": 1}, "of 1 nodes the last one is 0"),
        ({"tensor_parallel_size": 2, "nnodes": 2}, "parallel.master_port is 0"),
    ],
)
def test_what_cannot_be_is_refused_at_once(
    folder: Path, settings: dict[str, Any], message: str
) -> None:
    before = rank_processes()
    with pytest.raises(ConfigError, match=message):
        tiny_llm(folder, **settings)
    assert rank_processes() == before
