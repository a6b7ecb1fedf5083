"""The files of a model folder that describe its tokenizer, with errors that name the file."""

import json
from pathlib import Path
from typing import Any

import tokenizers

from jackfield.core.api.errors import TokenizerError
from jackfield.core.text.rank_file import has_ranks_only, rank_backend, rank_config


def read_backend(folder: Path) -> tokenizers.Tokenizer:
    """The tokenizer in tokenizer.json, or else in a file of ranks, set to give every token of a
    text and no padding."""
    if has_ranks_only(folder):
        return rank_backend(folder)
    path = folder / "tokenizer.json"
    _require(path)
    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exception
        raise TokenizerError(f"{path} is broken ({error}); fetch it again.") from error
    backend.no_truncation()
    backend.no_padding()
    return backend


def read_config(folder: Path) -> dict[str, Any]:
    """The content of tokenizer_config.json, with the older file that may name special tokens."""
    path = folder / "tokenizer_config.json"
    if has_ranks_only(folder):
        generation = folder / "generation_config.json"
        meant = rank_config(_read_object(generation) if generation.is_file() else {})
        return meant | (_read_object(path) if path.is_file() else {})
    _require(path)
    config = _read_object(path)
    older = folder / "special_tokens_map.json"
    if "added_tokens_decoder" not in config and older.is_file():
        config |= _read_object(older)
    return config


def read_templates(folder: Path, config: dict[str, Any]) -> dict[str, str]:
    """Chat templates by name; the only or main one is "default"; empty when the model has none.

    chat_template.jinja (with the named ones in additional_chat_templates) goes before
    chat_template.json, and that before `chat_template` in tokenizer_config.json.
    """
    templates = _jinja_templates(folder)
    if templates:
        return templates
    path = folder / "chat_template.json"
    if path.is_file():
        return _templates_in(_read_object(path), path)
    return _templates_in(config, folder / "tokenizer_config.json")


def special_token_texts(config: dict[str, Any]) -> dict[str, str]:
    """The texts of bos_token, eos_token and so on by these names, for those the config sets."""
    texts = {name: _token_text(value) for name, value in config.items() if name.endswith("_token")}
    return {name: text for name, text in texts.items() if text is not None}


def extra_special_texts(config: dict[str, Any]) -> list[str]:
    """The texts of special tokens that the config lists without a name of their own."""
    extra = config.get("extra_special_tokens") or config.get("additional_special_tokens") or []
    listed = extra.values() if isinstance(extra, dict) else extra
    return [text for text in map(_token_text, listed) if text is not None]


def _jinja_templates(folder: Path) -> dict[str, str]:
    main = folder / "chat_template.jinja"
    paths = {path.stem: path for path in (folder / "additional_chat_templates").glob("*.jinja")}
    if main.is_file():
        paths["default"] = main
    return {name: _read_text(path) for name, path in sorted(paths.items())}


def _templates_in(content: dict[str, Any], path: Path) -> dict[str, str]:
    template = content.get("chat_template")
    if template is None:
        return {}
    if isinstance(template, str):
        return {"default": template}
    try:
        return {str(entry["name"]): str(entry["template"]) for entry in template}
    except (TypeError, KeyError) as error:
        raise TokenizerError(
            f"{path}: chat_template must be a text or a list of objects with name and template."
        ) from error


def _token_text(value: object) -> str | None:
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _require(path: Path) -> None:
    if not path.is_file():
        raise TokenizerError(
            f"{path} is missing; fetch the model again with its tokenizer files, "
            f"or send token ids instead of text."
        )


def _read_object(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(_read_text(path))
    except ValueError as error:
        raise TokenizerError(f"{path} is not JSON ({error}); fetch it again.") from error
    if not isinstance(content, dict):
        raise TokenizerError(f"{path} must hold a JSON object; fetch it again.")
    return content


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TokenizerError(f"{path} cannot be read ({error}); fetch it again.") from error
