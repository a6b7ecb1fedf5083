"""Tiny models of every kind, and what ranks make of a folder. Also for processes that are ranks."""

import json
import zlib
from collections.abc import Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor

from jackfield.core.api import RANK_OPERATIONS, Operations, PolicyConfig, Shard, Split
from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.core.checkpoint.quant_plan import read_quant_plan
from jackfield.core.checkpoint.quantized_weights import PlannedWeights
from jackfield.core.checkpoint.safetensors_weights import SafetensorsWeights
from jackfield.core.checkpoint.tensor_files import find_tensor_files
from jackfield.plugins.kernels.torch_ops import TorchKernels
from jackfield.plugins.models.deepseek.deepseek_moe import DeepseekMoe
from jackfield.plugins.models.deepseek.deepseek_v2 import DeepseekV2
from jackfield.plugins.models.deepseek.deepseek_v3 import DeepseekV3
from jackfield.plugins.models.llama import Llama
from jackfield.plugins.models.mixtral import Mixtral
from jackfield.plugins.models.qwen1.qwen1 import Qwen1
from jackfield.plugins.models.qwen2 import Qwen2
from jackfield.plugins.models.qwen2_moe import Qwen2Moe
from jackfield.plugins.models.qwen3 import Qwen3
from jackfield.plugins.models.qwen3_moe import Qwen3Moe

CPU = torch.device("cpu")
VOCAB, COUNT = 503, 24
BASE = {
    "vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 8, "num_key_value_heads": 2, "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5, "head_dim": 16, "rope_theta": 10000.0,
}  # fmt: skip
SPARSE = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
LATENT = {
    "kv_lora_rank": 16, "q_lora_rank": None, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4,
    "v_head_dim": 12, "n_routed_experts": 8, "num_experts_per_tok": 3, "n_shared_experts": 2,
    "moe_intermediate_size": 8, "first_k_dense_replace": 1, "routed_scaling_factor": 1.5,
}  # fmt: skip
GROUPED = {"n_group": 4, "topk_group": 2}
QWEN1 = {
    "vocab_size": VOCAB, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 8, "kv_channels": 8, "seq_length": 64, "no_bias": False,
    "use_dynamic_ntk": False, "tie_word_embeddings": False,
}  # fmt: skip
MODELS: Mapping[str, tuple[Any, Mapping[str, Any]]] = {
    "llama": (Llama, {**BASE, "attention_bias": True, "mlp_bias": True}),
    "llama tied": (Llama, {**BASE, "tie_word_embeddings": True}),
    "llama kv 4": (Llama, {**BASE, "num_key_value_heads": 4}),
    "qwen1": (Qwen1, QWEN1),
    "qwen2": (Qwen2, BASE),
    "qwen3": (Qwen3, BASE),
    "mixtral": (Mixtral, {**BASE, "num_local_experts": 5, "num_experts_per_tok": 2}),
    "qwen2_moe": (Qwen2Moe, {**BASE, **SPARSE, "shared_expert_intermediate_size": 40}),
    "qwen3_moe": (Qwen3Moe, {**BASE, **SPARSE, "mlp_only_layers": [1]}),
    "deepseek_moe": (DeepseekMoe, {**BASE, **LATENT, "routed_scaling_factor": 1.0}),
    "deepseek_v2": (DeepseekV2, {**BASE, **LATENT}),
    "deepseek_v3": (DeepseekV3, {**BASE, **LATENT, **GROUPED, "q_lora_rank": 20,
                                 "attention_bias": True, "num_nextn_predict_layers": 0}),
}  # fmt: skip
EXPERTS = ("mixtral", "qwen2_moe", "qwen3_moe", "deepseek_moe", "deepseek_v2", "deepseek_v3")


class Found(NamedTuple):
    """logits of every token, bytes of the weights that were taken, tokens of each expert, and the
    columns of the rank alone."""

    logits_TV: Tensor
    bytes_taken: int
    counts: Tensor | None
    part: tuple[Tensor, int] | None


def reference() -> ModuleType:
    """The plain attention of other tests."""
    path = Path(__file__).parents[1] / "models" / "reference_ops.py"
    spec = spec_from_file_location("reference_ops", path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def random_tensor(name: str, shape: tuple[int, ...]) -> Tensor:
    """Neither norms nor biases are ones or zeros, which would hide a mistake."""
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    values = torch.randn(shape, generator=generator)
    return 1 + 0.3 * values if "norm" in name else 0.25 * values


class MadeUp:
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
        self.made[name] = random_tensor(name, shape)
        return self.made[name].clone()

    take_exact = take

    def has(self, name: str) -> bool:
        return False

    def ignore(self, pattern: str) -> None:
        pass


def operations() -> Operations:
    offered = dict(TorchKernels(PolicyConfig()).operations())
    for name in RANK_OPERATIONS:
        offered[name] = None
    return Operations(**offered)


def write(folder: Path, kind: str, **changes: Any) -> Path:
    """A folder of random weights. nan: a tensor whose last entry is no number."""
    model_class, config = MODELS[kind]
    config = {**config, "kind": kind, **changes}
    weights = MadeUp()
    model_class(config, operations(), Shard(), weights)
    if "nan" in changes:
        weights.made[changes["nan"]][-1, -1] = float("nan")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(weights.made, folder / "model.safetensors")
    return folder


def ids_of(vocab: int = VOCAB) -> list[int]:
    numbers = torch.randint(0, vocab, (COUNT,), generator=torch.Generator().manual_seed(4))
    return [0, vocab - 1, *numbers.tolist()]


def run(folder: Path, ops: Operations, shard: Shard, cuts: tuple[int, ...] = (9, 10, 11)) -> Found:
    """One rank's, of the folder."""
    config = json.loads((folder / "config.json").read_text())
    model_class, plan = MODELS[config.get("kind", "qwen3")][0], read_quant_plan(config)
    files = find_tensor_files(folder)
    with SafetensorsWeights(files, torch.float32, CPU, shard, SilentProgress()) as stored:
        weights = stored if plan is None else PlannedWeights(stored, plan)
        with torch.inference_mode():
            model = model_class(config, ops, shard, weights)
        weights.finish()
    spec, plain, ids = model_class.describe(config), reference(), ids_of(config["vocab_size"])
    logits_TV = plain.run(model, spec, ids, cuts, len(ids))
    histogram = model.expert_histogram()
    part = None
    if shard.size > 1:
        with torch.inference_mode():
            part = model.logits_part(torch.ones(3, config["hidden_size"]))
    counts = None if histogram is None else histogram.counts_LE.clone()
    return Found(logits_TV.clone(), stored.bytes_taken, counts, part)
