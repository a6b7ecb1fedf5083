"""Nothing that comes from outside is run: no pickles, no evaluated text, no imports by request."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from jackfield import SamplingParams
from jackfield.core.api import RequestError
from jackfield.core.front.prompts import read

ROOT = Path(__file__).parents[2]
FILES = [path for room in ("core", "plugins", "server") for path in (ROOT / room).rglob("*.py")]
MODULES = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}
CALLS = {"eval", "exec", "compile", "__import__"}
ATTRIBUTES = {("torch", "load"), ("numpy", "load"), ("np", "load"), ("yaml", "load")}
BY_NAME = {
    "core/host/discover.py", "core/host/loader.py", "server/cli.py", "core/api/__init__.py",
    "core/testing/law_items.py", "plugins/kernels/triton/compiling.py",
}  # fmt: skip
"""Where modules are imported by name: those of entry points, of this package, what an author of a
plugin names on the command line of the tests, and kernels in the processes that compile them."""
OWN = {"core/testing/process_ranks.py": ["imports pickle"]}
"""What processes tell each other that one test has started, in a folder of its own."""


def dangers(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            yield from (f"imports {name}" for name in names if name.split(".")[0] in MODULES)
        if isinstance(node, ast.Name) and node.id in CALLS:
            yield f"uses {node.id}"
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            pair = (node.value.id, node.attr)
            yield from (f"uses {'.'.join(pair)}" for _ in range(pair in ATTRIBUTES))


def importers() -> set[str]:
    return {
        str(path.relative_to(ROOT))
        for path in FILES
        if "import_module" in path.read_text() or "EntryPoint" in path.read_text()
    }


def test_nothing_is_unpickled_or_evaluated() -> None:
    assert len(FILES) > 100
    found = {str(path.relative_to(ROOT)): list(dangers(path)) for path in FILES}
    assert {path: what for path, what in found.items() if what} == OWN


def test_modules_are_imported_by_name_in_few_places() -> None:
    assert importers() <= BY_NAME


@pytest.mark.parametrize("source", ["import pickle", "eval('1')", "import torch; torch.load('x')"])
def test_a_danger_would_be_found(tmp_path: Path, source: str) -> None:
    (tmp_path / "bad.py").write_text(source)
    assert list(dangers(tmp_path / "bad.py"))


@pytest.mark.parametrize("name", ["logits_processors", "logits_processor", "extra_args"])
def test_no_field_names_code(name: str) -> None:
    with pytest.raises(TypeError, match=name):
        SamplingParams(**{name: "os:system"})


@pytest.mark.parametrize("prompt", [{"prompt_embeds": b"\x80\x04"}, {"prompt": "a", "hook": "os"}])
def test_no_key_of_a_prompt_names_code(prompt: dict[str, object]) -> None:
    with pytest.raises(RequestError, match=r"got (prompt_embeds|hook)"):
        read(prompt, None)
