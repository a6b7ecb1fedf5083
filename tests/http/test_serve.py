"""`jackfield serve` as a process: one that ends well, one in a hurry, one that finds no port."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from jackfield.server.cli import main

ENGINE = (
    "--num-gpu-blocks-override=64", "--set=engine.threads=1", '--set=kernel.stack=["torch"]',
    "--max-num-seqs=4", "--served-model-name=small", "--port=0", "--api-key=secret",
)  # fmt: skip
HEAD = {"authorization": "Bearer secret"}
LONG = {"prompt": "x", "max_tokens": 250, "ignore_eos": True, "stream": True, "temperature": 0}


@contextmanager
def running(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process, and its URL once it listens."""
    start = "from jackfield.server.cli import main; raise SystemExit(main())"
    command = [sys.executable, "-c", start]
    clean = {name: value for name, value in os.environ.items() if name[:10] != "JACKFIELD_"}
    process = subprocess.Popen(
        [*command, "serve", str(folder), *ENGINE, *options],
        stderr=subprocess.PIPE, text=True, env=clean,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        lines = [process.stderr.readline()]
        while lines[-1] and not lines[-1].startswith("listening"):
            lines.append(process.stderr.readline())
        assert any(line.startswith("Jackfield ") for line in lines), lines
        yield process, lines[-1].split()[1]
    finally:
        process.kill()
        process.communicate()


def test_open_answers_end_and_a_second_signal_cuts_them_off(folder: Path) -> None:
    with running(folder) as (process, url), httpx.Client(headers=HEAD, timeout=20) as client:
        assert client.get(f"{url}/models").json()["data"][0]["id"] == "small"
        with client.stream("POST", f"{url}/completions", json=LONG) as found:
            lines = found.iter_lines()
            next(lines)
            process.send_signal(signal.SIGTERM)
            rest = [line for line in lines if line]
        assert json.loads(rest[-2][6:])["choices"][0]["finish_reason"] == "length"
        assert process.wait(10) == 0
    with running(folder) as (process, url), httpx.Client(headers=HEAD, timeout=20) as client:
        many = {**LONG, "prompt": ["x"] * 100}
        with client.stream("POST", f"{url}/completions", json=many) as found:
            lines = found.iter_lines()
            next(lines)
            process.send_signal(signal.SIGTERM)
            next(lines)
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGINT)
            rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        assert "error" in json.loads(rest[-2][6:])
        assert process.wait(10) == 1


def test_a_port_in_use(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", str(folder), f"--port={port}"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: port {port} of 127.0.0.1 is in use; ")
    assert error.count("\n") == 1


def test_wrong_flags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "a", "--model=b"]) == 2
    assert "given twice" in capsys.readouterr().err
    empty = tmp_path / "keys"
    empty.write_text("\n")
    assert main(["serve", f"--api-key-file={empty}"]) == 2
    assert "holds no key" in capsys.readouterr().err
    assert main(["serve", "--api-key="]) == 2
    assert "is empty" in capsys.readouterr().err
