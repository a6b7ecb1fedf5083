"""From the model name that a user gives to a local folder."""

import os
import re
from pathlib import Path

from jackfield.core.api.errors import ModelNotFound
from jackfield.core.checkpoint.default_model import default_model
from jackfield.core.checkpoint.gguf_model import SUFFIX, gguf_folder, gguf_in
from jackfield.core.checkpoint.progress import Progress

HUB_FILES = ["*.safetensors", "*.json", "*.txt", "*.jinja", "*.model", "*.tiktoken"]
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


def resolve_model(
    name: str | None, *, revision: str | None = None, progress: Progress
) -> Path:
    """The folder of a model: the default one for no name, a local folder, or a hub id.

    A GGUF file, or a folder with nothing else of a model, is converted into the cache first.
    `revision` (branch, tag or commit) counts for hub ids only. Raises ModelNotFound.
    """
    found = locate_model(name, revision=revision, progress=progress)
    return gguf_folder(found, progress) if found.suffix == SUFFIX and found.is_file() else found


def locate_model(name: str | None, *, revision: str | None = None, progress: Progress) -> Path:
    """The same, but a GGUF file is left as it is."""
    if not name:
        return default_model(progress)
    folder = Path(name).expanduser()
    if folder.is_dir():
        return _checked(folder)
    if folder.exists() and folder.suffix == SUFFIX:
        return folder
    if folder.exists():
        raise ModelNotFound(f"Model {name} is a file; --model takes the folder around it.")
    if _looks_like_path(name):
        raise ModelNotFound(f"Model folder {name} does not exist.")
    if not HUB_ID.fullmatch(name):
        raise ModelNotFound(
            f"Model {name!r} is neither a folder nor a hub id; give a path such as ./{name}, "
            f"a hub id such as organisation/{name}, or no model for the default one."
        )
    return _from_hub(name, revision, progress)


def _checked(folder: Path) -> Path:
    if (folder / "config.json").is_file():
        return folder
    file = gguf_in(folder)
    if file is None:
        raise ModelNotFound(
            f"Model folder {folder} lacks config.json; a model folder holds config.json, "
            f"*.safetensors and tokenizer.json."
        )
    return file


def _looks_like_path(name: str) -> bool:
    return name.startswith((".", "/", "~")) or name.count(os.sep) > 1


def _from_hub(name: str, revision: str | None, progress: Progress) -> Path:
    from huggingface_hub import snapshot_download

    progress.start(f"Fetching {name} from the hub", None)
    try:
        found = snapshot_download(name, revision=revision, allow_patterns=HUB_FILES)
    except Exception as error:  # the client lets the errors of its transport through as they are
        wanted = f"{name} at revision {revision}" if revision else name
        raise ModelNotFound(
            f"Cannot fetch model {wanted} from the hub: {_first_line(error)}; check the name, "
            f"the network and the access token, or give a local folder."
        ) from error
    finally:
        progress.finish()
    return _checked(Path(found))


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
