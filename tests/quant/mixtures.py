"""Small models with experts, whose products are quantized in any way, beside what they mean."""

import copy
import json
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from jackfield.core.api import Operations, PolicyConfig, Shard, Split
from jackfield.plugins.kernels.torch_ops import TorchKernels
from jackfield.plugins.models.deepseek.deepseek_v2 import DeepseekV2
from jackfield.plugins.models.deepseek.deepseek_v3 import DeepseekV3
from jackfield.plugins.models.mixtral import Mixtral
from jackfield.plugins.models.qwen2_moe import Qwen2Moe
from jackfield.plugins.models.qwen3_moe import Qwen3Moe

BASE = {
    "vocab_size": 256, "hidden_size": 128, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5, "head_dim": 16, "rope_theta": 10000.0, "hidden_act": "silu",
    "tie_word_embeddings": False, "eos_token_id": 255, "dtype": "float32",
}  # fmt: skip
SPARSE = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
LATENT = {
    "kv_lora_rank": 16, "q_lora_rank": None, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4,
    "v_head_dim": 16, "n_routed_experts": 8, "num_experts_per_tok": 3, "n_shared_experts": 1,
    "moe_intermediate_size": 64, "first_k_dense_replace": 1, "routed_scaling_factor": 1.5,
}  # fmt: skip
MODELS: Mapping[str, tuple[Any, Mapping[str, Any]]] = {
    "mixtral": (Mixtral, {**BASE, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen2_moe": (Qwen2Moe, {**BASE, **SPARSE, "shared_expert_intermediate_size": 64}),
    "qwen3_moe": (Qwen3Moe, {**BASE, **SPARSE, "norm_topk_prob": True}),
    "deepseek_v2": (DeepseekV2, {**BASE, **LATENT}),
    "deepseek_v3": (DeepseekV3, {**BASE, **LATENT, "n_group": 4, "topk_group": 2,
                                 "q_lora_rank": 20, "num_nextn_predict_layers": 0}),
}  # fmt: skip
ARCHITECTURES = {
    "mixtral": "MixtralForCausalLM", "qwen2_moe": "Qwen2MoeForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM", "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
}  # fmt: skip
QUANTIZED = re.compile(r".*(experts?\..*|mlp\.(gate|up|down)_proj|o_proj)\.weight")
WIDTHS = ("intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size")


class Asked:
    """Any tensor that a model asks for, and a record of them."""

    def __init__(self) -> None:
        self.made: dict[str, Tensor] = {}

    def take(
        self,
        name: str,
        shape: tuple[int, ...],
        split: Split = Split.NONE,
        part: range | None = None,
    ) -> Tensor:
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        values = torch.randn(shape, generator=generator)
        self.made[name] = 1 + 0.1 * values if "norm" in name else 0.12 * values
        return self.made[name].clone()

    take_exact = take

    def has(self, name: str) -> bool:
        return False

    def ignore(self, pattern: str) -> None:
        pass


class Made:
    """stored: as files hold it. meant: the same model in float32. plain: a pattern of names that
    are not quantized. width: of every feed-forward part. changes: of the config."""

    def __init__(
        self, kind: str, recipe: Any, width: int = 64, plain: str = "-", **changes: Any
    ) -> None:
        self.model_class, config = MODELS[kind]
        widths = {name: width for name in WIDTHS if name in config}
        self.config = {**config, **widths, "kind": kind, **changes}
        self.config["architectures"] = [ARCHITECTURES[kind]]
        self.recipe, asked = recipe, Asked()
        self.quantization = copy.deepcopy(dict(recipe.config))
        ops = Operations(**TorchKernels(PolicyConfig()).operations())
        self.model_class(self.config, ops, Shard(), asked)
        self.meant, self.stored = asked.made, dict(asked.made)
        self.names = [
            name for name in self.meant
            if QUANTIZED.fullmatch(name) and not re.search(plain, name) and "_gate." not in name
        ]  # fmt: skip
        for name in self.names:
            self.quantize(name)

    def quantize(self, name: str, recipe: Any = None) -> None:
        """Anew, of what is there."""
        recipe, weight = recipe or self.recipe, self.meant[name]
        module = self._drop(name)
        tensors, self.meant[name] = recipe.write(recipe, weight, module)
        self.stored |= {f"{module}.{part}": tensor for part, tensor in tensors.items()}

    def leave(self, name: str) -> None:
        """Plain."""
        self._drop(name)
        self.stored[name] = self.meant[name]

    def vary(self, name: str, recipe: Any) -> None:
        """In another way than all others, which only compressed-tensors can say."""
        self.quantize(name, recipe)
        group = copy.deepcopy(recipe.config["config_groups"]["group_0"])
        group["targets"] = [name.removesuffix(".weight")]
        self.quantization["config_groups"][name] = group

    def _drop(self, name: str) -> str:
        module = name.removesuffix(".weight")
        self.stored = {k: v for k, v in self.stored.items() if not k.startswith(f"{module}.")}
        return module

    def write(self, folder: Path) -> Path:
        config = {**self.config, "quantization_config": self.quantization}
        return _write(folder, self.stored, config)

    def write_meant(self, folder: Path) -> Path:
        return _write(folder, self.meant, self.config)


def _write(folder: Path, tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file({k: v.contiguous().clone() for k, v in tensors.items()}, folder / "model.safetensors")
    return folder
