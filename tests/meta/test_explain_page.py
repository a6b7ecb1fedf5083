"""docs/explain.md has every code of the core's decisions, and no other."""

import re
from pathlib import Path

from jackfield.core.engine.reasons import ADMITTED, WAITS, Code

PAGE = Path(__file__).parents[2] / "docs" / "explain.md"


def test_every_code_is_documented() -> None:
    tables = PAGE.read_text().split("## Codes\n")[1].split("\n## ")[0]
    documented = re.findall(r"^\| `(\w+)` \|", tables, re.MULTILINE)
    assert sorted(documented) == sorted(code.value for code in Code)


def test_sentences_are_those_of_their_kind() -> None:
    assert set(ADMITTED) == {Code.ORDER, Code.VALVE, Code.FALLBACK, Code.PLAN}
    assert all(text and not text.endswith(".") for text in (*ADMITTED.values(), *WAITS.values()))
