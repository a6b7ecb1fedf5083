"""A model folder in the layout of Hugging Face: what its JSON files say."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jackfield.core.api.errors import ModelError, RequestError
from jackfield.core.api.sampling import SamplingParams
from jackfield.core.checkpoint.json_file import read_json_object
from jackfield.core.checkpoint.quant_file import with_quant_file
from jackfield.core.checkpoint.tensor_files import TensorFiles, find_tensor_files

SAMPLING_KEYS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
NO_SAMPLING_KEYS = ("bos_token_id", "eos_token_id", "pad_token_id", "transformers_version")


class ModelFolder:
    """Read once, when it is made; the weights only by whoever takes them.

    config: config.json, with a quantization_config that is a file of its own. generation_defaults:
    those of generation_config.json that `SamplingParams` knows; ignored_generation_keys: those that
    have no effect.
    Raises ModelError that names the file for what is missing or malformed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config: Mapping[str, Any] = with_quant_file(
            path, read_json_object(path / "config.json")
        )
        generation = path / "generation_config.json"
        self._generation = read_json_object(generation) if generation.is_file() else {}
        self.architecture = self._read_architecture()
        self.generation_defaults = self._read_generation_defaults()
        self.ignored_generation_keys = self._unknown_generation_keys()
        self._eos_ids = self._read_eos_ids()

    @property
    def dtype_name(self) -> str | None:
        """The element type that the weights were trained in, such as "bfloat16"; None = unsaid."""
        key = "dtype" if self.config.get("dtype") is not None else "torch_dtype"
        name = self.config.get(key)
        if name is not None and not isinstance(name, str):
            raise ModelError(f"{self.path / 'config.json'}: {key} is {name!r}; expected a string.")
        return None if name is None else name.removeprefix("torch.")

    def eos_ids(self, tokenizer_eos: int | None = None) -> frozenset[int]:
        """Every id that ends an answer: those of both configs, and the tokenizer's."""
        return self._eos_ids if tokenizer_eos is None else self._eos_ids | {tokenizer_eos}

    def tensor_files(self) -> TensorFiles:
        """Where the weights are. Raises CheckpointError when they are not all there."""
        return find_tensor_files(self.path)

    def _read_architecture(self) -> str:
        names = self.config.get("architectures")
        if not isinstance(names, list) or not names or not isinstance(names[0], str):
            raise ModelError(
                f"{self.path / 'config.json'}: architectures is {names!r}; expected a list with "
                f"the name of the model class, such as ['LlamaForCausalLM']."
            )
        return names[0]

    def _read_generation_defaults(self) -> Mapping[str, Any]:
        defaults = {
            key: self._generation[key]
            for key in SAMPLING_KEYS
            if self._generation.get(key) is not None
        }
        try:
            SamplingParams(**defaults)
        except RequestError as error:
            raise ModelError(f"{self.path / 'generation_config.json'}: {error}.") from error
        return defaults

    def _unknown_generation_keys(self) -> tuple[str, ...]:
        known = {*SAMPLING_KEYS, *NO_SAMPLING_KEYS}
        keys = (key for key in self._generation if key not in known and not key.startswith("_"))
        return tuple(sorted(keys))

    def _read_eos_ids(self) -> frozenset[int]:
        generation = self.path / "generation_config.json"
        stated = _token_ids(self.path / "config.json", self.config)
        return frozenset(stated + _token_ids(generation, self._generation))


def _token_ids(file: Path, source: Mapping[str, Any]) -> list[int]:
    value = source.get("eos_token_id")
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(token, int) and not isinstance(token, bool) for token in ids):
        raise ModelError(f"{file}: eos_token_id is {value!r}; expected an id or a list of ids.")
    return ids
