"""Clients that others wrote against a real server: one table, and the exit status.

Arguments: names of tools; none = all. What a check prints is shown when it fails.
"""

import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from servers import serving
from tools import LIMIT, Tool, all_tools, version

from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.core.checkpoint.resolve import resolve_model
from jackfield.core.testing.tiny_model import write_tiny_model

KEY = "secret"
SHOWN = 6000


class Result(NamedTuple):
    """How a check ended. state: ok, failed or skipped. seconds: without the installation."""

    tool: Tool
    version: str
    state: str
    seconds: float


def main(names: Sequence[str]) -> int:
    """Run the checks; 1 if one failed."""
    tools = all_tools()
    unknown = [name for name in names if name not in [tool.name for tool in tools]]
    if unknown:
        print(f"there is no check of {unknown[0]}; there are {', '.join(t.name for t in tools)}")
        return 2
    chosen = [tool for tool in tools if not names or tool.name in names]
    pythons = [(tool, tool.python()) for tool in chosen]
    with TemporaryDirectory() as folder, ExitStack() as stack:
        scratch = Path(folder)
        arguments = start(stack, scratch)
        results = [try_out(tool, python, arguments, scratch) for tool, python in pythons]
    show(results)
    return int(any(result.state == "failed" for result in results))


def start(stack: ExitStack, scratch: Path) -> list[str]:
    """Start both servers; what every check gets as its first arguments."""
    model = resolve_model(None, progress=SilentProgress())
    tiny = write_tiny_model(scratch / "tiny")
    url = serving(
        scratch / "smol.log", str(model), "--max-model-len=2048", "--served-model-name=smol"
    )
    keyed = serving(scratch / "tiny.log", str(tiny), f"--api-key={KEY}")
    return [stack.enter_context(url), str(model), stack.enter_context(keyed)]


def try_out(tool: Tool, python: str | None, arguments: Sequence[str], scratch: Path) -> Result:
    """Run the check of one tool in a folder of its own."""
    if python is None:
        print(f"{tool.name} is skipped: set {tool.variable} to its interpreter", flush=True)
        return Result(tool, "-", "skipped", 0.0)
    print(f"checking {tool.name}", flush=True)
    own = scratch / tool.name
    own.mkdir()
    begun = time.monotonic()
    state, told = "failed", f"it took more than {LIMIT:.0f} s"
    try:
        done = subprocess.run(
            [python, str(tool.check), *arguments], cwd=own, timeout=LIMIT, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        state, told = "failed" if done.returncode else "ok", done.stdout
    except subprocess.TimeoutExpired as error:
        told = f"{(error.stdout or b'').decode(errors='replace')}\n{told}"
    if state == "failed":
        print(f"{tool.name} failed:\n{told[-SHOWN:]}", flush=True)
    return Result(tool, version(tool, python), state, time.monotonic() - begun)


def show(results: Sequence[Result]) -> None:
    """One row per tool."""
    table = Table("tool", "version", "checked", "result", "seconds", box=None)
    for result in results:
        tool = result.tool
        seconds = f"{result.seconds:.0f}"
        table.add_row(tool.name, result.version, tool.purpose, result.state, seconds)
    Console(width=120).print(table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
