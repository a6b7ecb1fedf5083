"""From the configuration to the policy: what a key means arrives in the engine, wherever it is."""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from jackfield.core.host.identifiers import build_identifiers
from jackfield.core.host.sources import load_config
from jackfield.server.http.settings import HttpSettings

TELLS = '''
import json
from pathlib import Path
from jackfield.core.api import PolicyConfig, Verdict, hookimpl

class TellsConfig(PolicyConfig):
    file: str

class Tells:
    """Writes down who asks."""

    Config = TellsConfig

    def __init__(self, config, context):
        self.file, self.now = Path(config.file), context.now

    @hookimpl
    def admit(self, requests, load):
        for request in requests:
            self.file.write_text(json.dumps(self.note(request.context)))
        return [Verdict.accept() for _ in requests]

    def note(self, context):
        left = None if context.deadline is None else context.deadline - self.now()
        return [context.tenant, context.tier, context.priority, left,
                dict(context.labels), type(context.trust).__name__, context.trust]
'''
CONFIG = """
[scheduler]
advisors = ["tells"]
[scheduler.tells]
file = "TOLD"
[server]
served_model_name = ["from-file"]
max_body = "1KiB"
[server.keys.entries.alice]
key_env = "ALICE_KEY"
tenant = "a"
tier = "gold"
priority = -1
deadline = 30.0
labels = { team = "search" }
[server.keys.entries.root]
key_file = "KEY_FILE"
trust = "operator"
"""
ALICE = ["a", "gold", -1, {"team": "search", "user": "me"}, "Trust", "user"]
ROOT = ["root", "default", -9, {"user": "me"}, "Trust", "operator"]
BODY = {"prompt": "x", "max_tokens": 1, "priority": -9, "user": "me", "tenant": "root"}
ENGINE = (
    "--num-gpu-blocks-override=64", "--set=engine.threads=1", '--set=kernel.stack=["torch"]',
    "--max-num-seqs=4", "--port=0",
)  # fmt: skip


@pytest.fixture
def site_packages(tmp_path: Path) -> Path:
    """A folder with the distribution of the advisor."""
    info = tmp_path / "site" / "tells-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tells\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[jackfield.v1.schedulers]\ntells = tells:Tells\n")
    (info.parent / "tells.py").write_text(TELLS)
    return info.parent


@pytest.fixture
def config(tmp_path: Path) -> Path:
    secret = tmp_path / "root-key"
    secret.write_text("root-secret\n")
    path, told = tmp_path / "jackfield.toml", tmp_path / "told"
    path.write_text(CONFIG.replace("KEY_FILE", str(secret)).replace("TOLD", str(told)))
    return path


def told(config: Path, url: str, key: str) -> list[Any]:
    """Who asks, in the eyes of the policy; without the deadline, which is checked."""
    head = {"authorization": f"Bearer {key}"}
    found = httpx.post(f"{url}/v1/completions", json=BODY, headers=head, timeout=20)
    assert found.is_success, found.text
    context: list[Any] = json.loads((config.parent / "told").read_text())
    left = context.pop(3)
    assert left is None if key == "root-secret" else 20 < left <= 30
    return context


def test_in_one_process(
    folder: Path, serve: Callable[..., Any], site_packages: Path, config: Path, monkeypatch: Any
) -> None:
    monkeypatch.syspath_prepend(str(site_packages))
    importlib.invalidate_caches()
    monkeypatch.setenv("ALICE_KEY", "alice-secret")
    identifiers = build_identifiers(load_config(config))
    settings = HttpSettings(identify=identifiers.plugins)
    with serve(folder, settings, config=config) as site:
        assert told(config, site.url, "alice-secret") == ALICE
        assert told(config, site.url, "root-secret") == ROOT
        assert httpx.get(f"{site.url}/v1/models").status_code == 401


@contextmanager
def running(folder: Path, *options: str, **env: str) -> Iterator[str]:
    """The URL of `jackfield serve` in a process, once it listens."""
    start = "from jackfield.server.cli import main; raise SystemExit(main())"
    clean = {name: value for name, value in os.environ.items() if name[:10] != "JACKFIELD_"}
    process = subprocess.Popen(
        [sys.executable, "-c", start, "serve", str(folder), *ENGINE, *options],
        stderr=subprocess.PIPE, text=True, env={**clean, **env},
    )  # fmt: skip
    try:
        assert process.stderr is not None
        lines = [process.stderr.readline()]
        while lines[-1] and not lines[-1].startswith("listening"):
            lines.append(process.stderr.readline())
        assert lines[-1], lines
        assert "callers     asked by keys\n" in lines
        yield lines[-1].split()[1].removesuffix("/v1")
    finally:
        process.kill()
        process.communicate()


def test_in_two_processes(folder: Path, site_packages: Path, config: Path) -> None:
    env = {
        "PYTHONPATH": str(site_packages), "ALICE_KEY": "alice-secret",
        "JACKFIELD_SERVER__MAX_ANSWERS": "3", "JACKFIELD_API_KEY": "boss-secret",
    }  # fmt: skip
    options = ("--config", str(config), "--served-model-name=from-flag")
    with running(folder, *options, **env) as url:
        assert told(config, url, "alice-secret") == ALICE
        assert told(config, url, "root-secret") == ROOT
        head = {"authorization": "Bearer boss-secret"}
        models = httpx.get(f"{url}/v1/models", headers=head).json()["data"]
        assert [card["id"] for card in models] == ["from-flag"]
        many = {**BODY, "n": 4}
        found = httpx.post(f"{url}/v1/completions", json=many, headers=head)
        assert (found.status_code, found.json()["error"]["param"]) == (400, "n")
        large = {**BODY, "prompt": "x" * 2000}
        found = httpx.post(f"{url}/v1/completions", json=large, headers=head)
        assert found.status_code == 413 and "1024 bytes" in found.text
        assert httpx.get(f"{url}/v1/models").status_code == 401


def test_a_server_that_is_set_up_wrongly_ends_at_once(folder: Path, config: Path) -> None:
    start = "from jackfield.server.cli import main; raise SystemExit(main())"
    clean = {name: value for name, value in os.environ.items() if name != "ALICE_KEY"}
    done = subprocess.run(
        [sys.executable, "-c", start, "serve", str(folder), "--config", str(config)],
        capture_output=True, text=True, env=clean, check=False, timeout=20,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: server.keys is refused by the server plugin 'keys'")
    assert "entries.alice takes its key from the environment variable 'ALICE_KEY'" in done.stderr
    assert done.stderr.count("\n") == 1
