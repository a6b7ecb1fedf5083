"""Files beside config.json that say how weights are quantized."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jackfield.core.api.errors import ModelError
from jackfield.core.checkpoint.folder import ModelFolder
from jackfield.core.checkpoint.quant_plan import read_quant_plan
from jackfield.core.testing.tiny_llm import tiny_llm

Make = Callable[..., Any]
FILES = {
    "gptq order": ("quantize_config.json", {"quant_method"}),
    "awq 128": ("quant_config.json", {"quant_method"}),
}


def moved(made: Any, folder: Path, file: str, without: set[str]) -> Path:
    """The folder, with the section as a file that does not name its method."""
    made.write(folder)
    (folder / "config.json").write_text(json.dumps(made.config))
    section = {key: value for key, value in made.quantization.items() if key not in without}
    (folder / file).write_text(json.dumps(section))
    return folder


@pytest.mark.parametrize("recipe", FILES)
def test_such_a_folder_answers_as_the_other(
    recipe: str, checkpoint: Make, tmp_path: Path
) -> None:
    made = checkpoint(recipe)
    folders = [made.write(tmp_path / "one"), moved(made, tmp_path / "two", *FILES[recipe])]
    answers = []
    for folder in folders:
        with tiny_llm(folder, num_gpu_blocks_override=8, max_model_len=64) as llm:
            answers.append(llm.generate([[1, 2, 3]], use_tqdm=False)[0].outputs[0].token_ids)
    assert answers[0] == answers[1]


def plan(folder: Path) -> Any:
    return read_quant_plan(ModelFolder(folder).config)


def test_config_json_goes_first(checkpoint: Make, tmp_path: Path) -> None:
    folder = checkpoint("awq 32").write(tmp_path / "model")
    (folder / "quantize_config.json").write_text(json.dumps({"bits": 3}))
    assert plan(folder).method == "awq"


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"quantize_config.json": {"bits": 3}}, r"^quantize_config\.json: bits is 3; expected 4"),
        ({"quant_config.json": {"w_bit": 4, "version": "x"}}, r"^quant_config\.json: version is"),
        ({"quantize_config.json": {"quant_method": "x"}}, "json: quant_method is 'x'; served"),
        ({"quantize_config.json": {}, "quant_config.json": {}}, "remove the one that does not"),
        ({"quant_config.json": [1]}, r"quant_config\.json holds a JSON list"),
    ],
)
def test_what_is_wrong_names_the_file(
    files: dict[str, Any], words: str, checkpoint: Make, tmp_path: Path
) -> None:
    made = checkpoint("awq 32")
    made.write(tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text(json.dumps(made.config))
    for name, content in files.items():
        (tmp_path / "model" / name).write_text(json.dumps(content))
    with pytest.raises(ModelError, match=words):
        plan(tmp_path / "model")
