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
SHAPES: Mapping[str, Mapping[str, Any]] = {
    **PLAIN,
    **{
        f"{name}-{end}": {**shape, "quantization_config": added}
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
