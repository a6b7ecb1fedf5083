"""A model that is to be compared: what can be told of it before its weights are read."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jackfield.core.api import ConfigError, ModelSpec
from jackfield.core.checkpoint.folder import ModelFolder
from jackfield.core.checkpoint.progress import Progress
from jackfield.core.checkpoint.quant_plan import read_quant_plan
from jackfield.core.checkpoint.resolve import resolve_model
from jackfield.core.host.sources import Resolved
from jackfield.core.host.stack import load_model_class
from jackfield.core.text.tokenizer import Tokenizer


class Subject(NamedTuple):
    """quantization: the method, or "" for plain weights."""

    resolved: Resolved
    path: Path
    spec: ModelSpec
    tokenizer: Tokenizer
    quantization: str


def subject_of(resolved: Resolved, progress: Progress) -> Subject:
    """Reads config.json and the tokenizer only. Raises what is wrong with them."""
    model = resolved.config.model
    if model.skip_tokenizer_init:
        raise ConfigError("a text needs the tokenizer; set model.skip_tokenizer_init to false")
    path = resolve_model(model.name, revision=model.revision, progress=progress)
    folder = ModelFolder(path)
    chosen: Any = load_model_class(model.architecture or folder.architecture).cls
    plan = read_quant_plan(folder.config)
    tokenizer = Tokenizer.load(Path(model.tokenizer or path).expanduser())
    method = "" if plan is None else plan.method
    return Subject(resolved, path, chosen.describe(folder.config), tokenizer, method)


def require_plain(subject: Subject, dtype: str) -> None:
    """Raise `ConfigError` for a quantized checkpoint: what it was made from is not in it."""
    if subject.quantization:
        raise ConfigError(
            f"{subject.path} is quantized ({subject.quantization}), so that its weights in "
            f"{dtype} are not known; give the folder that it was made from as --reference"
        )


def require_comparable(model: Subject, reference: Subject, documents: Sequence[str]) -> None:
    """Raise `ConfigError` unless both predict the same tokens for each of the texts."""
    sizes = model.spec.vocab_size, reference.spec.vocab_size
    if sizes[0] != sizes[1]:
        raise ConfigError(
            f"the vocabularies have {sizes[0]} entries in {model.path} and {sizes[1]} in "
            f"{reference.path}; only models of one vocabulary can be compared token by token"
        )
    for text in documents:
        if model.tokenizer.encode(text) != reference.tokenizer.encode(text):
            raise ConfigError(
                f"the tokenizers of {model.path} and {reference.path} cut the text into other "
                f"tokens; only models of one tokenizer can be compared token by token"
            )
