"""Sampling that nobody asked for: request over configuration over the model's file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jackfield import LLM, SamplingParams
from jackfield.core.api import ConfigError
from jackfield.core.host.config import SamplingConfig
from jackfield.core.testing.tiny_model import write_tiny_model

OF_THE_FILE = {"temperature": 0.1, "top_k": 1, "repetition_penalty": 1.05}
ALL: dict[str, Any] = {
    "temperature": 0.3, "top_p": 0.4, "top_k": 5, "min_p": 0.1, "presence_penalty": 0.6,
    "frequency_penalty": 0.7, "repetition_penalty": 1.2, "max_tokens": 9, "min_tokens": 2,
    "stop": ["zz"], "stop_token_ids": [4], "ignore_eos": True, "seed": 12,
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("preset"), **OF_THE_FILE)


def preset(prefix: dict[str, Any]) -> dict[str, Any]:
    return {f"sampling.{name}": value for name, value in prefix.items()}


def test_the_file_is_over_the_defaults(folder: Path, load: Callable[..., LLM]) -> None:
    llm = load(folder)
    assert llm.default_sampling_params() == SamplingParams(**OF_THE_FILE)
    assert llm.assembly.summary.sampling == OF_THE_FILE
    assert any("temperature 0.1, top_k 1" in line for line in llm.assembly.summary.lines())


def test_the_configuration_is_over_the_file(folder: Path, load: Callable[..., LLM]) -> None:
    llm = load(folder, **preset({"temperature": 0.0, "presence_penalty": 1.5}))
    expected = {**OF_THE_FILE, "temperature": 0.0, "presence_penalty": 1.5}
    assert llm.default_sampling_params() == SamplingParams(**expected)
    assert load(folder, generation_config="none").default_sampling_params() == SamplingParams()


def test_a_request_is_over_both(folder: Path, load: Callable[..., LLM]) -> None:
    llm = load(folder, **preset({"max_tokens": 3, "ignore_eos": True}))
    none = llm.generate([[5], [5]], use_tqdm=False)
    assert [len(output.outputs[0].token_ids) for output in none] == [3, 3]
    own = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)
    [output] = llm.generate([5], own, use_tqdm=False)
    assert len(output.outputs[0].token_ids) == 5


def test_every_field_of_the_configuration_takes_effect(
    folder: Path, load: Callable[..., LLM]
) -> None:
    assert set(ALL) == set(SamplingConfig.model_fields)
    llm = load(folder, **preset(ALL))
    assert llm.default_sampling_params() == SamplingParams(**ALL)
    assert llm.assembly.summary.sampling == ALL


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("frequency_penalti", 1.0, "sampling.frequency_penalti .*frequency_penalty"),
        ("presence_penalty", 3.0, "presence_penalty"),
        ("temperature", float("nan"), "temperature"),
        ("top_p", 0.0, "top_p"),
    ],
)
def test_a_preset_that_is_wrong_stops_the_start(
    folder: Path, load: Callable[..., LLM], name: str, value: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load(folder, **preset({name: value}))
