"""Other architectures that compute exactly what the default model does, since its weights are in
them: a wrong loader, wrong heads or wrong experts change its text.

Shape suffixes: O and I outputs and inputs of a product.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from jackfield import LLM, SamplingParams
from jackfield.core.checkpoint.default_model import default_model
from jackfield.core.checkpoint.progress import SilentProgress

pytestmark = pytest.mark.default_model
HEAD, EXPERTS, FEW_LAYERS = 64, 4, 1
QUESTION = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]
SMALL: dict[str, Any] = {
    "num_gpu_blocks_override": 16, "max_num_seqs": 1, "max_num_batched_tokens": 64,
    "engine.threads": 1,
}  # fmt: skip
TEXT = "The capital of France is Paris."
Tensors = dict[str, Tensor]
Made = tuple[dict[str, Any], Tensors]
"""What changes in the config, and tensors that are new or others."""


@pytest.fixture(scope="module")
def folder() -> Path:
    return default_model(SilentProgress())


@pytest.fixture(scope="module")
def tensors(folder: Path) -> Mapping[str, Tensor]:
    return load_file(folder / "model.safetensors")


def qwen2(tensors: Mapping[str, Tensor]) -> Made:
    """Biases are zero."""
    biases = {
        name.replace("weight", "bias"): torch.zeros(len(weight), dtype=weight.dtype)
        for name, weight in tensors.items()
        if any(f"{part}_proj" in name for part in "qkv")
    }
    return {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}, biases


def wider(tensors: Mapping[str, Tensor]) -> Made:
    """12 heads instead of 9, 4 of keys and values instead of 3; the new ones lead nowhere."""
    changed = {}
    for name, weight_OI in tensors.items():
        if any(f"{part}_proj" in name for part in "qkv"):
            rows = HEAD * (3 if "q_proj" in name else 1)
            new_OI = torch.randn(rows, weight_OI.shape[1]).to(weight_OI)
            changed[name] = torch.cat([weight_OI, new_OI])
        elif "o_proj" in name:
            changed[name] = torch.cat([weight_OI, weight_OI.new_zeros(len(weight_OI), 3 * HEAD)], 1)
    return {"num_attention_heads": 12, "num_key_value_heads": 4, "head_dim": HEAD}, changed


WHOLE: Mapping[str, Callable[[Mapping[str, Tensor]], Made]] = {"qwen2": qwen2, "wider": wider}


@pytest.mark.parametrize("name", WHOLE)
def test_the_text_is_that_of_the_default_model(
    name: str, folder: Path, tensors: Mapping[str, Tensor], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    config, changed = WHOLE[name](tensors)
    _describe(folder, tmp_path, config)
    (tmp_path / "base.safetensors").symlink_to(folder / "model.safetensors")
    save_file(changed, tmp_path / "changed.safetensors")
    places = dict.fromkeys(tensors, "base.safetensors") | dict.fromkeys(
        changed, "changed.safetensors"
    )
    index = json.dumps({"weight_map": places})
    (tmp_path / "model.safetensors.index.json").write_text(index)
    params = SamplingParams(temperature=0, max_tokens=8)
    with LLM(tmp_path, progress=SilentProgress(), **SMALL) as llm:
        answer = llm.chat(QUESTION, params, use_tqdm=False)[0].outputs[0]
        assert (answer.text, answer.finish_reason) == (TEXT, "stop")


def few(tensors: Mapping[str, Tensor]) -> Made:
    """The first layers: enough for experts, which take much memory."""
    return {"num_hidden_layers": FEW_LAYERS}, _first_layers(tensors)


def mixtral(tensors: Mapping[str, Tensor]) -> Made:
    """Every expert is the plain part, so that it does not matter who is chosen."""
    names = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
    config = {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral",
              "num_local_experts": EXPERTS, "num_experts_per_tok": 2}  # fmt: skip
    return _with_experts(tensors, config, "block_sparse_moe", names)


def qwen2_moe(tensors: Mapping[str, Tensor]) -> Made:
    """The same beside a shared expert that gives nothing."""
    names = {part: part for part in ("gate_proj", "up_proj", "down_proj")}
    config, changed = _with_experts(tensors, {
        "architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe",
        "num_experts": EXPERTS, "num_experts_per_tok": 2, "norm_topk_prob": True,
        "moe_intermediate_size": 1536, "shared_expert_intermediate_size": 64, "qkv_bias": False,
    }, "mlp", names)  # fmt: skip
    for layer in range(FEW_LAYERS):
        block = f"model.layers.{layer}.mlp"
        shared = {"gate_proj": (64, 576), "up_proj": (64, 576), "down_proj": (576, 64)}
        for part, shape in shared.items():
            zeros = torch.zeros(shape) if part == "down_proj" else torch.randn(shape)
            changed[f"{block}.shared_expert.{part}.weight"] = zeros.bfloat16()
        changed[f"{block}.shared_expert_gate.weight"] = torch.randn(1, 576).bfloat16()
    return config, changed


def _with_experts(
    tensors: Mapping[str, Tensor], config: dict[str, Any], block: str, names: Mapping[str, str]
) -> Made:
    few_config, changed = few(tensors)
    for layer in range(FEW_LAYERS):
        prefix = f"model.layers.{layer}"
        for part, name in names.items():
            weight = changed.pop(f"{prefix}.mlp.{part}.weight")
            for expert in range(EXPERTS):
                changed[f"{prefix}.{block}.experts.{expert}.{name}.weight"] = weight.clone()
        changed[f"{prefix}.{block}.gate.weight"] = torch.randn(EXPERTS, 576).bfloat16()
    return config | few_config, changed


def _first_layers(tensors: Mapping[str, Tensor]) -> Tensors:
    kept = tuple(f"model.layers.{layer}." for layer in range(FEW_LAYERS))
    return {
        name: tensor
        for name, tensor in tensors.items()
        if not name.startswith("model.layers.") or name.startswith(kept)
    }


def test_equal_experts_give_what_the_plain_part_gives(
    folder: Path, tensors: Mapping[str, Tensor], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    found = []
    for make in (few, mixtral, qwen2_moe):
        place = tmp_path / make.__name__
        place.mkdir()
        config, changed = make(tensors)
        _describe(folder, place, config)
        save_file(changed, place / "model.safetensors")
        found.append(_scores(place))
    for scores in found[1:]:
        torch.testing.assert_close(scores, found[0], atol=1e-3, rtol=1e-3)


def _describe(source: Path, folder: Path, config: Mapping[str, Any]) -> None:
    for name in ("generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(source / name, folder)
    own = json.loads((source / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**own, **config}))


def _scores(folder: Path) -> Tensor:
    """Of tokens of a text, in float32."""
    params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0)
    with LLM(folder, progress=SilentProgress(), dtype="float32", **SMALL) as llm:
        output = llm.generate([TEXT * 4], params, use_tqdm=False)[0]
    assert output.prompt_logprobs is not None
    pairs = zip(output.prompt_token_ids, output.prompt_logprobs, strict=True)
    return torch.tensor([row[token].logprob for token, row in pairs if row is not None])
