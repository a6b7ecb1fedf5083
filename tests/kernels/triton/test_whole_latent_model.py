"""A model with latent attention on all of Triton's kernels, in the interpreter: the answers of
plain torch."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from jackfield import LLM, SamplingParams
from jackfield.core.testing.tiny_model import write_tiny_model

pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="others compare on a GPU"),
    pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning"),
]
PROMPTS = [[5, 6, 7], [9, 8, 7, 6, 5] * 8]
MODEL = {
    "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "hidden_size": 64,
    "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 4, "kv_lora_rank": 32, "q_lora_rank": None, "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 32, "v_head_dim": 16, "moe_intermediate_size": 32, "n_routed_experts": 4,
    "n_shared_experts": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 2, "n_group": 1,
    "topk_group": 1, "topk_method": "greedy", "norm_topk_prob": False,
    "routed_scaling_factor": 1.0, "vocab_size": 300, "max_position_embeddings": 64,
}  # fmt: skip


def answers(folder: Path, *stack: str, **settings: Any) -> tuple[list[list[int]], dict[str, str]]:
    with torch.device("cpu"):
        llm = LLM(
            str(folder), dtype="float32", max_num_seqs=4, device="cpu", load_format="dummy",
            **{"kernel.stack": list(stack), "cache.num_blocks": 16, **settings},
        )  # fmt: skip
        params = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True, detokenize=False)
        prompts = [{"prompt_token_ids": prompt} for prompt in PROMPTS]
        found = llm.generate(prompts, params, use_tqdm=False)
        operations = llm.assembly.summary.operations
        llm.close()
    assert not any(output.error for request in found for output in request.outputs)
    return [request.outputs[0].token_ids for request in found], operations


@pytest.mark.parametrize(("changes", "cache"), [
    ({}, ["paged", "prefix"]),
    ({"q_lora_rank": 24}, ["paged", "prefix", "fp8"]),
])  # fmt: skip
def test_tokens_and_who_attends(tmp_path: Path, changes: dict[str, Any], cache: list[str]) -> None:
    folder = write_tiny_model(tmp_path / "model")
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), **MODEL, **changes}
    del config["head_dim"]
    path.write_text(json.dumps(config))
    settings = {"cache.stack": cache, "max_num_batched_tokens": 24}
    wanted, _ = answers(folder, "torch", **settings)
    assert len({token for answer in wanted for token in answer}) > 3
    found, owners = answers(
        folder, "triton", "torch", **settings, **{"kernel.triton.interpret": True}
    )
    assert found == wanted
    assert owners["attention"] == "triton"
