"""Checkpoints in every format, packed as the formats are documented, beside what they mean."""

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor

from jackfield.core.api.kernel import Operations
from jackfield.core.api.model import Shard, Split
from jackfield.core.api.quant import QuantWeight
from jackfield.core.api.scheduler import PolicyConfig
from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.core.checkpoint.quant_plan import read_quant_plan
from jackfield.core.checkpoint.quantized_weights import PlannedWeights
from jackfield.core.checkpoint.safetensors_weights import SafetensorsWeights
from jackfield.core.checkpoint.tensor_files import find_tensor_files
from jackfield.plugins.kernels.torch_ops import TorchKernels
from jackfield.plugins.models.qwen3 import Qwen3

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
HIDDEN, HEADS, KV_HEADS, HEAD, LAYERS, VOCAB = 128, 4, 2, 32, 2, 256
Ints = NDArray[np.int64]
Tensors = dict[str, Tensor]


def pack(ints: Ints, bits: int, order: tuple[int, ...] = ()) -> Tensor:
    """Words of neighbouring columns: the value of column order[i] of a word is its i-th."""
    per_word = 32 // bits
    words = np.zeros((ints.shape[0], -(-ints.shape[1] // per_word)), dtype=np.uint32)
    for column in range(ints.shape[1]):
        place = column % per_word
        place = order.index(place) if order else place
        value = (ints[:, column] << (bits * place)) & 0xFFFFFFFF
        words[:, column // per_word] |= value.astype(np.uint32)
    return torch.from_numpy(words.view(np.int32).copy())


@dataclass(frozen=True)
class Grouped:
    """Integers of a weight: `(ints - zeros) * scales` in groups of inputs, `groups_I` of which."""

    ints_OI: Ints
    zeros_OG: Ints
    scales_OG: Tensor
    groups_I: Ints

    def meant(self) -> Tensor:
        zeros, scales = self.zeros_OG[:, self.groups_I], self.scales_OG[:, self.groups_I]
        return torch.from_numpy(self.ints_OI - zeros).float() * scales.float()


@dataclass(frozen=True)
class Recipe:
    """How one checkpoint is quantized. shuffled: whether inputs of a group lie apart."""

    config: Mapping[str, Any]
    write: "Callable[[Recipe, Tensor, str], tuple[Tensors, Tensor]]"
    group: int = -1
    bits: int = 4
    symmetric: bool = True
    shuffled: bool = False
    middle: int = 256
    options: Mapping[str, Any] = field(default_factory=dict)

    def grouped(self, weight_OI: Tensor, module: str) -> Grouped:
        outputs, inputs = weight_OI.shape
        group = inputs if self.group == -1 else self.group
        groups_I = np.arange(inputs) // group
        if self.shuffled:
            seed = zlib.crc32(_ordered_by(module).encode())
            groups_I = np.random.default_rng(seed).permutation(groups_I)
        half = 2 ** (self.bits - 1)
        random = np.random.default_rng(zlib.crc32(module.encode()))
        zeros = np.full((outputs, groups_I.max() + 1), half)
        if not self.symmetric:
            zeros = random.integers(half // 2, half + half // 2, zeros.shape)
        scales = torch.from_numpy(random.uniform(0.8, 1.2, zeros.shape)) * 0.25 / half
        scales = scales.half()
        steps = (weight_OI / scales[:, groups_I].float()).round().long().numpy()
        ints = np.clip(steps + zeros[:, groups_I], 0, 2 * half - 1)
        return Grouped(ints, zeros, scales, groups_I)


def _ordered_by(module: str) -> str:
    """Queries, keys and values share their order, and so do gate and up of an expert; others have
    each its own."""
    parent, _, name = module.rpartition(".")
    one = "attn" in module or (".experts." in module and name not in ("down_proj", "w2"))
    return parent if one else name


def awq(recipe: Recipe, weight_OI: Tensor, module: str) -> tuple[Tensors, Tensor]:
    made = recipe.grouped(weight_OI, module)
    return {
        "qweight": pack(made.ints_OI.T, 4, AWQ_ORDER),
        "qzeros": pack(made.zeros_OG.T, 4, AWQ_ORDER),
        "scales": made.scales_OG.t().contiguous(),
    }, made.meant()


def gptq(recipe: Recipe, weight_OI: Tensor, module: str) -> tuple[Tensors, Tensor]:
    made, bits = recipe.grouped(weight_OI, module), recipe.bits
    less = 0 if recipe.config.get("checkpoint_format") == "gptq_v2" else 1
    return {
        "qweight": pack(made.ints_OI, bits).t().contiguous(),
        "qzeros": pack(made.zeros_OG.T - less, bits),
        "scales": made.scales_OG.t().contiguous(),
        "g_idx": torch.from_numpy(made.groups_I).int(),
        "bias": torch.zeros(len(weight_OI), dtype=torch.float16),
    }, made.meant()


def packed(recipe: Recipe, weight_OI: Tensor, module: str) -> tuple[Tensors, Tensor]:
    made, bits = recipe.grouped(weight_OI, module), recipe.bits
    tensors = {
        "weight_packed": pack(made.ints_OI, bits),
        "weight_scale": made.scales_OG.contiguous(),
        "weight_shape": torch.tensor(weight_OI.shape),
    }
    if not recipe.symmetric:
        tensors["weight_zero_point"] = pack(made.zeros_OG.T, bits).t().contiguous()
    if recipe.shuffled:
        tensors["weight_g_idx"] = torch.from_numpy(made.groups_I).int()
    return tensors, made.meant()


def whole_bytes(recipe: Recipe, weight_OI: Tensor, module: str) -> tuple[Tensors, Tensor]:
    made = recipe.grouped(weight_OI, module)
    tensors = {
        "weight": torch.from_numpy(made.ints_OI - 128).to(torch.int8),
        "weight_scale": made.scales_OG.contiguous(),
    }
    if not recipe.symmetric:
        tensors["weight_zero_point"] = torch.from_numpy(made.zeros_OG - 128).to(torch.int8)
    return tensors, made.meant()


def fp8(recipe: Recipe, weight_OI: Tensor, module: str) -> tuple[Tensors, Tensor]:
    rows, columns = recipe.options["block"]
    outputs, inputs = weight_OI.shape
    rows, columns = rows or outputs, columns or inputs
    scales = torch.empty(-(-outputs // rows), -(-inputs // columns))
    spread_OI = torch.empty(outputs, inputs)
    for i in range(scales.shape[0]):
        for j in range(scales.shape[1]):
            at = slice(i * rows, (i + 1) * rows), slice(j * columns, (j + 1) * columns)
            scales[i, j] = spread_OI[at] = weight_OI[at].abs().max() / 448
    values = (weight_OI / spread_OI).to(torch.float8_e4m3fn)
    scales = scales.view(recipe.options.get("shape", scales.shape))
    tensors = {"weight": values, recipe.options.get("name", "weight_scale"): scales}
    return tensors | {"input_scale": torch.tensor(0.5)}, values.float() * spread_OI


def compressed(form: str, type_: str, bits: int, **weights: Any) -> dict[str, Any]:
    group = {
        "targets": ["Linear"],
        "weights": {"num_bits": bits, "type": type_, "symmetric": True, **weights},
        "input_activations": None,
    }
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
    }


def _awq_config(group: int) -> dict[str, Any]:
    return {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True,
            "version": "gemm", "modules_to_not_convert": None}  # fmt: skip


def _gptq_config(group: int, **changes: Any) -> dict[str, Any]:
    return {"quant_method": "gptq", "bits": 4, "group_size": group, "sym": True,
            "desc_act": False, **changes}  # fmt: skip


def _recipes() -> dict[str, Recipe]:
    whole, block = (0, 0), (128, 128)
    found = {f"awq {g}": Recipe(_awq_config(g), awq, g, symmetric=False) for g in (32, 64, -1)}
    old = {"quant_method": "awq", "w_bit": 4, "q_group_size": 128, "version": "GEMM"}
    found["awq 128"] = Recipe(old, awq, 128, symmetric=False)
    for group in (32, 64, 128):
        found[f"gptq {group}"] = Recipe(_gptq_config(group), gptq, group)
    asym = _gptq_config(64, sym=False)
    found["gptq asym"] = Recipe(asym, gptq, 64, symmetric=False)
    v2 = _gptq_config(32, sym=False, checkpoint_format="gptq_v2")
    found["gptq v2"] = Recipe(v2, gptq, 32, symmetric=False)
    order = _gptq_config(32, desc_act=True)
    found["gptq order"] = Recipe(order, gptq, 32, shuffled=True)
    order = _gptq_config(64, desc_act=True, sym=False)
    found["gptq order asym"] = Recipe(order, gptq, 64, symmetric=False, shuffled=True)
    eight = _gptq_config(64, bits=8, desc_act=True)
    found["gptq eight"] = Recipe(eight, gptq, 64, 8, shuffled=True)
    plain8 = {"quant_method": "fp8", "activation_scheme": "static"}
    found["fp8 tensor"] = Recipe(plain8, fp8, options={"block": whole, "shape": ()})
    found["fp8 channel"] = Recipe(plain8, fp8, options={"block": (1, 0)})
    deepseek = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}
    inverse = {"block": block, "name": "weight_scale_inv"}
    found["fp8 block"] = Recipe(deepseek, fp8, middle=192, options=inverse)
    form = "pack-quantized"
    config = compressed(form, "int", 4, strategy="group", group_size=32)
    found["packed"] = Recipe(config, packed, 32)
    config = compressed(form, "int", 4, strategy="group", group_size=64, symmetric=False,
                        actorder="group")  # fmt: skip
    found["packed asym order"] = Recipe(config, packed, 64, symmetric=False, shuffled=True)
    config = compressed(form, "int", 8, strategy="channel")
    found["packed eight"] = Recipe(config, packed, -1, 8)
    config = compressed("int-quantized", "int", 8, strategy="channel")
    found["int8"] = Recipe(config, whole_bytes, -1, 8)
    config = compressed("int-quantized", "int", 8, strategy="group", group_size=64,
                        symmetric=False)  # fmt: skip
    found["int8 asym"] = Recipe(config, whole_bytes, 64, 8, symmetric=False)
    config = compressed("float-quantized", "float", 8, strategy="tensor")
    found["float tensor"] = Recipe(config, fp8, options={"block": whole, "shape": (1,)})
    config = compressed("float-quantized", "float", 8, strategy="block", block_structure=[64, 128])
    found["float block"] = Recipe(config, fp8, options={"block": (64, 128)})
    return found


RECIPES = _recipes()


def model_config(recipe: Recipe) -> dict[str, Any]:
    return {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_act": "silu",
        "hidden_size": HIDDEN, "intermediate_size": recipe.middle, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD,
        "vocab_size": VOCAB, "max_position_embeddings": 128, "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0, "tie_word_embeddings": False, "attention_bias": False,
        "eos_token_id": 255, "dtype": "float32",
    }  # fmt: skip


def products(recipe: Recipe) -> dict[str, tuple[int, int]]:
    width, kv = HEADS * HEAD, KV_HEADS * HEAD
    names = {
        "self_attn.q_proj": (width, HIDDEN), "self_attn.k_proj": (kv, HIDDEN),
        "self_attn.v_proj": (kv, HIDDEN), "self_attn.o_proj": (HIDDEN, width),
        "mlp.gate_proj": (recipe.middle, HIDDEN), "mlp.up_proj": (recipe.middle, HIDDEN),
        "mlp.down_proj": (HIDDEN, recipe.middle),
    }  # fmt: skip
    return {
        f"model.layers.{i}.{name}": shape for i in range(LAYERS) for name, shape in names.items()
    }


def others() -> Tensors:
    """What is never quantized."""
    found = {
        "model.embed_tokens.weight": torch.randn(VOCAB, HIDDEN),
        "lm_head.weight": torch.randn(VOCAB, HIDDEN) * 0.3,
        "model.norm.weight": 1 + 0.1 * torch.randn(HIDDEN),
    }
    for i in range(LAYERS):
        for name, size in (
            ("input_layernorm", HIDDEN), ("post_attention_layernorm", HIDDEN),
            ("self_attn.q_norm", HEAD), ("self_attn.k_norm", HEAD),
        ):  # fmt: skip
            found[f"model.layers.{i}.{name}.weight"] = 1 + 0.1 * torch.randn(size)
    return found


@dataclass
class Checkpoint:
    """stored: as files hold it. meant: the same model in float32. plain: not quantized."""

    recipe: Recipe
    plain: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        torch.manual_seed(0)
        self.meant = others()
        self.stored = dict(self.meant)
        self.config = model_config(self.recipe)
        self.quantization: dict[str, Any] = json.loads(json.dumps(self.recipe.config))
        for module, shape in products(self.recipe).items():
            weight_OI = torch.randn(shape) * 0.12
            if module in self.plain:
                self.stored[f"{module}.weight"] = self.meant[f"{module}.weight"] = weight_OI
                continue
            tensors, meant = self.recipe.write(self.recipe, weight_OI, module)
            self.stored |= {f"{module}.{name}": tensor for name, tensor in tensors.items()}
            self.meant[f"{module}.weight"] = meant

    def write(self, folder: Path) -> Path:
        config = {**self.config, "quantization_config": self.quantization}
        return _write(folder, self.stored, config)

    def write_meant(self, folder: Path) -> Path:
        return _write(folder, self.meant, self.config)


def _write(folder: Path, tensors: Tensors, config: Mapping[str, Any]) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file({k: v.contiguous().clone() for k, v in tensors.items()}, folder / "model.safetensors")
    return folder


@pytest.fixture(params=list(RECIPES))
def every_recipe(request: pytest.FixtureRequest) -> Recipe:
    return RECIPES[request.param]


@pytest.fixture
def checkpoint() -> Callable[..., Checkpoint]:
    """A checkpoint by the name of its recipe, or of the recipe itself."""

    def make(recipe: str | Recipe, **options: Any) -> Checkpoint:
        return Checkpoint(RECIPES[recipe] if isinstance(recipe, str) else recipe, **options)

    return make


@pytest.fixture(scope="session")
def mixtures() -> ModuleType:
    """The module beside this file."""
    spec = spec_from_file_location("mixtures", Path(__file__).with_name("mixtures.py"))
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def recipes() -> Mapping[str, Recipe]:
    """By name, and another one of the form of "packed"."""
    config = compressed("pack-quantized", "int", 4, strategy="group", group_size=64)
    return {**RECIPES, "other": Recipe(config, packed, 64)}


@pytest.fixture
def mixture(mixtures: ModuleType) -> Callable[..., Any]:
    """A model with experts by its kind and the name of a recipe."""

    def make(kind: str, recipe: str, **options: Any) -> Any:
        return mixtures.Made(kind, RECIPES[recipe], **options)

    return make


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


class Opened:
    """A model built from a folder, and the weights that it was built from."""

    def __init__(self, folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        plan = read_quant_plan(config)
        assert plan is not None
        operations = Operations(**TorchKernels(PolicyConfig()).operations())
        files, cpu = find_tensor_files(folder), torch.device("cpu")
        with SafetensorsWeights(files, torch.float32, cpu, Shard(), SilentProgress()) as stored:
            self.stored, self.weights = stored, PlannedWeights(stored, plan)
            self.model = Qwen3(config, operations, Shard(), self.weights)
            self.weights.finish()


@pytest.fixture
def build() -> type[Opened]:
    """Of a folder. Raises what a checkpoint that cannot be served raises."""
    return Opened


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., QuantWeight]:
    """One weight named "one" of single tensors and a `quantization_config`."""

    def read(
        tensors: Tensors, shape: tuple[int, int], config: Mapping[str, Any],
        shard: Shard | None = None, split: Split = Split.NONE,
    ) -> QuantWeight:  # fmt: skip
        save_file({f"one.{k}": v.contiguous() for k, v in tensors.items()},
                  tmp_path / "model.safetensors")  # fmt: skip
        plan = read_quant_plan({"quantization_config": config})
        assert plan is not None
        with SafetensorsWeights(
            find_tensor_files(tmp_path), torch.float32, torch.device("cpu"), shard or Shard(),
            SilentProgress(),
        ) as stored:  # fmt: skip
            weight = PlannedWeights(stored, plan).take_quantized("one.weight", shape, split)
            assert weight is not None and not stored.surplus()
            return weight

    return read
