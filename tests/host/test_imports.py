"""What loads without torch, in a fresh interpreter."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "statement",
    [
        "import jackfield.core.inspection",
        "import jackfield.core.host.stack",
        "import jackfield.core.testing.law_items, jackfield.core.testing.conformance",
        "import jackfield.server.commands.plugins, jackfield.server.commands.config",
        "from jackfield.server.cli import main; main(['plugins', 'list'])",
    ],
)
def test_no_torch(statement: str) -> None:
    check = f"{statement}; import sys; sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_help_imports_neither_pydantic_nor_the_commands() -> None:
    check = (
        "from jackfield.server.cli import main; main(['--help']); import sys; "
        "sys.exit(sum(n in sys.modules for n in ('pydantic', 'jackfield.server.commands.plugins')))"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert b"plugins" in done.stdout
