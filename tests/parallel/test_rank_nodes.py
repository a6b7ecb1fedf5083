"""Ranks of two nodes, both of them on this host."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from jackfield import LLM, SamplingParams
from jackfield.core.api import ConfigError, EngineStoppedError, PluginError
from jackfield.core.inspection import load_config
from jackfield.core.testing.ranks import ranked_llm
from jackfield.core.testing.tiny_model import write_tiny_model
from jackfield.server.cli import main

pytestmark = pytest.mark.long
START = "from jackfield.server.cli import main; raise SystemExit(main())"
TOKEN = "a secret of two nodes"
PROMPTS = [{"prompt_token_ids": [5 + index, 6, 7]} for index in range(3)]
PARAMS = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
LONG = SamplingParams(temperature=0, max_tokens=200, ignore_eos=True)
SOON = 5.0
EXTRA = """
from jackfield.core.api import KernelPlugin, PolicyConfig

class Extra(KernelPlugin):
    Config = PolicyConfig

    def __init__(self, config):
        pass

    def operations(self):
        return {}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextmanager
def follower(
    folder: Path,
    port: int,
    token: str = TOKEN,
    seqs: int = 4,
    kernels: str = "['torch']",
    imports: Path | None = None,
) -> Iterator[subprocess.Popen[str]]:
    settings = (f"kernel.stack={kernels}", "engine.threads=1", f"parallel.master_port={port}")
    command = [
        sys.executable, "-c", START, "serve", str(folder), "--tensor-parallel-size=2", "--nnodes=2",
        "--node-rank=1", "--dtype=float32", "--num-gpu-blocks-override=64",
        f"--max-num-seqs={seqs}", "--skip-tokenizer-init",
        *(f"--set={one}" for one in settings),
    ]  # fmt: skip
    environment = {**os.environ, "JACKFIELD_PARALLEL__TOKEN": token}
    if imports is not None:
        environment["PYTHONPATH"] = str(imports)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def leader(folder: Path, port: int, **settings: Any) -> LLM:
    nodes = {"nnodes": 2, "master_port": port, "parallel.token": TOKEN}
    return ranked_llm(folder, 2, **nodes, **settings)


def left(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return list(psutil.Process(process.pid).children(recursive=True))


def test_two_nodes_answer_as_one(folder: Path, port: int) -> None:
    with follower(folder, port) as process:
        with leader(folder, port) as llm:
            found = [list(o.outputs[0].token_ids) for o in llm.generate(PROMPTS, PARAMS)]
        assert process.wait(SOON) == 0
    with ranked_llm(folder, 1) as llm:
        assert found == [list(o.outputs[0].token_ids) for o in llm.generate(PROMPTS, PARAMS)]


def test_a_node_that_goes_is_the_end_of_all(folder: Path, port: int) -> None:
    with follower(folder, port) as process, leader(folder, port) as llm:
        children = left(process)
        assert len(children) == 1
        process.kill()
        with pytest.raises(EngineStoppedError, match=r"rank 1 \(of node 1, 127"):
            llm.generate(PROMPTS * 50, LONG)
        assert psutil.wait_procs(children, timeout=SOON)[1] == []


def test_the_first_node_takes_the_others_with_it(folder: Path, port: int) -> None:
    with follower(folder, port) as process, leader(folder, port) as llm:
        children = left(process)
        llm.assembly.loaded.executor._others.kill()
        assert process.wait(SOON) == EngineStoppedError.exit_code
        assert psutil.wait_procs(children, timeout=SOON)[1] == []


def test_a_node_that_does_not_come_is_named(folder: Path, port: int) -> None:
    told = r"1 of 2 nodes have come to 127.0.0.1:\d+ within parallel.timeout = 1 seconds.* node 1"
    with pytest.raises(ConfigError, match=told):
        leader(folder, port, **{"parallel.timeout": 1.0})


def test_a_node_with_other_settings_is_told_what_differs(folder: Path, port: int) -> None:
    told = "node 1 was started otherwise: engine.max_num_seqs is 3 there, and 4 on node 0"
    with follower(folder, port, seqs=3), pytest.raises(ConfigError, match=told):
        leader(folder, port)


def write_plugin(folder: Path, version: str) -> Path:
    info = folder / "extra.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: extra\nVersion: {version}\n")
    (info / "entry_points.txt").write_text("[jackfield.v1.kernels]\nextra = extra:Extra\n")
    (folder / "extra.py").write_text(EXTRA)
    return folder


def test_a_rank_with_another_plugin_is_named(
    folder: Path, port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(write_plugin(tmp_path / "here", "1.0")))
    there = write_plugin(tmp_path / "there", "2.0")
    told = r"rank 1 does not fit rank 0.*'extra' is extra 1\.0 .* here and extra 2\.0 .* there"
    with (
        follower(folder, port, kernels="['extra','torch']", imports=there),
        pytest.raises(PluginError, match=told),
    ):
        leader(folder, port, **{"kernel.stack": ["extra", "torch"]})


def test_a_node_without_the_secret_is_not_let_in(folder: Path, port: int) -> None:
    with follower(folder, port, token="another secret of some") as process:
        with pytest.raises(ConfigError, match="1 of 2 nodes have come"):
            leader(folder, port, **{"parallel.timeout": 4.0})
        _, errors = process.communicate(timeout=SOON)
        assert process.returncode == ConfigError.exit_code
        assert "another parallel.token" in errors


def test_the_secret_is_never_shown(
    folder: Path, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match=r"parallel\.token") as found:
        ranked_llm(folder, 2, nnodes=2, master_port=port, **{"parallel.token": "short"})
    assert "'short'" not in str(found.value)
    config = load_config(flags={"parallel.token": TOKEN}).config
    assert TOKEN not in repr(config)
    assert main(["config", "show", "--set", f"parallel.token={TOKEN}"]) == 0
    shown = capsys.readouterr().out
    assert "token = " in shown and TOKEN not in shown
