"""The clients that are tried: their environments, and their checks.

A tool `x-y` has the pinned distributions of `requirements/x-y.txt` in an environment of its own,
`.nox/clients-x-y`, and `checks/check_x_y.py`, whose docstring says what it checks. Without
requirements it must be installed already: `X_Y_PYTHON` names its interpreter.
"""

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parents[1] / ".nox"
LIMIT = 420.0
DONE = "installed"
"""Name of the file that an environment has when it is complete: what was asked for."""


class Tool(NamedTuple):
    """One client. name: as its requirements are called, and usually the distribution."""

    name: str
    check: Path

    @property
    def purpose(self) -> str:
        """What is checked."""
        return (ast.get_docstring(ast.parse(self.check.read_text())) or "").splitlines()[0]

    @property
    def requirements(self) -> Path:
        """The pinned distributions."""
        return HERE / "requirements" / f"{self.name}.txt"

    @property
    def variable(self) -> str:
        """Names the interpreter of a tool that is too large to be installed here."""
        return f"{self.name.upper().replace('-', '_')}_PYTHON"

    def python(self) -> str | None:
        """The interpreter, its environment made if there is none; None = not to be had."""
        if not self.requirements.exists():
            return os.environ.get(self.variable)
        folder = ENVIRONMENTS / f"clients-{self.name}"
        python, done = folder / "bin" / "python", folder / DONE
        wanted = self.requirements.read_text()
        if not done.exists() or done.read_text() != wanted:
            print(f"installing {self.name} into {folder}", file=sys.stderr, flush=True)
            if not python.exists():
                subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
            pip = [str(python), "-m", "pip", "install", "-qq", "-r", str(self.requirements)]
            subprocess.run(pip, check=True)
            done.write_text(wanted)
        return str(python)


def all_tools() -> list[Tool]:
    """In the order of their names."""
    checks = sorted((HERE / "checks").glob("check_*.py"))
    return [Tool(path.stem.removeprefix("check_").replace("_", "-"), path) for path in checks]


def version(tool: Tool, python: str) -> str:
    """The installed version."""
    script = f"from importlib.metadata import version; print(version({tool.name!r}))"
    done = subprocess.run([python, "-c", script], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "?"
