"""Reading the JSON files of a model folder."""

import json
from pathlib import Path
from typing import Any

from jackfield.core.api.errors import ModelError


def read_json_object(path: Path) -> dict[str, Any]:
    """The object that the file holds. Raises ModelError that names the file and what is wrong."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"Cannot read {path}: {error.strerror or error}.") from error
    except ValueError as error:
        raise ModelError(f"{path} is not valid JSON ({error}); fetch it again.") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path} holds a JSON {type(value).__name__}; expected an object.")
    return value
