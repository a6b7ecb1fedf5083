"""Scales of keys and values: those that a checkpoint brings, and those that are calibrated."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from jackfield import LLM
from jackfield.core.api import CheckpointError, KvScales
from jackfield.core.assemble import Assembly
from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.core.executors.calibration import calibration_ids
from jackfield.core.testing.tiny_model import write_tiny_model

Write = Callable[..., Path]
LAYERS, HEADS = 2, 2
ATTENTION = "model.layers.{}.self_attn"


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A tiny model with further tensors."""

    def make(extra: Mapping[str, Tensor] | None = None, seed: int = 0) -> Path:
        folder = write_tiny_model(tmp_path / "model", seed=seed)
        weights = load_file(folder / "model.safetensors")
        save_file({**weights, **(extra or {})}, folder / "model.safetensors")
        return folder

    return make


def start(folder: Path, *, encoded: bool = True, **settings: Any) -> Assembly:
    own = {f"cache.fp8.{key}": value for key, value in settings.items()}
    stack = ["paged", "fp8"] if encoded else ["paged"]
    common = {"kernel.stack": ["torch"], "num_gpu_blocks_override": 32, "engine.threads": 1}
    llm = LLM(folder, progress=SilentProgress(), **{**common, "cache.stack": stack, **own})
    return llm.assembly


def scales_of(assembly: Assembly) -> list[KvScales | None]:
    return [layer.scales for layer in assembly.loaded.executor._runner._loaded.layers]


def numbers(assembly: Assembly) -> list[list[list[float]] | None]:
    """Layer -> keys' and values' scales, per head."""
    return [
        None if scales is None else [scale_K.tolist() for scale_K in scales]
        for scales in scales_of(assembly)
    ]


def both(name: str, layer: int, values: Tensor) -> dict[str, Tensor]:
    """Tensors `<name>` of a layer for k and v; v is twice k."""
    prefix = ATTENTION.format(layer)
    return {
        f"{prefix}.{name.format('k')}": values.clone(),
        f"{prefix}.{name.format('v')}": values * 2,
    }


NAMES = [
    "{}_scale", "attn.{}_scale", "{0}_proj.{0}_scale", "qkv_proj.{}_scale", "{}_proj.output_scale",
]  # fmt: skip
SHAPES = [
    torch.tensor(0.25),
    torch.tensor([0.25]),
    torch.tensor([0.25, 0.5]),
    torch.tensor(0.25, dtype=torch.bfloat16),
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("values", SHAPES, ids=lambda values: f"{values.dtype}{[*values.shape]}")
def test_scales_of_the_checkpoint_are_taken(write: Write, name: str, values: Tensor) -> None:
    folder = write({**both(name, 0, values), **both(name, 1, values * 4)})
    assembly = start(folder, scales="checkpoint")
    first = [0.25, 0.5] if values.numel() == HEADS else [0.25, 0.25]
    twice, fourfold = [2 * x for x in first], [4 * x for x in first]
    assert numbers(assembly) == [[first, twice], [fourfold, [2 * x for x in fourfold]]]
    assert assembly.summary.kv_encoding == "fp8_e4m3, scales of the checkpoint"
    assert assembly.loaded.notices == ()


def test_one_scale_for_keys_and_values(write: Write) -> None:
    extra = {f"{ATTENTION.format(i)}.kv_scale": torch.tensor(0.5 + i) for i in range(LAYERS)}
    assert numbers(start(write(extra))) == [[[0.5] * 2] * 2, [[1.5] * 2] * 2]


def test_scales_keep_their_precision_beside_half_weights(write: Write) -> None:
    exact = 0.1234567
    extra = {**both("{}_scale", 0, torch.tensor(exact)), **both("{}_scale", 1, torch.tensor(1.0))}
    folder = write(extra)
    stack = {"cache.stack": ["paged", "fp8"], "kernel.stack": ["torch"], "engine.threads": 1}
    llm = LLM(folder, dtype="bfloat16", num_gpu_blocks_override=32, progress=SilentProgress(),
              **stack)  # fmt: skip
    scales = scales_of(llm.assembly)[0]
    assert scales is not None and scales.k_K.dtype is torch.float32
    assert scales.k_K.tolist() == [float(torch.tensor(exact))] * 2


@pytest.mark.parametrize("settings", [{"scales": "calibrate"}, {"scales": "one"}, None])
def test_scales_that_nobody_asked_for_do_no_harm(
    write: Write, settings: dict[str, Any] | None
) -> None:
    extra = {
        **both("{}_scale", 0, torch.tensor(0.25)),
        f"{ATTENTION.format(0)}.q_scale": torch.tensor(1.0),
        f"{ATTENTION.format(1)}.prob_scale": torch.tensor(1.0),
    }
    assembly = start(write(extra), encoded=settings is not None, **(settings or {}))
    assert all(found != [[0.25] * 2, [0.5] * 2] for found in numbers(assembly))


def test_some_layers_without_scales_are_calibrated_and_reported(write: Write) -> None:
    plain = numbers(start(write(), scales="calibrate"))
    assembly = start(write(both("{}_scale", 0, torch.tensor(0.25))))
    assert numbers(assembly) == [[[0.25] * 2, [0.5] * 2], plain[1]]
    assert assembly.loaded.notices == (
        "the checkpoint has scales of keys and values for 1 of 2 layers; calibrated are 1",
    )
    assert any("for 1 of 2 layers" in line for line in assembly.summary.lines())
    assert assembly.summary.kv_encoding == (
        "fp8_e4m3, scales of the checkpoint and calibrated ones"
    )


def test_half_of_a_pair_is_no_scale(write: Write) -> None:
    lonely = {f"{ATTENTION.format(1)}.v_scale": torch.tensor(0.25)}
    notice, *others = start(write(lonely)).loaded.notices
    assert not others
    assert "for 0 of 2 layers; calibrated are 0, 1" in notice
    assert "model.layers.1.self_attn.v_scale has no counterpart" in notice


@pytest.mark.parametrize(
    ("extra", "count"),
    [
        ({}, "2 of 2 layers: 0, 1"),
        (both("{}_scale", 0, torch.tensor(0.25)), "1 of 2 layers: 1"),
        ({f"{ATTENTION.format(0)}.k_scale": torch.tensor(1.0)}, "2 of 2 layers: 0, 1 (model.lay"),
    ],
)
def test_missing_ones_are_an_error_if_only_the_checkpoint_counts(
    write: Write, extra: dict[str, Tensor], count: str
) -> None:
    with pytest.raises(CheckpointError) as raised:
        start(write(extra), scales="checkpoint")
    assert count in str(raised.value)


@pytest.mark.parametrize(
    ("name", "values", "problem"),
    [
        ("{}_scale", torch.tensor([0.1, 0.2, 0.3]), "shape is [3]"),
        ("{}_scale", torch.tensor([[0.1]]), "shape is [1, 1]"),
        ("{}_scale", torch.tensor(0.0), "holds [0.0]"),
        ("{}_scale", torch.tensor(-1.0), "holds [-1.0]"),
        ("{}_scale", torch.tensor(float("nan")), "holds [nan]"),
        ("{}_scale", torch.tensor(3), "element type is I64"),
    ],
)
def test_what_is_no_scale_is_refused_by_name(
    write: Write, name: str, values: Tensor, problem: str
) -> None:
    with pytest.raises(CheckpointError) as raised:
        start(write(both(name, 1, values)))
    assert "model.layers.1.self_attn.k_scale" in str(raised.value)
    assert problem in str(raised.value)


def test_two_names_for_one_scale_are_refused(write: Write) -> None:
    extra = both("{}_scale", 0, torch.tensor(0.25))
    extra[f"{ATTENTION.format(0)}.kv_scale"] = torch.tensor(0.25)
    with pytest.raises(CheckpointError, match=r"k_scale' and '.*kv_scale' both scale the keys"):
        start(write(extra))


def test_a_layer_that_is_not_there_is_refused(write: Write) -> None:
    with pytest.raises(CheckpointError, match=r"layers\.7.*the model has 2 layers"):
        start(write(both("{}_scale", 7, torch.tensor(0.25))))


def test_a_zero_point_has_no_place(write: Write) -> None:
    with pytest.raises(CheckpointError, match="k_zero_point"):
        start(write({f"{ATTENTION.format(0)}.k_zero_point": torch.tensor(1.0)}))


def test_weights_in_eight_bits_are_refused_by_name(write: Write) -> None:
    name = f"{ATTENTION.format(0)}.k_proj.weight"
    folder = write(both("{}_scale", 0, torch.tensor(0.25)))
    weights = load_file(folder / "model.safetensors")
    weights[name] = weights[name].to(torch.float8_e4m3fn)
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"k_proj.*quantized weights are not served"):
        start(folder)


def test_integers_do_not_take_scales_that_were_made_for_floats(write: Write) -> None:
    extra = {**both("{}_scale", 0, torch.tensor(0.25)), **both("{}_scale", 1, torch.tensor(0.25))}
    folder = write(extra)
    assert start(folder, format="int8").summary.kv_encoding == "int8, scales calibrated"
    asked = start(folder, format="int8", scales="checkpoint")
    assert asked.summary.kv_encoding == "int8, scales of the checkpoint"


def test_calibration_is_the_same_at_every_start(write: Write) -> None:
    folder = write()
    first, second = start(folder), start(folder, margin=1.5)
    assert numbers(first) == numbers(second)
    assert first.loaded.encoding_id == second.loaded.encoding_id


def test_calibration_leaves_the_configured_limits_aside(write: Write) -> None:
    folder = write()
    common = {"cache.stack": ["paged", "fp8"], "kernel.stack": ["torch"], "engine.threads": 1}
    small = LLM(folder, max_model_len=16, max_num_seqs=1, max_num_batched_tokens=4,
                num_gpu_blocks_override=2, progress=SilentProgress(), **common)  # fmt: skip
    assert numbers(small.assembly) == numbers(start(folder))


def test_a_scale_lets_the_largest_number_fit_with_the_margin(write: Write) -> None:
    folder = write()
    tight, wide = numbers(start(folder, margin=1.0)), numbers(start(folder, margin=2.0))
    ratio = torch.tensor(wide) / torch.tensor(tight)
    torch.testing.assert_close(ratio, torch.full_like(ratio, 2.0))
    coarse = torch.tensor(numbers(start(folder, margin=1.0, format="int8")))
    torch.testing.assert_close(coarse * 127, torch.tensor(tight) * 448)


def test_heads_that_compute_nothing_have_scale_one(write: Write) -> None:
    folder = write()
    weights = load_file(folder / "model.safetensors")
    weights[f"{ATTENTION.format(1)}.v_proj.weight"][:16] = 0
    save_file(weights, folder / "model.safetensors")
    scales = scales_of(start(folder))[1]
    assert scales is not None
    assert scales.v_K[0] == 1 and 0 < scales.v_K[1] < 1


def test_calibration_of_broken_weights_names_the_layer(write: Write) -> None:
    folder = write()
    weights = load_file(folder / "model.safetensors")
    weights[f"{ATTENTION.format(1)}.k_proj.weight"][0, 0] = float("inf")
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="layer 1 that are no numbers"):
        start(folder)


def test_random_weights_are_calibrated_too(write: Write) -> None:
    folder = write()
    llm = LLM(folder, load_format="dummy", num_gpu_blocks_override=32, progress=SilentProgress(),
              **{"cache.stack": ["paged", "fp8"], "kernel.stack": ["torch"]})  # fmt: skip
    assert llm.assembly.summary.kv_encoding == "fp8_e4m3, scales calibrated"


def test_identities_differ_whenever_the_stored_bits_could(write: Write) -> None:
    folder = write()
    made = [
        start(folder, encoded=False),
        start(folder),
        start(folder, format="e5m2"),
        start(folder, format="int8"),
        start(folder, margin=2),
        start(folder, scales="one"),
    ]
    identities = {assembly.loaded.encoding_id for assembly in made}
    assert len(identities) == len(made)
    assert {len(identity) for identity in identities} == {16}


def test_calibration_ids_come_from_all_over_the_vocabulary() -> None:
    ids = calibration_ids(50_000, 512)
    assert torch.equal(ids, calibration_ids(50_000, 512))
    assert int(ids.min()) >= 0 and int(ids.max()) < 50_000
    parts = torch.bincount(ids // 5000, minlength=10)
    assert parts.min() >= 50 and parts.max() <= 53
    assert set(calibration_ids(3, 40).tolist()) == {0, 1, 2}
