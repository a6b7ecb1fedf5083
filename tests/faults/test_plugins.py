"""Plugins of others: the same in every way to start, in an order that is declared, and told."""

import importlib
import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jackfield import LLM, AsyncLLM, SamplingParams
from jackfield.core.api import CacheAxis, PluginContractError
from jackfield.server.cli import main

FLAGS = ("--num-gpu-blocks-override=64", "--max-tokens=8", "--set=engine.threads=1")
POLICIES = """
from jackfield.core.api import CacheAxis, CacheLayout, CachePlugin, PolicyConfig, hookimpl

class Config(PolicyConfig):
    pass

class Observer:
    Config = Config
    def __init__(self, config, context):
        self.seen = []
    @hookimpl
    def observe(self, events):
        self.seen += events

class First(Observer):
    pass

class Second(Observer):
    pass

class Odd(CachePlugin):
    axis = CacheAxis.ALLOCATOR
    @hookimpl
    def layout(self, max_model_len):
        return ANSWER
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Installs a distribution with one module, in front of or behind those before it."""
    made: list[str] = []

    def install(name: str, entry_points: str, source: str) -> None:
        folder = tmp_path / name
        info = folder / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(entry_points)
        (folder / f"{name}_module.py").write_text(source)
        monkeypatch.syspath_prepend(str(folder))
        importlib.invalidate_caches()
        made.append(f"{name}_module")

    yield install
    for module in made:
        sys.modules.pop(module, None)


def test_every_way_to_start_knows_the_plugin(
    scripted: Callable[..., Path], small: dict[str, Any], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    folder = scripted({"a": ["scr", "ipted"]}, template="{{ messages[-1].content }}")
    with LLM(folder, **small) as llm:
        assert any(one.startswith("model Scripted") for one in llm.assembly.summary.plugins)
        [output] = llm.generate("a", SamplingParams(temperature=0), use_tqdm=False)
        assert output.outputs[0].text == "scripted"
    common = (f"--model={folder}", *FLAGS)
    assert main(["generate", "a", *common]) == 0
    assert capsys.readouterr().out == "scripted\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a\n"), encoding="utf-8"))
    assert main(["chat", *common]) == 0
    assert "scripted" in capsys.readouterr().out
    assert main(["plugins", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert "Scripted" in json.dumps(listed)


async def test_the_stream_knows_it_too(
    scripted: Callable[..., Path], small: dict[str, Any]
) -> None:
    llm = AsyncLLM(scripted({"a": ["scr", "ipted"]}), **small)
    outputs = [one async for one in llm.generate("a", SamplingParams(temperature=0))]
    await llm.close()
    assert outputs[-1].outputs[0].text == "scripted"


@pytest.mark.parametrize("order", [("first", "second"), ("second", "first")])
def test_the_configuration_orders_plugins(
    tiny: Path, load: Callable[..., LLM], site: Callable[..., None], order: tuple[str, str]
) -> None:
    """Whatever was installed first, and whatever comes first on the path."""
    for name in order:
        entry = f"[jackfield.v1.schedulers]\n{name} = {name}_module:{name.title()}\n"
        site(name, entry, POLICIES)
    llm = load(tiny, **{"scheduler.advisors": ["second", "first"]})
    found = llm.assembly.stack.manager.implementations("observe")
    assert [one.plugin for one in found] == ["second", "first"]
    assert [one.name for one in llm.assembly.stack.advisors] == ["second", "first"]
    shown = [one for one in llm.assembly.summary.plugins if "first" in one or "second" in one]
    assert shown == ["scheduler second (second 1.0)", "scheduler first (first 1.0)"]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("None", "returned None, not a CacheLayout"),
        ("64", "returned 64, not a CacheLayout"),
        ("CacheLayout('64')", "not a CacheLayout"),
        ("CacheLayout(True)", "not a CacheLayout"),
        ("CacheLayout(0)", "blocks of 0 positions"),
    ],
)
def test_an_answer_out_of_contract_stops_the_start(
    tiny: Path, load: Callable[..., LLM], site: Callable[..., None], answer: str, message: str
) -> None:
    entry = "[jackfield.v1.caches]\nodd = odd_module:Odd\n"
    site("odd", entry, POLICIES.replace("ANSWER", answer))
    with pytest.raises(PluginContractError, match=rf"odd.*{message}"):
        load(tiny, block_size=None, **{"cache.stack": ["odd"]})


def test_the_pool_has_the_blocks_of_its_plugin(
    tiny: Path, load: Callable[..., LLM], site: Callable[..., None]
) -> None:
    entry = "[jackfield.v1.caches]\nodd = odd_module:Odd\n"
    site("odd", entry, POLICIES.replace("ANSWER", "CacheLayout(5)"))
    llm = load(tiny, block_size=None, **{"cache.stack": ["odd"]})
    assert llm.assembly.stack.caches[CacheAxis.ALLOCATOR][0].name == "odd"
    assert llm.assembly.engine.lifecycle.planner.pool.block_size == 5
    params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
    prompts = [[5] * 9, [6, 7]]
    expected = load(tiny).generate(prompts, params, use_tqdm=False)
    found = llm.generate(prompts, params, use_tqdm=False)
    assert [one.outputs[0] for one in found] == [one.outputs[0] for one in expected]


def test_a_fast_path_that_is_lost_is_told(tiny: Path, load: Callable[..., LLM]) -> None:
    llm = load(tiny, dtype="float16", **{"kernel.stack": ["cpu", "torch"]})
    assert llm.assembly.summary.operations["attention"] == "torch"
    notices = " ".join(llm.assembly.summary.notices)
    assert "cpu does not serve" in notices and "float16" in notices
    assert any(line.startswith("notice") for line in llm.assembly.summary.lines())
