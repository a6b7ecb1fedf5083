"""Logits of every architecture and option equal those of the reference implementation."""

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedModel

from jackfield.core.api.model import Shard
from jackfield.core.checkpoint.folder import ModelFolder
from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.core.checkpoint.safetensors_weights import SafetensorsWeights
from jackfield.plugins.models.llama import Llama
from jackfield.plugins.models.qwen2 import Qwen2
from jackfield.plugins.models.qwen3 import Qwen3

CLOSE = 5e-5
"""Logits reach 10, so this is a few roundings of float32."""
MODELS: Mapping[str, Any] = {"llama": Llama, "mistral": Llama, "qwen2": Qwen2, "qwen3": Qwen3}
TINY = {
    "vocab_size": 500,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "initializer_range": 0.2,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
LONG = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
"""As the documentation of Qwen2.5 has it added by hand; max_position_embeddings stays as it was."""
DEEPSEEK = {
    "num_key_value_heads": 4, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "rope_scaling": None,
    "pretraining_tp": 1, "attention_bias": False, "attention_dropout": 0.0, "hidden_act": "silu",
    "bos_token_id": 498, "eos_token_id": 499, "use_cache": True,
}  # fmt: skip
"""The keys of deepseek-llm."""
SLIDING = {"use_sliding_window": True, "sliding_window": 8}
TYPES = ["sliding_attention", "full_attention", "sliding_attention"]
CASES = {
    "llama": ("llama", {}),
    "llama tied": ("llama", {"tie_word_embeddings": True}),
    "llama biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama wide heads": ("llama", {"head_dim": 32}),
    "llama null values": ("llama", {"head_dim": None, "num_key_value_heads": None}),
    "llama theta": ("llama", {"rope_theta": 500000.0}),
    "llama linear": ("llama", {"rope_scaling": {"type": "linear", "factor": 4.0}}),
    "llama llama3": ("llama", {"rope_scaling": LLAMA3, "rope_theta": 500000}),
    "llama parameters": ("llama", {"rope_parameters": {**LLAMA3, "rope_theta": 1e5}}),
    "llama deepseek 7b": ("llama", DEEPSEEK),
    "llama deepseek 67b": ("llama", {**DEEPSEEK, "num_key_value_heads": 1}),
    "llama ignores window": ("llama", {"sliding_window": 8}),
    "mistral window": ("mistral", {"sliding_window": 8}),
    "mistral no window": ("mistral", {"sliding_window": None}),
    "qwen2": ("qwen2", {}),
    "qwen2 tied": ("qwen2", {"tie_word_embeddings": True}),
    "qwen2 yarn": ("qwen2", {"rope_scaling": YARN}),
    "qwen2 long": ("qwen2", {"rope_scaling": LONG, "max_position_embeddings": 32}),
    "qwen2 long factor": ("qwen2", {"rope_scaling": {**LONG, "attention_factor": 1.3}}),
    "qwen2 long mscale": ("qwen2", {"rope_scaling": {**LONG, "mscale": 1, "mscale_all_dim": 0.5}}),
    "qwen2 window off": ("qwen2", {"use_sliding_window": False, "sliding_window": 8}),
    "qwen2 window all": ("qwen2", {**SLIDING, "max_window_layers": 0}),
    "qwen2 window upper": ("qwen2", {**SLIDING, "max_window_layers": 1}),
    "qwen2 window none": ("qwen2", {**SLIDING, "max_window_layers": 3}),
    "qwen2 window types": ("qwen2", {**SLIDING, "layer_types": TYPES}),
    "qwen3": ("qwen3", {"head_dim": 32}),
    "qwen3 biases": ("qwen3", {"head_dim": 16, "attention_bias": True}),
    "qwen3 window upper": ("qwen3", {**SLIDING, "head_dim": 16, "max_window_layers": 2}),
}


def oracle(kind: str, config: Mapping[str, Any]) -> PreTrainedModel:
    torch.manual_seed(0)
    parsed = CONFIG_MAPPING[kind](**{**config, "attn_implementation": "eager"})
    model = AutoModelForCausalLM.from_config(parsed).eval()
    with torch.no_grad():  # norms and biases are ones and zeros, which would hide a mistake
        for weight in model.parameters():
            if weight.ndim == 1:
                weight.add_(torch.randn(weight.shape) * 0.3)
    return model


def config_of(changes: Mapping[str, Any], kind: str) -> dict[str, Any]:
    return {**TINY, **{key: _copy(value) for key, value in changes.items()}, "model_type": kind}


def _copy(value: Any) -> Any:
    return dict(value) if isinstance(value, dict) else value


def build(kind: str, config: Mapping[str, Any], expected: PreTrainedModel, ref: ModuleType) -> Any:
    tensors = expected.state_dict()
    if config["tie_word_embeddings"]:
        del tensors["lm_head.weight"]
    weights = ref.DictWeights(tensors)
    model = MODELS[kind](config, ref.operations(), Shard(), weights)
    assert not weights.left
    return model


def tokens(count: int) -> list[int]:
    return torch.randint(0, 500, (count,), generator=torch.Generator().manual_seed(1)).tolist()


def whole(model: PreTrainedModel, ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return model(torch.tensor([ids])).logits[0]


@pytest.mark.parametrize("case", CASES)
def test_logits_equal_the_reference(case: str, reference: ModuleType) -> None:
    kind, changes = CASES[case]
    expected = oracle(kind, config_of(changes, kind))
    config = config_of(changes, kind)
    model = build(kind, config, expected, reference)
    spec = MODELS[kind].describe(config)
    ids = tokens(40)
    right = whole(expected, ids)
    for cuts in ([], [7, 8, 23], range(1, 40)):
        found = reference.run(model, spec, ids, cuts, prompt_len=40)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, right, atol=CLOSE, rtol=CLOSE)


@pytest.mark.parametrize("case", CASES)
def test_described_sizes_equal_the_reference(case: str) -> None:
    kind, changes = CASES[case]
    expected = oracle(kind, config_of(changes, kind))
    spec = MODELS[kind].describe(config_of(changes, kind))
    assert spec.num_parameters == expected.num_parameters()
    assert spec.softmax_scale == expected.model.layers[0].self_attn.scaling
    windows = [None] * 3
    for group in spec.groups:
        for layer in group.layers:
            windows[layer] = group.window
    attentions = [layer.self_attn for layer in expected.model.layers]
    default = getattr(expected.config, "sliding_window", None) if kind == "mistral" else None
    assert windows == [getattr(one, "sliding_window", default) for one in attentions]


@pytest.mark.parametrize("length", [20, 31, 32, 33, 70])
def test_dynamic_rope_at_any_length(length: int, reference: ModuleType) -> None:
    changes = {
        "max_position_embeddings": 32,
        "rope_scaling": {"type": "dynamic", "factor": 4.0},
    }
    expected = oracle("llama", config_of(changes, "llama"))
    config = config_of(changes, "llama")
    model = build("llama", config, expected, reference)
    spec = Llama.describe(config)
    assert spec.uses_prompt_lens and spec.max_positions == 128
    ids = tokens(length)
    right = whole(expected, ids)
    for cuts in ([], [7, 19]):
        found = reference.run(model, spec, ids, cuts, prompt_len=length)
        torch.testing.assert_close(found, right, atol=CLOSE, rtol=CLOSE)


def test_dynamic_rope_while_an_answer_outgrows_the_original_length(reference: ModuleType) -> None:
    changes = {"max_position_embeddings": 32, "rope_scaling": {"type": "dynamic", "factor": 4.0}}
    expected = oracle("llama", config_of(changes, "llama"))
    config = config_of(changes, "llama")
    model = build("llama", config, expected, reference)
    ids = tokens(28)
    answer = expected.generate(
        torch.tensor([ids]),
        max_new_tokens=12,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_logits=True,
    )
    ids = answer.sequences[0].tolist()[:-1]
    found = reference.run(model, Llama.describe(config), ids, range(28, 39), prompt_len=28)
    torch.testing.assert_close(found[27:], torch.cat(answer.logits), atol=CLOSE, rtol=CLOSE)


def test_a_saved_folder_gives_the_same_logits(tmp_path: Path, reference: ModuleType) -> None:
    expected = oracle("qwen3", config_of({"head_dim": 32, "tie_word_embeddings": True}, "qwen3"))
    expected.save_pretrained(tmp_path, max_shard_size="100KB")
    folder = ModelFolder(tmp_path)
    assert folder.architecture == "Qwen3ForCausalLM"
    files = folder.tensor_files()
    assert len(files.files) > 1
    progress = SilentProgress()
    with SafetensorsWeights(
        files, torch.float32, torch.device("cpu"), Shard(), progress
    ) as weights:
        model = Qwen3(folder.config, reference.operations(), Shard(), weights)
        weights.finish()
    spec = Qwen3.describe(folder.config)
    assert weights.bytes_taken == 4 * spec.num_parameters
    ids = tokens(20)
    found = reference.run(model, spec, ids, [], prompt_len=20)
    torch.testing.assert_close(found, whole(expected, ids), atol=CLOSE, rtol=CLOSE)
