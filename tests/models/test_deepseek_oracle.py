"""Logits of latent attention and its experts equal those of the reference implementation."""

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedModel
from transformers.models.deepseek_v2.configuration_deepseek_v2 import DeepseekV2Config
from transformers.models.deepseek_v2.modeling_deepseek_v2 import DeepseekV2Moe

from jackfield.core.api import LatentSizes
from jackfield.core.api.errors import ModelError
from jackfield.core.api.kernel import Operations
from jackfield.core.api.model import Shard
from jackfield.core.checkpoint.folder import ModelFolder
from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.core.checkpoint.safetensors_weights import SafetensorsWeights
from jackfield.plugins.kernels.torch_ops.experts import TorchExperts
from jackfield.plugins.models.blocks.config_reader import ConfigReader
from jackfield.plugins.models.deepseek.deepseek_moe import DeepseekMoe
from jackfield.plugins.models.deepseek.deepseek_v2 import DeepseekV2
from jackfield.plugins.models.deepseek.deepseek_v3 import DeepseekV3

CLOSE = 5e-5
COUNT = 40
MODELS: Mapping[str, Any] = {"deepseek_v2": DeepseekV2, "deepseek_v3": DeepseekV3}
TINY: dict[str, Any] = {
    "vocab_size": 500,
    "hidden_size": 64,
    "intermediate_size": 96,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "kv_lora_rank": 16,
    "q_lora_rank": None,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 12,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 3,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.0,
    "n_group": 4,
    "topk_group": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "initializer_range": 0.2,
}
YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 32,
    "mscale": 0.7,
    "mscale_all_dim": 1.1,
    "beta_fast": 32,
    "beta_slow": 1,
    "rope_theta": 10000.0,
}
DENSE = {"first_k_dense_replace": 2}
GROUPED = {"topk_method": "group_limited_greedy", "first_k_dense_replace": 0}
CASES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "v2 dense": ("deepseek_v2", DENSE),
    "v2 dense, queries of low rank": ("deepseek_v2", {**DENSE, "q_lora_rank": 24}),
    "v2 biases": ("deepseek_v2", {**DENSE, "q_lora_rank": 24, "attention_bias": True}),
    "v2 yarn": ("deepseek_v2", {**DENSE, "rope_parameters": YARN}),
    "v2 tied": ("deepseek_v2", {**DENSE, "tie_word_embeddings": True}),
    "v2 experts": ("deepseek_v2", {"routed_scaling_factor": 1.5}),
    "v2 groups": ("deepseek_v2", {**GROUPED, "routed_scaling_factor": 16.0, "q_lora_rank": 24}),
    "v3 dense yarn": ("deepseek_v3", {**DENSE, "q_lora_rank": 24, "rope_parameters": YARN}),
    "v3 rotated halves": ("deepseek_v3", {**DENSE, "rope_interleave": False}),
    "v3 experts": ("deepseek_v3", {"norm_topk_prob": False, "first_k_dense_replace": 0}),
    "v3 normalized": ("deepseek_v3", {"norm_topk_prob": True, "routed_scaling_factor": 2.5}),
    "v3 one group": ("deepseek_v3", {"n_group": 1, "topk_group": 1, "n_shared_experts": 1}),
    "v3 all": (
        "deepseek_v3",
        {"q_lora_rank": 24, "attention_bias": True, "rope_parameters": YARN},
    ),
}


def config_of(changes: Mapping[str, Any]) -> dict[str, Any]:
    copied = {key: dict(v) if isinstance(v, dict) else v for key, v in changes.items()}
    return {**TINY, **copied}


def shake(model: PreTrainedModel) -> PreTrainedModel:
    """Norms and biases are ones and zeros, which would hide a mistake."""
    with torch.no_grad():
        for name, weight in (*model.named_parameters(), *model.named_buffers()):
            if weight.ndim == 1 and "inv_freq" not in name:
                weight.add_(torch.randn(weight.shape) * 0.3)
    return model.eval()


def oracle(kind: str, changes: Mapping[str, Any]) -> PreTrainedModel:
    torch.manual_seed(0)
    parsed = CONFIG_MAPPING[kind](**{**config_of(changes), "attn_implementation": "eager"})
    return shake(AutoModelForCausalLM.from_config(parsed))


def with_experts(ops: Operations) -> Operations:
    fields = {name: getattr(ops, name) for name in Operations.__dataclass_fields__}
    return Operations(**{**fields, "experts": TorchExperts()})


def build(
    folder: Path, model_class: Any, reference: ModuleType, dtype: torch.dtype = torch.float32
) -> tuple[Any, Any]:
    """The model of a saved folder, all of whose tensors must be used, and its spec."""
    found = ModelFolder(folder)
    with SafetensorsWeights(
        found.tensor_files(), dtype, torch.device("cpu"), Shard(), SilentProgress()
    ) as weights:
        ops = with_experts(reference.operations())
        model = model_class(found.config, ops, Shard(), weights)
        weights.finish()
    return model, model_class.describe(found.config)


def tokens(count: int = COUNT) -> list[int]:
    return torch.randint(0, 500, (count,), generator=torch.Generator().manual_seed(1)).tolist()


def whole(model: PreTrainedModel, ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return model(torch.tensor([ids])).logits[0]


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    kind, changes = CASES[request.param]
    expected = oracle(kind, changes)
    folder = tmp_path_factory.mktemp("deepseek")
    expected.save_pretrained(folder)
    return folder, MODELS[kind], expected


def test_logits_equal_the_reference(case: Any, reference: ModuleType) -> None:
    folder, model_class, expected = case
    model, spec = build(folder, model_class, reference)
    right = whole(expected, tokens())
    for cuts in ([], [7, 8, 23], range(1, COUNT)):
        found = reference.run(model, spec, tokens(), cuts, prompt_len=COUNT)
        torch.testing.assert_close(found, right, atol=CLOSE, rtol=CLOSE)


def test_described_sizes_equal_the_reference(case: Any) -> None:
    folder, model_class, expected = case
    spec = model_class.describe(ModelFolder(folder).config)
    biases = [b for name, b in expected.named_buffers() if name.endswith("correction_bias")]
    assert spec.num_parameters == expected.num_parameters() + sum(map(len, biases))
    assert spec.softmax_scale == expected.model.layers[0].self_attn.scaling
    assert (spec.num_heads, spec.num_kv_heads, spec.head_dim) == (4, 1, 24)
    assert spec.latent == LatentSizes(rank=16, rotated=8, plain=16, value=12)


def test_the_first_model_is_llama_with_these_experts(tmp_path: Path, reference: ModuleType) -> None:
    """The reference has no such class, but its parts are those of Llama and of the second one."""
    torch.manual_seed(0)
    changes = {"num_key_value_heads": 2, "max_position_embeddings": 128}
    sizes = {key: TINY[key] for key in TINY.keys() - {"q_lora_rank"}}
    expected = AutoModelForCausalLM.from_config(CONFIG_MAPPING["llama"](**{**sizes, **changes}))
    part = DeepseekV2Moe(DeepseekV2Config(**{**TINY, "topk_method": "greedy"}))
    torch.nn.init.normal_(part.gate.weight, std=0.2)
    for weight in part.experts.parameters():
        torch.nn.init.normal_(weight, std=0.2)
    expected.model.layers[1].mlp = part
    shake(expected)
    config = {**sizes, **changes, "scoring_func": "softmax", "norm_topk_prob": False}
    weights = reference.DictWeights(_unpacked(expected.state_dict()))
    ops = with_experts(reference.operations())
    model = DeepseekMoe(config, ops, Shard(), weights)
    assert not weights.left
    spec = DeepseekMoe.describe(config)
    assert spec.num_parameters == expected.num_parameters()
    for cuts in ([], [7, 23]):
        found = reference.run(model, spec, tokens(), cuts, prompt_len=COUNT)
        torch.testing.assert_close(found, whole(expected, tokens()), atol=CLOSE, rtol=CLOSE)


def _unpacked(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Experts one by one, as checkpoints have them."""
    found: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        prefix, _, kind = name.rpartition(".")
        if not prefix.endswith("mlp.experts"):
            found[name] = tensor
            continue
        for index, part in enumerate(tensor):
            names = ("gate_proj", "up_proj") if kind == "gate_up_proj" else (kind,)
            for one, rows in zip(names, part.chunk(len(names)), strict=True):
                found[f"{prefix}.{index}.{one}.weight"] = rows
    return found


def test_weights_of_a_softmax_can_be_made_to_sum_to_one() -> None:
    config = {**TINY, "norm_topk_prob": True}
    routing = DeepseekV2.read(ConfigReader(config)).mixture.routing
    assert routing.normalize and routing.scale == 1.0


def test_every_second_layer_has_experts() -> None:
    config = {**TINY, "num_hidden_layers": 7, "first_k_dense_replace": 2, "moe_layer_freq": 2}
    assert DeepseekV2.read(ConfigReader(config)).mixture.layers == {2, 4, 6}


def test_layers_that_predict_more_tokens_are_left_out(
    tmp_path: Path, reference: ModuleType
) -> None:
    expected = oracle("deepseek_v3", {})
    tensors = _unpacked(expected.state_dict())
    tensors["model.layers.2.eh_proj.weight"] = torch.zeros(4, 4)
    tensors["model.layers.2.mlp.gate.weight"] = torch.zeros(4, 4)
    tensors["model.layers.3.mlp.gate.weight"] = torch.zeros(4, 4)
    weights = reference.DictWeights(tensors)
    DeepseekV3(TINY, with_experts(reference.operations()), Shard(), weights)
    assert set(weights.left) == {"model.layers.3.mlp.gate.weight"}


@pytest.mark.parametrize(
    ("model_class", "changes", "words"),
    [
        (DeepseekV2, {"topk_method": "noaux_tc"}, "topk_method is 'noaux_tc'; expected 'greedy'"),
        (DeepseekV2, {"scoring_func": "sigmoid"}, "scoring_func is 'sigmoid'"),
        (
            DeepseekV2,
            {"norm_topk_prob": True, "routed_scaling_factor": 16.0},
            "routed_scaling_factor is 16.0; expected 1.0 where norm_topk_prob is true",
        ),
        (DeepseekV2, {**GROUPED, "n_group": 3}, "n_group is 3; expected a divisor"),
        (DeepseekV2, {**GROUPED, "topk_group": 5}, "topk_group is 5; expected at most"),
        (DeepseekV2, {**GROUPED, "topk_group": 1}, "num_experts_per_tok is 3"),
        (DeepseekV2, {"attention_bias": True}, "attention_bias is True; expected false where"),
        (DeepseekV2, {"kv_lora_rank": None}, "lacks kv_lora_rank"),
        (DeepseekV2, {"qk_rope_head_dim": 7}, "qk_rope_head_dim is 7; expected an even number"),
        (DeepseekV3, {"topk_method": "greedy"}, "topk_method is 'greedy'; expected 'noaux_tc'"),
        (DeepseekV3, {"n_group": 8, "topk_group": 8}, "n_group is 8; expected groups of at least"),
        (DeepseekV3, {"routed_scaling_factor": None}, "lacks routed_scaling_factor"),
    ],
)
def test_what_does_not_fit_is_refused(model_class: Any, changes: Any, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        model_class.describe({**TINY, **changes})


def test_queries_are_made_in_one_product_only_if_the_config_says_so() -> None:
    config = {key: value for key, value in TINY.items() if key != "q_lora_rank"}
    with pytest.raises(ModelError, match="lacks q_lora_rank"):
        DeepseekV2.describe(config)


def test_the_bias_of_the_choice_is_not_rounded(tmp_path: Path, reference: ModuleType) -> None:
    """Scores are closer together than neighbours in bfloat16 of a bias that is much larger."""
    expected = oracle("deepseek_v3", {})
    right = expected.model.layers[1].mlp.gate.e_score_correction_bias
    right.add_(7.0)
    expected.save_pretrained(tmp_path)
    model, _ = build(tmp_path, DeepseekV3, reference, torch.bfloat16)
    router = model._decoder._layers[1]._mlp._router
    assert model._decoder._vocabulary.embed(torch.tensor([1])).dtype == torch.bfloat16
    assert torch.equal(router._bias_E, right) and not torch.equal(right.bfloat16().float(), right)


def test_only_the_rotated_part_of_a_head_has_frequencies() -> None:
    """The checkpoints' own files have no head_dim, so that it seems to be 64 / 4."""
    assert DeepseekV2.read(ConfigReader(TINY)).rope.dim == TINY["qk_rope_head_dim"]
