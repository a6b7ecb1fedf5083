"""Which files of a model folder hold its weights."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from jackfield.core.api.errors import CheckpointError
from jackfield.core.checkpoint.json_file import read_json_object

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
NUMBERED = re.compile(r"(.+)-(\d+)-of-(\d+)\.safetensors")


class TensorFiles(NamedTuple):
    """The files to read. places: by name of a tensor the file that an index, if any, gives it."""

    files: tuple[Path, ...]
    places: Mapping[str, Path]


def find_tensor_files(folder: Path) -> TensorFiles:
    """One way only, so that no tensor is read twice: the single file, else the index, else all.

    Raises CheckpointError for a shard that is missing and for a folder without safetensors.
    """
    if (folder / SINGLE).is_file():
        return TensorFiles((folder / SINGLE,), {})
    if (folder / INDEX).is_file():
        return _indexed(folder / INDEX)
    files = sorted(folder.glob("*.safetensors"))
    files = [file for file in files if not file.name.startswith("consolidated")] or files
    if not files:
        raise CheckpointError(_no_safetensors(folder))
    _require_all_numbers(files)
    return TensorFiles(tuple(files), {})


def _indexed(path: Path) -> TensorFiles:
    names = read_json_object(path).get("weight_map")
    if not isinstance(names, dict) or not names:
        raise CheckpointError(f"{path} has no weight_map from tensors to files; fetch it again.")
    places = {tensor: path.parent / _plain(path, name) for tensor, name in names.items()}
    files = sorted(set(places.values()))
    for file in files:
        if not file.is_file():
            raise _missing(file, f"which {path.name} names")
    return TensorFiles(tuple(files), places)


def _plain(path: Path, name: object) -> str:
    if not isinstance(name, str) or Path(name).name != name:
        raise CheckpointError(f"{path} names the file {name!r}; expected a file beside it.")
    return name


def _require_all_numbers(files: list[Path]) -> None:
    present = {file.name for file in files}
    for file in files:
        match = NUMBERED.fullmatch(file.name)
        if match is None:
            continue
        stem, digits, count = match[1], len(match[2]), match[3]
        for number in range(1, min(int(count), 10_000) + 1):
            name = f"{stem}-{number:0{digits}}-of-{count}.safetensors"
            if name not in present:
                raise _missing(file.with_name(name), f"one of {int(count)} by their names")


def _missing(file: Path, reason: str) -> CheckpointError:
    return CheckpointError(
        f"{file.parent} lacks the shard {file.name}, {reason}; fetch the model again."
    )


def _no_safetensors(folder: Path) -> str:
    pickles = sorted(
        file.name for file in folder.iterdir() if file.suffix in (".bin", ".pt", ".pth")
    )
    if not pickles:
        return f"{folder} holds no *.safetensors file; a model folder has its weights beside it."
    return (
        f"{folder} holds its weights as {pickles[0]}; only safetensors are read, since such a "
        f"pickle can run code. Convert it once where you trust it: load the model with "
        f"transformers and call save_pretrained(folder, safe_serialization=True)."
    )
