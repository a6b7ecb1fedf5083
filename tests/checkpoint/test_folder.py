"""What the JSON files of a model folder say."""

import json
from pathlib import Path
from typing import Any

import pytest

from jackfield.core.api.errors import ModelError
from jackfield.core.checkpoint.folder import ModelFolder


def write(folder: Path, config: Any = None, generation: Any = None) -> ModelFolder:
    config = {"architectures": ["LlamaForCausalLM"]} | (config or {})
    (folder / "config.json").write_text(json.dumps(config))
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    return ModelFolder(folder)


def test_config_and_architecture(tmp_path: Path) -> None:
    folder = write(tmp_path, {"hidden_size": 8})
    assert folder.architecture == "LlamaForCausalLM"
    assert folder.config["hidden_size"] == 8
    assert folder.generation_defaults == {} and folder.ignored_generation_keys == ()


@pytest.mark.parametrize("text", ["", "{", "[1]", '"x"', b"\xff\xfe\x00"])
@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_malformed_json(tmp_path: Path, name: str, text: str | bytes) -> None:
    write(tmp_path)
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ModelError) as caught:
        ModelFolder(tmp_path)
    assert str(tmp_path / name) in str(caught.value)


def test_missing_config(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json"):
        ModelFolder(tmp_path)


@pytest.mark.parametrize("architectures", [None, [], "LlamaForCausalLM", [3]])
def test_no_architecture(tmp_path: Path, architectures: Any) -> None:
    with pytest.raises(ModelError) as caught:
        write(tmp_path, {"architectures": architectures})
    assert "config.json" in str(caught.value) and "architectures" in str(caught.value)


@pytest.mark.parametrize(
    ("config", "generation", "tokenizer", "expected"),
    [
        (2, None, None, {2}),
        ([2, 3], None, 9, {2, 3, 9}),
        (2, [4, 2], None, {2, 4}),
        (None, 0, None, {0}),
        (None, None, 0, {0}),
        (None, None, None, set()),
    ],
)
def test_ends_are_united(
    tmp_path: Path, config: Any, generation: Any, tokenizer: int | None, expected: set[int]
) -> None:
    folder = write(tmp_path, {"eos_token_id": config}, {"eos_token_id": generation})
    assert folder.eos_ids(tokenizer) == expected


@pytest.mark.parametrize("value", ["2", [2, None], True, 2.0])
@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_malformed_ends(tmp_path: Path, name: str, value: Any) -> None:
    given = {"eos_token_id": value}
    with pytest.raises(ModelError) as caught:
        write(tmp_path, *([given, None] if name == "config.json" else [None, given]))
    assert str(tmp_path / name) in str(caught.value) and "eos_token_id" in str(caught.value)


def test_generation_defaults(tmp_path: Path) -> None:
    known = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "repetition_penalty": 1.05}
    other = {"do_sample": True, "min_p": None, "typical_p": 1.0, "_from_model_config": True}
    folder = write(tmp_path, None, known | other | {"bos_token_id": 1, "transformers_version": "5"})
    assert folder.generation_defaults == known
    assert folder.ignored_generation_keys == ("do_sample", "typical_p")


@pytest.mark.parametrize(("key", "value"), [("top_p", 1.5), ("temperature", "hot")])
def test_wrong_generation_defaults(tmp_path: Path, key: str, value: Any) -> None:
    with pytest.raises(ModelError) as caught:
        write(tmp_path, None, {key: value})
    assert "generation_config.json" in str(caught.value) and key in str(caught.value)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"torch_dtype": "bfloat16"}, "bfloat16"),
        ({"dtype": "float16"}, "float16"),
        ({"dtype": None, "torch_dtype": "torch.float32"}, "float32"),
        ({}, None),
    ],
)
def test_dtype(tmp_path: Path, config: Any, expected: str | None) -> None:
    assert write(tmp_path, config).dtype_name == expected


def test_malformed_dtype(tmp_path: Path) -> None:
    folder = write(tmp_path, {"torch_dtype": 16})
    with pytest.raises(ModelError, match="torch_dtype is 16"):
        _ = folder.dtype_name
