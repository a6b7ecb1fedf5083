"""The part of a model that deals with texts: tokenizer, chat template, sampling defaults."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jackfield.core.api import TokenizerError
from jackfield.core.checkpoint.folder import ModelFolder
from jackfield.core.host.config import Config
from jackfield.core.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Texts:
    """What a front needs of a model; it is loaded without torch.

    sampling_defaults: what a request gets that says nothing.
    """

    folder: Path
    tokenizer: Tokenizer | None
    sampling_defaults: Mapping[str, Any]

    def render_chat(
        self, messages: Sequence[Mapping[str, Any]], **options: Any
    ) -> tuple[str, list[int]]:
        """A conversation as text and ids, through the model's chat template."""
        tokenizer = self.tokenizer
        if tokenizer is None or tokenizer.chat_template is None:
            raise TokenizerError(
                f"{self.folder} has no chat template; use a plain prompt, or put a "
                f"chat_template.jinja into the model folder"
            )
        text = tokenizer.chat_template.render(messages, **options)
        return text, tokenizer.encode(text, add_special_tokens=False)

    def notices(self) -> list[str]:
        """A template that fails for everybody should not wait for the first request to say so."""
        if self.tokenizer is None or self.tokenizer.chat_template is None:
            return []
        complaint = self.tokenizer.chat_template.trial()
        return [] if complaint is None else [f"a plain chat fails: {complaint}"]


def load_texts(config: Config, folder: ModelFolder) -> Texts:
    """Raises `TokenizerError` that names the file."""
    return Texts(folder.path, _tokenizer(config, folder.path), _sampling_defaults(config, folder))


def _sampling_defaults(config: Config, folder: ModelFolder) -> dict[str, Any]:
    """The configuration over the model's own file."""
    own = folder.generation_defaults if config.model.generation_config == "auto" else {}
    return {**own, **config.sampling.given}


def _tokenizer(config: Config, folder: Path) -> Tokenizer | None:
    if config.model.skip_tokenizer_init:
        return None
    return Tokenizer.load(Path(config.model.tokenizer or folder).expanduser())
