"""Models with experts: logits equal those of the reference implementation, from its own files."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import linear, silu
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedModel

from jackfield.core.api.errors import CheckpointError, ModelError
from jackfield.core.api.kernel import Operations
from jackfield.core.api.model import Shard
from jackfield.core.checkpoint.folder import ModelFolder
from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.core.checkpoint.safetensors_weights import SafetensorsWeights
from jackfield.plugins.models.blocks.config_reader import ConfigReader
from jackfield.plugins.models.blocks.experts import ExpertMlp
from jackfield.plugins.models.blocks.linear_loader import LinearLoader
from jackfield.plugins.models.blocks.mixture import Mixture
from jackfield.plugins.models.blocks.routing import Routing
from jackfield.plugins.models.mixtral import Mixtral
from jackfield.plugins.models.qwen2_moe import Qwen2Moe
from jackfield.plugins.models.qwen3_moe import Qwen3Moe

CLOSE = 5e-5
MODELS: Mapping[str, Any] = {"mixtral": Mixtral, "qwen2_moe": Qwen2Moe, "qwen3_moe": Qwen3Moe}
TINY: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "initializer_range": 0.2,
    "num_experts_per_tok": 2,
}
SPARSE = {"num_experts": 5, "moe_intermediate_size": 24}
KINDS: Mapping[str, dict[str, Any]] = {
    "mixtral": {"num_local_experts": 5, "rope_theta": 1e6},
    "qwen2_moe": {**SPARSE, "shared_expert_intermediate_size": 40},
    "qwen3_moe": {**SPARSE, "head_dim": 16},
}
SLIDING = {"use_sliding_window": True, "sliding_window": 8}
CASES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "mixtral": ("mixtral", {}),
    "mixtral one expert": ("mixtral", {"num_experts_per_tok": 1}),
    "mixtral all experts": ("mixtral", {"num_experts_per_tok": 5, "tie_word_embeddings": True}),
    "mixtral window": ("mixtral", {"sliding_window": 8, "head_dim": 16}),
    "qwen2": ("qwen2_moe", {}),
    "qwen2 normed": ("qwen2_moe", {"norm_topk_prob": True}),
    "qwen2 step": ("qwen2_moe", {"decoder_sparse_step": 2}),
    "qwen2 plain layers": ("qwen2_moe", {"mlp_only_layers": [1]}),
    "qwen2 no bias": ("qwen2_moe", {"qkv_bias": False}),
    "qwen2 window": ("qwen2_moe", SLIDING),
    "qwen3": ("qwen3_moe", {}),
    "qwen3 normed": ("qwen3_moe", {"norm_topk_prob": True, "attention_bias": True}),
    "qwen3 step": ("qwen3_moe", {"decoder_sparse_step": 2}),
    "qwen3 plain layers": ("qwen3_moe", {"mlp_only_layers": [0]}),
    "qwen3 window": ("qwen3_moe", SLIDING),
}


class PlainExperts:
    """Token by token."""

    def __call__(
        self,
        x_TD: Tensor,
        ids_TK: Tensor,
        weights_TK: Tensor,
        gate_up: Tensor,
        down: Tensor,
        counts_E: Tensor,
    ) -> Tensor:
        out_TD = torch.zeros_like(x_TD)
        for token, ids in enumerate(ids_TK.tolist()):
            for place, expert in enumerate(ids):
                gate, up = linear(x_TD[token], gate_up[expert]).chunk(2)
                out_TD[token] += weights_TK[token, place] * linear(silu(gate) * up, down[expert])
        return out_TD


def operations(reference: ModuleType) -> Operations:
    return replace(reference.operations(), experts=PlainExperts())


def oracle(kind: str, changes: Mapping[str, Any]) -> PreTrainedModel:
    torch.manual_seed(0)
    config = CONFIG_MAPPING[kind](
        **{**TINY, **KINDS[kind], **changes, "attn_implementation": "eager"}
    )
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():  # norms and biases are ones and zeros, which would hide a mistake
        for name, weight in model.named_parameters():
            if weight.ndim == 1:
                weight.add_(torch.randn(weight.shape) * 0.3)
            assert weight.abs().min() != weight.abs().max(), name
    return model


def load(folder: ModelFolder, ops: Operations, **changes: Any) -> tuple[Any, Any]:
    """The model from its files, and its spec."""
    model_class = MODELS[folder.config["model_type"]]
    config = {**folder.config, **changes}
    files, cpu = folder.tensor_files(), torch.device("cpu")
    with SafetensorsWeights(files, torch.float32, cpu, Shard(), SilentProgress()) as weights:
        model = model_class(config, ops, Shard(), weights)
        weights.finish()
    spec = model_class.describe(config)
    assert weights.bytes_taken == 4 * spec.num_parameters
    return model, spec


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return CASES[request.param]


def test_logits_equal_the_reference(
    case: tuple[str, dict[str, Any]], tmp_path: Path, reference: ModuleType
) -> None:
    expected = oracle(*case)
    expected.save_pretrained(tmp_path, max_shard_size="50KB")
    model, spec = load(ModelFolder(tmp_path), operations(reference))
    assert spec.num_parameters == expected.num_parameters()
    ids = torch.randint(0, 100, (40,), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        right = expected(ids[None]).logits[0]
    for cuts in ([], range(7, 40, 7), range(1, 40)):
        found = reference.run(model, spec, ids.tolist(), cuts, prompt_len=40)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, right, atol=CLOSE, rtol=CLOSE)


def test_windows_of_every_other_layer_without_types() -> None:
    config = {**TINY, **KINDS["qwen2_moe"], **SLIDING, "num_hidden_layers": 4}
    for end in (0, 3, 28):
        config["max_window_layers"] = end
        types = CONFIG_MAPPING["qwen2_moe"](**config).layer_types
        spec = Qwen2Moe.describe(config)
        slides = {layer for group in spec.groups if group.window for layer in group.layers}
        assert slides == {i for i, kind in enumerate(types) if kind == "sliding_attention"}


@pytest.mark.parametrize(
    ("kind", "changes", "parts"),
    [
        ("mixtral", {"num_local_experts": None}, ["lacks num_local_experts"]),
        ("mixtral", {"num_experts_per_tok": 6}, ["num_experts_per_tok is 6", "experts, 5"]),
        ("mixtral", {"sliding_window": 0}, ["sliding_window is 0"]),
        ("mixtral", {"rope_theta": None}, ["rope_theta is None", "number"]),
        ("qwen2_moe", {"num_experts": None}, ["lacks num_experts"]),
        ("qwen2_moe", {"shared_expert_intermediate_size": None}, ["lacks shared_expert_inter"]),
        ("qwen3_moe", {"num_experts": 0}, ["num_experts is 0", "at least 1"]),
        ("qwen3_moe", {"moe_intermediate_size": "wide"}, ["moe_intermediate_size is 'wide'"]),
        ("qwen3_moe", {"norm_topk_prob": 1}, ["norm_topk_prob is 1", "true or false"]),
        ("qwen3_moe", {"decoder_sparse_step": 0}, ["decoder_sparse_step is 0"]),
        ("qwen3_moe", {"mlp_only_layers": [True]}, ["mlp_only_layers is [True]", "integers"]),
        ("qwen3_moe", {"mlp_only_layers": [-1]}, ["mlp_only_layers is [-1]", "at least 0"]),
        ("qwen3_moe", {"mlp_only_layers": 3}, ["mlp_only_layers is 3", "list"]),
    ],
)
def test_refused(kind: str, changes: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(ModelError) as caught:
        MODELS[kind].describe({**TINY, **KINDS[kind], **changes})
    for part in ["config.json", *parts]:
        assert part in str(caught.value)


def test_the_eps_of_mixtral_without_the_key() -> None:
    config = {**TINY, **KINDS["mixtral"], "rms_norm_eps": None}
    default = CONFIG_MAPPING["mixtral"]().rms_norm_eps
    assert Mixtral.read(ConfigReader(config)).norm_eps == default


def test_tensors_that_lack_or_have_no_place(tmp_path: Path, reference: ModuleType) -> None:
    oracle("mixtral", {}).save_pretrained(tmp_path)
    file, name = tmp_path / "model.safetensors", "model.layers.1.block_sparse_moe.experts.4.w2"
    held = load_file(file)
    save_file({**held, name.replace("4", "5") + ".weight": torch.ones(1)}, file)
    with pytest.raises(CheckpointError, match=r"experts\.5\.w2"):
        load(ModelFolder(tmp_path), operations(reference))
    del held[f"{name}.weight"]
    save_file(held, file)
    with pytest.raises(CheckpointError, match=r"experts\.4\.w2"):
        load(ModelFolder(tmp_path), operations(reference))


def test_a_stack_without_experts_is_refused(reference: ModuleType) -> None:
    config = {**TINY, **KINDS["mixtral"]}
    tensors = oracle("mixtral", {}).state_dict()
    with pytest.raises(ModelError, match=r"serves 'experts'; add 'torch' to kernel\.stack"):
        Mixtral(config, reference.operations(), Shard(), reference.DictWeights(tensors))


def test_parts_of_ranks_add_up(reference: ModuleType) -> None:
    torch.manual_seed(0)
    mixture = Mixture(
        routing=Routing(num_experts=3, top_k=2), width=12, layers=frozenset([0]),
        shared_width=8, shared_gate=True,
    )  # fmt: skip
    ops, block = operations(reference), "model.layers.0.mlp"
    shapes = {"gate": (3, 16), "shared_expert_gate": (1, 16)}
    for name, width in [("shared_expert", 8), *((f"experts.{i}", 12) for i in range(3))]:
        shapes |= {f"{name}.{part}": (width, 16) for part in ("gate_proj", "up_proj")}
        shapes[f"{name}.down_proj"] = (16, width)
    held = {f"{block}.{name}.weight": torch.randn(shape) for name, shape in shapes.items()}
    x = torch.randn(5, 16)

    def part(shard: Shard) -> Tensor:
        weights = reference.DictWeights(held, shard)
        out = ExpertMlp(0, 16, mixture, ops, LinearLoader(ops.linear, shard, weights))(x)
        assert not weights.left
        return out

    torch.testing.assert_close(part(Shard(0, 2)) + part(Shard(1, 2)), part(Shard()))
