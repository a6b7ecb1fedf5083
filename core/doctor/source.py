"""Where the facts of a model come from: the JSON files and headers of a folder, or a GGUF file."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jackfield.core.checkpoint.folder import ModelFolder
from jackfield.core.checkpoint.gguf_model import SUFFIX
from jackfield.core.checkpoint.safetensors_header import StoredTensor
from jackfield.core.checkpoint.safetensors_weights import locate
from jackfield.core.text.template import ChatTemplate
from jackfield.core.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Source:
    """stored and tokenizer are read when they are called, and raise what is wrong with them.

    defaults: of sampling. ignored: keys of generation_config.json that have no effect.
    """

    path: Path
    form: str
    config: Mapping[str, Any]
    architecture: str
    dtype_name: str | None
    eos_ids: frozenset[int]
    defaults: Mapping[str, Any]
    ignored: tuple[str, ...]
    stored: Callable[[], Mapping[str, StoredTensor]]
    tokenizer: Callable[[], Tokenizer]


def open_source(path: Path, tokenizer: str | None) -> Source:
    """Of a folder or a GGUF file. tokenizer: another folder to take it from. Raises ModelError."""
    if path.suffix == SUFFIX and path.is_file():
        return _gguf(path, tokenizer)
    folder = ModelFolder(path)
    texts = Path(tokenizer or path).expanduser()
    return Source(
        path=path,
        form="a model folder",
        config=folder.config,
        architecture=folder.architecture,
        dtype_name=folder.dtype_name,
        eos_ids=folder.eos_ids(),
        defaults=folder.generation_defaults,
        ignored=folder.ignored_generation_keys,
        stored=lambda: locate(folder.tensor_files()),
        tokenizer=lambda: Tokenizer.load(texts),
    )


def _gguf(path: Path, tokenizer: str | None) -> Source:
    """As the folder that it would be converted to."""
    from jackfield.core.checkpoint.gguf_convert import llama_config
    from jackfield.core.checkpoint.gguf_file import GgufFile

    file = GgufFile(path)
    config = llama_config(file)
    end = config["eos_token_id"]
    return Source(
        path=path,
        form="a GGUF file, which is converted to bfloat16 in the cache",
        config=config,
        architecture=config["architectures"][0],
        dtype_name=config["torch_dtype"],
        eos_ids=frozenset(() if end is None else (end,)),
        defaults={},
        ignored=(),
        stored=lambda: _gguf_tensors(file, config["num_hidden_layers"]),
        tokenizer=lambda: Tokenizer.load(Path(tokenizer)) if tokenizer else _gguf_tokenizer(file),
    )


def _gguf_tensors(file: Any, num_layers: int) -> Mapping[str, StoredTensor]:
    from jackfield.core.checkpoint.gguf_weights import llama_tensors, reject_unknown_tensors

    reject_unknown_tensors(file, num_layers)
    file.require_readable()
    tensors = llama_tensors(file, num_layers)
    return {t.name: StoredTensor(file.path, "BF16", t.shape, t.num_bytes) for t in tensors}


def _gguf_tokenizer(file: Any) -> Tokenizer:
    from jackfield.core.checkpoint.gguf_tokenizer import build_tokenizer, tokenizer_config

    config = tokenizer_config(file)
    names = {name: value for name, value in config.items() if name.endswith("_token")}
    names = {name: value for name, value in names.items() if isinstance(value, str)}
    source = config.get("chat_template")
    template = None if source is None else ChatTemplate(source, special_tokens=names)
    return Tokenizer(build_tokenizer(file), special_tokens=names, chat_template=template)
