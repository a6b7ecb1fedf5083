"""Models without weights: a config.json by name, for runs whose answers mean nothing."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jackfield.core.api import ConfigError
from jackfield.core.api.errors import nearest

COMMON: Mapping[str, Any] = {
    "hidden_act": "silu", "rms_norm_eps": 1e-6, "torch_dtype": "bfloat16", "attention_bias": False,
}  # fmt: skip
QWEN3: Mapping[str, Any] = {
    **COMMON, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
    "rope_theta": 1_000_000, "max_position_embeddings": 40_960, "vocab_size": 151_936,
    "head_dim": 128, "num_key_value_heads": 8, "bos_token_id": 151_643, "eos_token_id": 151_645,
    "use_sliding_window": False,
}  # fmt: skip
QWEN3_MOE: Mapping[str, Any] = {
    **QWEN3, "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
    "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
    "num_key_value_heads": 4, "tie_word_embeddings": False,
}  # fmt: skip
DEEPSEEK_V2: Mapping[str, Any] = {
    **COMMON, "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2",
    "q_lora_rank": None, "first_k_dense_replace": 1, "moe_layer_freq": 1, "n_shared_experts": 2,
    "topk_method": "greedy", "n_group": 1, "topk_group": 1, "norm_topk_prob": False,
    "scoring_func": "softmax", "routed_scaling_factor": 1.0, "tie_word_embeddings": False,
    "rope_theta": 10_000, "max_position_embeddings": 163_840,
    "rope_scaling": {
        "type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 0.707,
        "mscale_all_dim": 0.707, "original_max_position_embeddings": 4096,
    },
}  # fmt: skip
PLAIN: Mapping[str, Mapping[str, Any]] = {
    "qwen3-tiny": {
        **QWEN3, "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
        "tie_word_embeddings": True, "vocab_size": 32_000, "bos_token_id": 1, "eos_token_id": 2,
    },
    "qwen3-0.6b": {
        **QWEN3, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
        "num_attention_heads": 16, "tie_word_embeddings": True,
    },
    "qwen3-8b": {
        **QWEN3, "hidden_size": 4096, "intermediate_size": 12_288, "num_hidden_layers": 36,
        "num_attention_heads": 32, "tie_word_embeddings": False,
    },
    "qwen3-32b": {
        **QWEN3, "hidden_size": 5120, "intermediate_size": 25_600, "num_hidden_layers": 64,
        "num_attention_heads": 64, "tie_word_embeddings": False,
    },
    "qwen3-moe-tiny": {
        **QWEN3_MOE, "hidden_size": 128, "intermediate_size": 384, "moe_intermediate_size": 64,
        "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
        "num_experts": 16, "num_experts_per_tok": 4, "vocab_size": 32_000, "bos_token_id": 1,
        "eos_token_id": 2,
    },
    "qwen3-30b-a3b": {
        **QWEN3_MOE, "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768,
        "num_hidden_layers": 48, "num_attention_heads": 32, "num_experts": 128,
        "num_experts_per_tok": 8,
    },
    "deepseek-v2-tiny": {
        **DEEPSEEK_V2, "hidden_size": 128, "intermediate_size": 384, "moe_intermediate_size": 64,
        "num_hidden_layers": 3, "num_attention_heads": 4, "kv_lora_rank": 64,
        "qk_rope_head_dim": 16, "qk_nope_head_dim": 32, "v_head_dim": 32, "n_routed_experts": 16,
        "num_experts_per_tok": 4, "vocab_size": 32_000, "bos_token_id": 1, "eos_token_id": 2,
    },
    "deepseek-v2-lite": {
        **DEEPSEEK_V2, "hidden_size": 2048, "intermediate_size": 10_944,
        "moe_intermediate_size": 1408, "num_hidden_layers": 27, "num_attention_heads": 16,
        "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
        "n_routed_experts": 64, "num_experts_per_tok": 6, "vocab_size": 102_400,
        "bos_token_id": 100_000, "eos_token_id": 100_001,
    },
    "qwen2.5-7b": {
        **COMMON, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2",
        "hidden_size": 3584, "intermediate_size": 18_944, "num_hidden_layers": 28,
        "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152_064,
        "max_position_embeddings": 32_768, "rope_theta": 1_000_000, "use_sliding_window": False,
        "tie_word_embeddings": False, "bos_token_id": 151_643, "eos_token_id": 151_645,
    },
    "llama-3-8b": {
        **COMMON, "architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128_256,
        "max_position_embeddings": 8192, "rope_theta": 500_000, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False, "bos_token_id": 128_000, "eos_token_id": 128_001,
    },
}  # fmt: skip
CHANNEL: Mapping[str, Any] = {"num_bits": 8, "type": "int", "strategy": "channel"}
QUANTIZED: Mapping[str, Mapping[str, Any]] = {
    "awq": {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True},
    "awq32": {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True},
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True},
    "int8": {
        "quant_method": "compressed-tensors", "format": "int-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": CHANNEL}},
        "ignore": ["lm_head"],
    },
    "fp8": {"quant_method": "fp8"},
    "fp8block": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}  # fmt: skip
"""By the end of a shape's name: the `quantization_config` that is added."""
ROUTER = "mlp.gate"


def _quantization(shape: Mapping[str, Any], added: Mapping[str, Any]) -> Mapping[str, Any]:
    """Checkpoints leave the products plain that choose experts."""
    if "moe_intermediate_size" not in shape:
        return added
    key = "ignore" if "config_groups" in added else "modules_to_not_convert"
    return {**added, key: [*added.get(key, ()), ROUTER]}


SHAPES: Mapping[str, Mapping[str, Any]] = {
    **PLAIN,
    **{
        f"{name}-{end}": {**shape, "quantization_config": _quantization(shape, added)}
        for name, shape in PLAIN.items()
        for end, added in QUANTIZED.items()
    },
}
"""Also "qwen3-8b-awq", and so on."""


def write_shape(name: str, folder: Path) -> Path:
    """A model folder inside `folder`, of a config.json only. Raises `ConfigError`."""
    if name not in SHAPES:
        raise ConfigError(f"unknown shape {name!r}. {nearest(name, SHAPES)}")
    made = folder / name
    made.mkdir(parents=True, exist_ok=True)
    (made / "config.json").write_text(json.dumps(SHAPES[name], indent=1))
    return made
