"""On a GPU: Triton's kernels in CUDA graphs give the answers of torch and of transformers."""

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from jackfield import LLM, SamplingParams
from jackfield.core.engine.steps import BlockUpdate, Join, Slice, StepPlan

pytestmark = pytest.mark.gpu
MakeModel = Callable[..., tuple[Path, Any]]
ROOMY, TIGHT = 400, 14


def prompts(count: int = 12) -> list[dict[str, list[int]]]:
    random = Random(3)
    lengths = [1, 15, 16, 17, 40, 100, *(random.randint(1, 60) for _ in range(count - 6))]
    return [{"prompt_token_ids": [random.randrange(498) for _ in range(n)]} for n in lengths]


def answers(folder: Path, params: SamplingParams, **settings: Any) -> list[Any]:
    llm = LLM(
        str(folder), skip_tokenizer_init=True, max_num_seqs=12, max_model_len=160, device="cuda",
        **{"cache.num_blocks": ROOMY, **settings},
    )  # fmt: skip
    found = llm.generate(prompts(), params, use_tqdm=False)
    llm.close()
    return [output for request in found for output in request.outputs]


def stack(*names: str) -> dict[str, Any]:
    return {"kernel.stack": list(names)}


LATENT: dict[str, Any] = {
    "num_key_value_heads": 4, "kv_lora_rank": 32, "q_lora_rank": None, "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 32, "v_head_dim": 16, "moe_intermediate_size": 32, "n_routed_experts": 8,
    "n_shared_experts": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 1, "n_group": 4,
    "topk_group": 2,
}  # fmt: skip
"""Of sizes that the kernels serve."""
ALL_EXPERTS: dict[str, Any] = {"num_experts_per_tok": 8, "topk_group": 4}
"""Nothing is chosen: which expert is next best may hang on how a sum was rounded."""
SHAPES: dict[str, dict[str, Any]] = {
    "qwen3": {}, "qwen2": {}, "llama": {}, "deepseek_v2": LATENT,
    "deepseek_v3": {**LATENT, "q_lora_rank": 24},
}  # fmt: skip


@pytest.fixture(scope="module", params=SHAPES)
def folder(request: pytest.FixtureRequest, make_model: MakeModel) -> Path:
    return make_model(request.param, **SHAPES[request.param])[0]


@pytest.mark.parametrize("num_blocks", [ROOMY, TIGHT])
@pytest.mark.parametrize("overlap", [0, 1, 2])
def test_greedy_tokens_in_float32(folder: Path, overlap: int, num_blocks: int) -> None:
    params = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True, detokenize=False)
    wanted = answers(folder, params, dtype="float32", **stack("torch"))
    settings = {"engine.overlap": overlap, "cache.num_blocks": num_blocks}
    found = answers(folder, params, dtype="float32", **stack("triton", "torch"), **settings)
    assert [output.token_ids for output in found] == [output.token_ids for output in wanted]


@pytest.mark.parametrize("model_type", SHAPES)
def test_bfloat16_answers_part_only_where_two_tokens_are_about_equal(
    make_model: MakeModel, model_type: str, check_partings: Callable[..., None]
) -> None:
    # Of logits beyond 8, which larger weights make, neighbours in bfloat16 are 0.06 apart.
    changes = {**SHAPES[model_type], "initializer_range": 0.1}
    folder, _ = make_model(model_type, **{**changes, **(ALL_EXPERTS if SHAPES[model_type] else {})})
    params = SamplingParams(
        temperature=0, max_tokens=40, ignore_eos=True, detokenize=False, logprobs=2
    )
    wanted = answers(folder, params, dtype="bfloat16", **stack("torch"))
    found = answers(folder, params, dtype="bfloat16", **stack("triton", "torch"))
    check_partings(found, wanted)


def test_what_is_sampled_with_edits_and_scores_equals_torch(folder: Path) -> None:
    """Graphs without sampling, then edits, then a draw; greedy, so that draws can be compared."""
    params = SamplingParams(
        temperature=0, max_tokens=30, ignore_eos=True, detokenize=False, logprobs=3,
        repetition_penalty=1.3, presence_penalty=0.4, logit_bias={7: 2.0, 9: -3.0},
    )  # fmt: skip
    wanted = answers(folder, params, dtype="float32", **stack("torch"))
    found = answers(folder, params, dtype="float32", **stack("triton", "torch"))
    for one, other in zip(found, wanted, strict=True):
        assert one.token_ids == other.token_ids
        mine = [lp[token].logprob for token, lp in zip(one.token_ids, one.logprobs, strict=True)]
        theirs = [lp[t].logprob for t, lp in zip(other.token_ids, other.logprobs, strict=True)]
        assert mine == pytest.approx(theirs, abs=1e-3)


def test_filters_draw_from_what_they_keep(folder: Path) -> None:
    """With top_k 1 every temperature is greedy; graphs that filter and those that do not agree."""
    greedy = SamplingParams(temperature=0, max_tokens=30, ignore_eos=True, detokenize=False)
    one = SamplingParams(
        temperature=0.8, top_k=1, max_tokens=30, ignore_eos=True, detokenize=False, seed=1
    )
    settings = {"dtype": "float32", **stack("triton", "torch")}
    wanted = [output.token_ids for output in answers(folder, greedy, **settings)]
    assert [output.token_ids for output in answers(folder, one, **settings)] == wanted


def test_shared_beginnings_read_once_give_the_same(make_model: MakeModel) -> None:
    """Eight requests with 576 positions in common: grouped decodes against a plain stack."""
    folder, _ = make_model("qwen3", max_position_embeddings=1024)
    random = Random(5)
    common = [random.randrange(498) for _ in range(576)]
    requests = [
        {"prompt_token_ids": common + [random.randrange(498) for _ in range(3 + 5 * i)]}
        for i in range(8)
    ]
    params = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True, detokenize=False)

    def run(**settings: Any) -> Sequence[Any]:
        llm = LLM(
            str(folder), skip_tokenizer_init=True, max_num_seqs=8, dtype="float32", device="cuda",
            **{"cache.num_blocks": ROOMY, **settings},
        )  # fmt: skip
        llm.generate(requests[:1], params, use_tqdm=False)
        found = llm.generate(requests, params, use_tqdm=False)
        llm.close()
        return [output.token_ids for request in found for output in request.outputs]

    wanted = run(**stack("torch"), **{"cache.stack": ["paged"]})
    assert run(**stack("triton", "torch")) == wanted


def whole_prompt(ids: Sequence[int]) -> StepPlan:
    params = SamplingParams(temperature=0)
    plan = StepPlan(0, [Slice(0, 0, 0, len(ids), ids, 1, False)])
    plan.joins.append(Join(0, 0, params, 0, ids, (), frozenset(), ()))
    plan.blocks.append(BlockUpdate(0, 0, list(range(-(-len(ids) // 16)))))
    return plan


def test_logits_of_a_model_of_real_size_are_those_of_transformers(make_model: MakeModel) -> None:
    sizes = {
        "vocab_size": 151_936, "hidden_size": 1024, "intermediate_size": 3072, "head_dim": 128,
        "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
        "max_position_embeddings": 4096, "initializer_range": 0.02, "tie_word_embeddings": True,
    }  # fmt: skip
    with torch.device("cuda"):
        folder, model = make_model("qwen3", dtype=torch.bfloat16, **sizes)
    random = Random(1)
    ids = [random.randrange(150_000) for _ in range(700)]
    exact = model.float()(torch.tensor([ids], device="cuda")).logits[0].detach()
    rough = model.bfloat16()(torch.tensor([ids], device="cuda")).logits[0].detach().float()
    del model
    llm = LLM(
        str(folder), skip_tokenizer_init=True, max_num_seqs=4, max_model_len=1024, device="cuda",
        dtype="bfloat16", **{"cache.num_blocks": 100},
    )  # fmt: skip
    found = llm.assembly.loaded.executor.logits(whole_prompt(ids))
    ours, theirs = (float((x - exact).norm() / exact.norm()) for x in (found, rough))
    print(f"distance from float32: ours {ours:.4f}, transformers in bfloat16 {theirs:.4f}")
    assert ours < 1.3 * theirs + 1e-3
    assert float((found.argmax(-1) == exact.argmax(-1)).float().mean()) > 0.9
    llm.close()


def test_latent_prompts_of_all_forms_give_the_same(make_model: MakeModel) -> None:
    """Whole, in chunks, and a few tokens after a long cached past, beside decodes."""
    folder, _ = make_model("deepseek_v2", **LATENT, max_position_embeddings=4096)
    random = Random(7)
    common = [random.randrange(498) for _ in range(2000)]
    requests = [
        {"prompt_token_ids": common[: 2000 - 16 * i] + [random.randrange(498) for _ in range(i)]}
        for i in range(1, 9)
    ]
    params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True, detokenize=False)

    def run(tokens: int, **settings: Any) -> Sequence[Any]:
        llm = LLM(
            str(folder), skip_tokenizer_init=True, max_num_seqs=8, dtype="float32", device="cuda",
            max_num_batched_tokens=tokens, **{"cache.num_blocks": 2000, **settings},
        )  # fmt: skip
        llm.generate(requests[:1], params, use_tqdm=False)
        found = llm.generate(requests, params, use_tqdm=False)
        llm.close()
        return [output.token_ids for request in found for output in request.outputs]

    wanted = run(4096, **stack("torch"), **{"cache.stack": ["paged"]})
    for tokens in (4096, 300):
        assert run(tokens, **stack("triton", "torch")) == wanted
