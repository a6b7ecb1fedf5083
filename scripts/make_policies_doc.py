"""Writes docs/policies/ from the policies that come along. With --check it only compares."""

import re
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from typing import Any

from jackfield.core.api import Discipline

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "docs" / "policies"
INDEX = ROOT / "docs" / "policies.md"
GROUP = "jackfield.v1.schedulers"
HEAD = """\
# Scheduling policies

These come along; each is a plugin like any other ([plugins.md](plugins.md)). Disciplines order, and
are named in `scheduler.stack`; advisors limit, and are named in `scheduler.advisors`. The settings
of each are keys of its table, such as `[scheduler.fairness]`.

This page and those that it links to are made from the docstrings of the plugins by
`scripts/make_policies_doc.py`; change them, not these pages.
"""
CHAPTERS = (("Disciplines", True), ("Advisors", False))
LIMITS = {
    "exclusiveMinimum": "above {}", "minimum": "at least {}",
    "exclusiveMaximum": "below {}", "maximum": "at most {}",
}  # fmt: skip


def plugins() -> dict[str, Any]:
    """Name -> class, as the project's entry points name them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = {}
    for name, value in project["entry-points"][GROUP].items():
        module, _, cls = value.partition(":")
        found[name] = getattr(import_module(module), cls)
    return found


def documents() -> Iterator[tuple[Path, str]]:
    """Every page and where it lies."""
    known = plugins()
    index = [HEAD]
    for title, orders in CHAPTERS:
        index.append(f"## {title}\n\n| policy | what it is for |\n|---|---|")
        for name, cls in sorted(known.items()):
            if issubclass(cls, Discipline) is orders:
                summary = _inline(sys.modules[cls.__module__].__doc__)
                index.append(f"| [{name}](policies/{name}.md) | {summary} |")
        index.append("")
    yield INDEX, "\n".join(index)
    for name, cls in known.items():
        yield PAGES / f"{name}.md", page(name, cls)


def page(name: str, cls: Any) -> str:
    """What one policy does, promises and takes."""
    parts = [f"# {name}\n", f"{cleandoc(cls.__doc__)}\n", f"{_use(name, cls)}\n"]
    schema = cls.Config.model_json_schema()
    if rows := list(_rows(f"scheduler.{name}", schema, cls.Config.__doc__, schema)):
        parts.append("## Settings\n\n| key | default | value | meaning |\n|---|---|---|---|")
        parts.extend([*rows, ""])
    parts.append("[All policies](../policies.md)\n")
    return "\n".join(parts)


def _use(name: str, cls: Any) -> str:
    if not issubclass(cls, Discipline):
        return f'```toml\n[scheduler]\nadvisors = ["{name}"]\n```'
    is_leaf = cls.classify is Discipline.classify
    stack = f'["{name}"]' if is_leaf else f'["{name}", "fcfs"]'
    return f"```toml\n[scheduler]\nstack = {stack}\n```"


def _rows(
    prefix: str, schema: dict[str, Any], text: str | None, root: dict[str, Any]
) -> Iterator[str]:
    """Of each field, and below a table of tables of each of their fields."""
    fields = schema.get("properties", {})
    meanings = dict(_meanings(cleandoc(text or ""), set(fields)))
    for field, found in fields.items():
        key = f"{prefix}.{field}"
        default = _shown(found.get("default", {}))
        yield f"| `{key}` | {default} | {_kind(found)} | {meanings[field]} |"
        inner = found.get("additionalProperties")
        if isinstance(inner, dict) and "$ref" in inner:
            below = root["$defs"][inner["$ref"].rpartition("/")[2]]
            yield from _rows(f"{key}.NAME", below, below.get("description"), root)


def _meanings(text: str, fields: set[str]) -> Iterator[tuple[str, str]]:
    """A docstring says "name, name: meaning" of fields; what is before is of the others."""
    starts = [
        (match.start(), match.end(), match[1].split(", "))
        for match in re.finditer(r"(?:^|(?<=\s))(\w+(?:, \w+)*):\s", text)
        if fields.issuperset(match[1].split(", "))
    ]
    ends = [*(start for start, _, _ in starts), len(text)][1:]
    lead = _inline(text[: starts[0][0] if starts else None])
    yield from ((field, lead) for field in fields if lead)
    for (_, begin, names), end in zip(starts, ends, strict=True):
        for name in names:
            yield name, _inline(text[begin:end])


def _inline(text: str | None) -> str:
    """One line that a cell of a table can hold."""
    return " ".join((text or "").split()).replace("|", "\\|")


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    shown = str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')
    return f"`{shown}`"


def _kind(schema: dict[str, Any]) -> str:
    """What values the key takes, in words."""
    if "anyOf" in schema:
        return " or ".join(_kind(each) for each in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(f'`"{each}"`' for each in schema["enum"])
    kind = {"null": "none", "object": "table", "array": "list"}.get(
        schema.get("type", "table"), schema.get("type", "table")
    )
    limits = [text.format(f"{schema[key]:g}") for key, text in LIMITS.items() if key in schema]
    inner = schema.get("additionalProperties")
    if isinstance(inner, dict):
        return kind + (" of tables" if "$ref" in inner else f"; each value: {_kind(inner)}")
    return f"{kind} {', '.join(limits)}".strip()


def main(arguments: list[str]) -> int:
    """Write the pages, or say which committed ones are out of date."""
    wanted = dict(documents())
    surplus = set(PAGES.glob("*.md")) - set(wanted)
    if "--check" in arguments:
        stale = [at for at, text in wanted.items() if not at.is_file() or at.read_text() != text]
        names = sorted(str(at.relative_to(ROOT)) for at in [*stale, *surplus])
        if names:
            print(f"out of date: {', '.join(names)}; run: python scripts/make_policies_doc.py")
        return int(bool(names))
    PAGES.mkdir(exist_ok=True)
    for at, text in wanted.items():
        at.write_text(text)
    for at in surplus:
        at.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
