"""Limits that keep the code readable."""

import ast
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from tokenize import COMMENT, DEDENT, ENDMARKER, INDENT, NEWLINE, NL, generate_tokens

ROOT = Path(__file__).parents[2]
LONGEST_FUNCTION = 60
LONGEST_FILE = 400
LONGEST_POLICY = 80
NO_CODE = {COMMENT, NL, NEWLINE, INDENT, DEDENT, ENDMARKER}
FILES = [path for room in ("core", "plugins", "server") for path in (ROOT / room).rglob("*.py")]
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def definitions(path: Path) -> Iterator[Definition]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, Definition):
            yield node


def lines(node: Definition) -> int:
    """Without those of classes inside, whose methods count for themselves."""
    inner = [child for child in node.body if isinstance(child, ast.ClassDef)]
    return (node.end_lineno or 0) - node.lineno + 1 - sum(map(lines, inner))


def is_device_code(node: Definition) -> bool:
    """Whether Triton compiles it. Such functions have no objects to group their arguments in."""
    decorators = (each.func if isinstance(each, ast.Call) else each for each in node.decorator_list)
    return any(ast.unparse(each) == "triton.jit" for each in decorators)


def body_lines(node: Definition) -> int:
    """From the first statement behind the docstring on."""
    first = node.body[min(bool(ast.get_docstring(node)), len(node.body) - 1)]
    return (node.end_lineno or 0) - first.lineno + 1


def function_lines(node: Definition) -> int:
    return body_lines(node) if is_device_code(node) else lines(node)


def test_arguments_of_device_code_are_not_counted() -> None:
    text = '@triton.jit({})\ndef f(\n    a,\n    b,\n):\n    """Two\n    lines."""\n    c\n    d\n'
    plain = ast.parse(text.replace("@triton.jit({})", "@other")).body[0]
    assert isinstance(plain, ast.FunctionDef) and function_lines(plain) == 8
    for decorator in ("", "(do_not_specialize=[])"):
        node = ast.parse(text.replace("({})", decorator)).body[0]
        assert isinstance(node, ast.FunctionDef) and function_lines(node) == 2


def test_functions_fit_a_screen() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name} has {function_lines(node)} lines"
        for path in FILES
        for node in definitions(path)
        if not isinstance(node, ast.ClassDef) and function_lines(node) > LONGEST_FUNCTION
    ]
    assert long == []


def test_files_are_short() -> None:
    long = {
        str(path.relative_to(ROOT)): length
        for path in FILES
        if (length := len(path.read_text().splitlines())) > LONGEST_FILE
    }
    assert long == {}


def code_lines(path: Path) -> int:
    """Lines with anything but comments and docstrings."""
    text = path.read_text()
    found: set[int] = set()
    for token in generate_tokens(StringIO(text).readline):
        if token.type not in NO_CODE:
            found.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text and isinstance(node.value.value, str):
            found.difference_update(range(node.lineno, (node.end_lineno or 0) + 1))
    return len(found)


def test_lines_of_code_are_counted_without_comments_and_docstrings(tmp_path: Path) -> None:
    file = tmp_path / "example.py"
    file.write_text('"""Two\nlines."""\n\n# no\nX = (\n    1,  # one\n)\n"""After."""\n')
    assert code_lines(file) == 3


def test_policies_are_short() -> None:
    lengths = {
        str(path.relative_to(ROOT)): code_lines(path)
        for path in (ROOT / "plugins" / "schedulers").rglob("*.py")
    }
    assert len(lengths) > 5
    assert {path: count for path, count in lengths.items() if count > LONGEST_POLICY} == {}


def test_no_file_of_odds_and_ends() -> None:
    assert [path for path in FILES if path.stem in ("utils", "util", "helpers", "misc")] == []


def test_the_contract_is_described() -> None:
    """Every public class, and every module, of core/api says what it is."""
    silent = []
    for path in (ROOT / "core" / "api").glob("*.py"):
        tree = ast.parse(path.read_text())
        named = [node for node in tree.body if isinstance(node, Definition)]
        public = [node for node in named if not node.name.startswith("_")]
        silent += [f"{path.name}: {node.name}" for node in public if not ast.get_docstring(node)]
        silent += [] if ast.get_docstring(tree) else [path.name]
    assert silent == []
