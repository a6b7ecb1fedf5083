"""Frequencies equal those of the reference implementation bit for bit, as do their cosines."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.phi.configuration_phi import PhiConfig
from transformers.models.phi.modeling_phi import PhiRotaryEmbedding

from jackfield.core.api.model import ModelInputs
from jackfield.plugins.models.blocks.config_reader import ConfigReader
from jackfield.plugins.models.blocks.rope_reader import read_rope
from jackfield.plugins.models.blocks.rotary import make_rotary

HEAD_DIM, TRAINED = 64, 256
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 64}
SCALED = {
    "linear": {"rope_type": "linear", "factor": 2.5},
    "linear partial": {"rope_type": "linear", "factor": 4.0, "partial_rotary_factor": 0.25},
    "llama3": {**LLAMA3, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "llama3 narrow": {**LLAMA3, "low_freq_factor": 2.0, "high_freq_factor": 2.5},
    "yarn": YARN,
    "yarn own factor": {**YARN, "attention_factor": 0.75},
    "yarn mscale": {**YARN, "mscale": 1.5, "mscale_all_dim": 0.5},
    "yarn one mscale": {**YARN, "mscale": 1.5},
    "yarn betas": {**YARN, "beta_fast": 16, "beta_slow": 2},
    "yarn not truncated": {**YARN, "truncate": False},
    "yarn partial": {**YARN, "partial_rotary_factor": 0.5},
}


def settings(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "hidden_size": 4 * HEAD_DIM,
        "num_attention_heads": 4,
        "max_position_embeddings": TRAINED,
        "rope_parameters": {"rope_theta": 500000.0, **parameters},
    }


@pytest.mark.parametrize("name", SCALED)
def test_scaled_frequencies_are_those_of_the_reference(name: str) -> None:
    config = LlamaConfig(**settings(SCALED[name]))
    frequencies, factor = ROPE_INIT_FUNCTIONS[str(SCALED[name]["rope_type"])](config)
    rope = read_rope(ConfigReader(settings(SCALED[name])), HEAD_DIM, TRAINED)
    torch.testing.assert_close(rope.inverse_frequencies(), frequencies, atol=0, rtol=0)
    assert rope.attention_factor == factor


@pytest.mark.parametrize("name", ["linear", "llama3", "yarn", "default"])
def test_gathered_rows_are_those_of_the_reference(name: str) -> None:
    parameters = SCALED.get(name, {"rope_type": "default"})
    positions = torch.tensor([255, 0, 17, 17, 100])
    theirs = LlamaRotaryEmbedding(LlamaConfig(**settings(parameters)))
    cos, sin = theirs(torch.zeros(1), positions[None])
    rope = read_rope(ConfigReader(settings(parameters)), HEAD_DIM, TRAINED)
    rotary = make_rotary(rope, torch.device("cpu"))
    cos_TW, sin_TW = rotary.gather(ModelInputs(positions, positions))
    torch.testing.assert_close(cos_TW, cos[0, :, :32], atol=0, rtol=0)
    torch.testing.assert_close(sin_TW, sin[0, :, :32], atol=0, rtol=0)
    assert cos_TW.dtype == torch.float32


@pytest.mark.parametrize("place", ["top", "parameters"])
def test_a_part_of_the_head_rotates(place: str) -> None:
    partial = {"partial_rotary_factor": 0.4}
    config = settings({"rope_type": "default"} | (partial if place == "parameters" else {}))
    config |= partial if place == "top" else {}
    theirs = PhiRotaryEmbedding(PhiConfig(**settings({"rope_type": "default", **partial})))
    rope = read_rope(ConfigReader(config), HEAD_DIM, TRAINED)
    assert rope.dim == 25
    torch.testing.assert_close(rope.inverse_frequencies(), theirs.inv_freq, atol=0, rtol=0)


@pytest.mark.parametrize("prompt", [1, 255, 256, 257, 700])
def test_dynamic_base_depends_on_each_sequence(prompt: int) -> None:
    parameters = {"rope_type": "dynamic", "factor": 4.0}
    positions = torch.tensor([prompt - 1, 0, 2, 900])
    lens = torch.tensor([prompt, prompt, 8, 16])
    rope = read_rope(ConfigReader(settings(parameters)), HEAD_DIM, TRAINED)
    rotary = make_rotary(rope, torch.device("cpu"))
    cos_TW, sin_TW = rotary.gather(ModelInputs(positions, positions, lens))
    for row, (position, reach) in enumerate(
        zip(positions.tolist(), [prompt, prompt, 8, 901], strict=True)
    ):
        config = LlamaConfig(**settings(parameters))
        frequencies, _ = ROPE_INIT_FUNCTIONS["dynamic"](config, seq_len=reach)
        torch.testing.assert_close(cos_TW[row], (position * frequencies).cos(), atol=1e-4, rtol=0)
        torch.testing.assert_close(sin_TW[row], (position * frequencies).sin(), atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, 256),
        ({"rope_type": "linear", "factor": 2.5}, 640),
        ({"rope_type": "dynamic", "factor": 4.0}, 1024),
        (SCALED["llama3"], 256),
        (YARN, 256),
        ({**YARN, "factor": 8.0}, 512),
        ({"rope_type": "yarn", "factor": 4.0}, 1024),
    ],
)
def test_longest_context(parameters: Mapping[str, Any], expected: int) -> None:
    assert read_rope(ConfigReader(settings(parameters)), 64, TRAINED).max_positions == expected


def test_old_and_new_forms_say_the_same() -> None:
    old = {"rope_theta": 7000.0, "rope_scaling": {"type": "linear", "factor": 2.0}}
    new = {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 7000.0}}
    read = [read_rope(ConfigReader(form), 64, TRAINED) for form in (old, new)]
    assert read[0] == read[1]
    assert read[0].theta == 7000.0
