"""Files beside config.json in which older tools say how weights are quantized."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jackfield.core.api.errors import ModelError
from jackfield.core.checkpoint.json_file import read_json_object
from jackfield.core.checkpoint.quant_section import SOURCE

SECTION = "quantization_config"
METHODS = {"quantize_config.json": "gptq", "quant_config.json": "awq"}
"""File -> the method of the tool that writes it, for those that do not say it themselves."""


def with_quant_file(folder: Path, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The content of config.json with the section that such a file stands for, if it has none.

    Raises ModelError for a folder with several.
    """
    names = [name for name in METHODS if (folder / name).is_file()]
    if config.get(SECTION) is not None or not names:
        return config
    if len(names) > 1:
        raise ModelError(
            f"{folder} holds {' and '.join(names)}, which say different things of one checkpoint; "
            f"remove the one that does not belong to it."
        )
    content = read_json_object(folder / names[0])
    method = {"quant_method": METHODS[names[0]]}
    return {**config, SECTION: {**method, **content, SOURCE: names[0]}}
