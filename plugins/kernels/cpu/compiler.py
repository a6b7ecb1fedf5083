"""The C compiler of the machine and how it is called."""

import os
import platform
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

COMMON_FLAGS = (
    "-std=gnu11",
    "-O2",
    "-ftree-vectorize",
    "-fvect-cost-model=dynamic",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fPIC",
    "-fopenmp",
)
TIMEOUT_SECONDS = 120


class CompileError(Exception):
    """The kernels cannot be compiled here; the message is the reason in a sentence."""


class Compiler:
    """One C compiler. Raises `CompileError` if there is none, or if it does not run."""

    def __init__(self) -> None:
        self.command = _find()
        native = "-mcpu" if platform.machine() in ("aarch64", "arm64") else "-march"
        self.flags = (*COMMON_FLAGS, f"{native}=native")
        self.version = self._run(["--version"])

    def compile(self, sources: Sequence[Path], folder: Path) -> list[Path]:
        """Objects of all sources, made side by side."""
        objects = [folder / f"{source.stem}.o" for source in sources]
        running = [
            self._start([*self.flags, "-c", str(source), "-o", str(target)])
            for source, target in zip(sources, objects, strict=True)
        ]
        reasons = [self._finish(process)[1] for process in running]
        for reason in filter(None, reasons):
            raise CompileError(reason)
        return objects

    def link(self, objects: Sequence[Path], target: Path, flags: Sequence[str]) -> None:
        self._run(["-shared", *map(str, objects), "-o", str(target), *flags, "-lm"])

    def _run(self, arguments: list[str]) -> str:
        output, reason = self._finish(self._start(arguments))
        if reason:
            raise CompileError(reason)
        return output

    def _start(self, arguments: list[str]) -> "subprocess.Popen[str]":
        try:
            return subprocess.Popen(
                [*self.command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, "LC_ALL": "C"},
            )
        except OSError as error:
            raise CompileError(
                f"the C compiler {self.command[0]!r} does not run: {error}"
            ) from error

    def _finish(self, process: "subprocess.Popen[str]") -> tuple[str, str]:
        """What it printed, and why it failed; empty if it did not."""
        name = f"the C compiler {self.command[0]!r}"
        try:
            output, errors = process.communicate(timeout=TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return "", f"{name} took over {TIMEOUT_SECONDS} seconds"
        if process.returncode == 0:
            return output, ""
        lines = [line for line in errors.splitlines() if "error" in line] or errors.splitlines()
        detail = lines[0] if lines else f"exit status {process.returncode}"
        return output, f"{name} failed: {detail}"


def _find() -> list[str]:
    chosen = shlex.split(os.environ.get("CC", ""))
    for command in [chosen] if chosen else [["cc"], ["gcc"], ["clang"]]:
        path = shutil.which(command[0])
        if path:
            return [path, *command[1:]]
    if chosen:
        raise CompileError(f"the C compiler that $CC names, {chosen[0]!r}, was not found")
    raise CompileError("no C compiler was found (cc, gcc or clang on $PATH, or $CC)")
