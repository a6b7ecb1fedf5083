"""Texts to read, and questions to answer, from files that users give."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from jackfield.core.api import ConfigError

LINES = ".jsonl"
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?|-?\.\d+")


class Question(NamedTuple):
    """answer: the number that is right."""

    text: str
    answer: Decimal


def read_documents(file: Path) -> list[str]:
    """The whole file, or the `text` of each line of a *.jsonl. Raises `ConfigError`."""
    if file.suffix != LINES:
        return [_content(file)]
    return [_field(file, number, entry, "text") for number, entry in _entries(file)]


def read_questions(file: Path) -> list[Question]:
    """`question` and `answer` of each line of a *.jsonl, in the form of GSM8K: the last number of
    the answer counts. Raises `ConfigError` that names the line."""
    found = []
    for number, entry in _entries(file):
        answer = last_number(_field(file, number, entry, "answer"))
        if answer is None:
            raise ConfigError(f"{file}, line {number}: answer has no number to compare with")
        found.append(Question(_field(file, number, entry, "question"), answer))
    return found


def last_number(text: str) -> Decimal | None:
    """Such as 1234.5 of "it is $1,234.50."; None if there is none."""
    found = NUMBER.findall(text)
    return Decimal(found[-1].replace(",", "")) if found else None


def windows(tokens: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """Stretches of at most so many tokens; each is read by itself, so one token alone is none."""
    for start in range(0, len(tokens), size):
        window = tokens[start : start + size]
        if len(window) > 1:
            yield window


def _entries(file: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    lines = _content(file).split("\n")
    if not any(line.strip() for line in lines):
        raise ConfigError(f"{file} has no line; each line is to be a JSON object")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise ConfigError(f"{file}, line {number} is not JSON: {error}") from error
        if not isinstance(entry, dict):
            raise ConfigError(f"{file}, line {number} is to be a JSON object, such as a question")
        yield number, entry


def _field(file: Path, number: int, entry: Mapping[str, Any], name: str) -> str:
    value = entry.get(name)
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise ConfigError(f"{file}, line {number}: {name} is {value!r}; expected a text")
    return value


def _content(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error
