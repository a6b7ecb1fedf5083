"""How the C kernels are compiled and kept, and what is said where they cannot be."""

import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from jackfield.core.api.kernel import KvSpec, OpSpec
from jackfield.core.api.scheduler import PolicyConfig
from jackfield.plugins.kernels.cpu import CpuKernels, compiler
from jackfield.plugins.kernels.cpu.build import cache_folder, load
from jackfield.plugins.kernels.cpu.compiler import CompileError, Compiler

CPU = torch.device("cpu")
SPEC = OpSpec(torch.float32, 64, 16, 100)


def refusals(device: torch.device = CPU, spec: OpSpec = SPEC) -> list[str]:
    reasons: list[str] = (
        CpuKernels(PolicyConfig()).operations()["rms_norm"].unsupported(spec, device)
    )
    return reasons


@pytest.fixture
def compiled(kernel_cache: None) -> None:
    if refusals():
        pytest.skip(refusals()[0])


def script(path: Path, body: str) -> str:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_what_is_compiled_is_used_again(compiled: None, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path: path.stat().st_mtime_ns for path in cache_folder().iterdir()}

    def refuse(*arguments: Any) -> None:
        raise AssertionError("compiled twice")

    monkeypatch.setattr(Compiler, "compile", refuse)
    assert refusals() == []
    assert {path: path.stat().st_mtime_ns for path in cache_folder().iterdir()} == before


def test_two_at_once_leave_one_whole_library(
    compiled: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JACKFIELD_CACHE", str(tmp_path))
    monkeypatch.setattr(compiler, "COMMON_FLAGS", ("-std=gnu11", "-O0", "-fPIC", "-fopenmp"))
    threads = [threading.Thread(target=load) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [path.suffix for path in cache_folder().iterdir()] == [".so"]


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert refusals() == ["no C compiler was found (cc, gcc or clang on $PATH, or $CC)"]


def test_the_compiler_that_is_named_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -m64")
    assert refusals() == ["the C compiler that $CC names, 'no-such-compiler', was not found"]


def test_a_compiler_that_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    body = 'case "$1" in --version) echo 1;; *) echo "x.c: error: too old" >&2; exit 1;; esac'
    monkeypatch.setenv("CC", script(tmp_path / "bad", body))
    monkeypatch.setenv("JACKFIELD_CACHE", str(tmp_path / "cache"))
    (reason,) = refusals()
    assert reason.endswith("failed: x.c: error: too old")
    assert list(cache_folder().iterdir()) == []


def test_a_library_that_does_not_load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    body = 'while [ $# -gt 0 ]; do [ "$1" = -o ] && echo junk > "$2"; shift; done'
    monkeypatch.setenv("CC", script(tmp_path / "junk", body))
    monkeypatch.setenv("JACKFIELD_CACHE", str(tmp_path / "cache"))
    assert "cannot be stored or loaded" in refusals()[0]


def test_a_cache_folder_that_cannot_be_made(
    compiled: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("JACKFIELD_CACHE", str(tmp_path / "file"))
    assert "cannot be stored or loaded" in refusals()[0]


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JACKFIELD_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache_folder() == Path("/x/jackfield/kernels")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/h")
    assert cache_folder() == Path("/h/.cache/jackfield/kernels")


def test_other_devices_and_types_are_refused_without_compiling(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    assert refusals(torch.device("meta")) == ["the kernels run on CPUs, not on meta"]
    assert "float64" in refusals(spec=SPEC._replace(dtype=torch.float64))[0]


@pytest.mark.parametrize("head_dim", [20, 272])
def test_head_sizes_that_do_not_fit_are_refused(compiled: None, head_dim: int) -> None:
    attention = CpuKernels(PolicyConfig()).operations()["attention"]
    (reason,) = attention.unsupported(KvSpec(4, 2, head_dim, torch.float32, 16), CPU)
    assert str(head_dim) in reason


def test_compiler_reports_a_missing_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fnot a program")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    with pytest.raises(CompileError, match="does not run"):
        Compiler()
    assert os.access(broken, os.X_OK)
